"""Compiled rows on a CPU: the same losses as the eager rows, packages made once, faults in words."""

from __future__ import annotations

import signal
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
from conftest import Program
from running import Running

# A rate at which a wrong gradient shows in the losses after it.
SHORT = ["--steps", "5", "--warmup", "1", "--learning-rate", "0.01", "--sequence", "32"]
PARTS = ("import", "trace", "inductor", "kernels", "wrapper")
MINUTES = 60  # seconds


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder of packages for all tests here: compiling takes its time."""
    return tmp_path_factory.mktemp("packages")


def losses(file: h5py.File, name: str) -> np.ndarray:
    """[ranks][steps] of an ok row."""
    suite = next(key for key in file if key != "runs")
    row = file[suite][name]["0"]
    assert row.attrs["status"] == "ok", row.attrs["reason"]
    return row["loss"][:]


def run(program: Program, cache: Path, out: Path, *flags: str, ranks: int = 1) -> h5py.File:
    """A run that ends well, and its file."""
    ended = program(
        *flags, *SHORT, "--compile-cache", cache, "--out", out, ranks=ranks, timeout=20 * MINUTES
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return h5py.File(out)


def code_of(cache: Path, block: str) -> str:
    """The C++ code in the forward package of the only block of that name."""
    (package,) = cache.glob(f"{block}-*/forward.pt2")
    with zipfile.ZipFile(package) as archive:
        (code,) = (name for name in archive.namelist() if name.endswith(".wrapper.cpp"))
        return archive.read(code).decode()


def test_one_rank_as_eager_and_then_from_the_cache(
    program: Program, cache: Path, tmp_path: Path
) -> None:
    """bf16; the second case of the same shapes and the second run find the packages."""
    flags = ["ddp", "--precision", "bf16"]
    for recipe in ("1gpu", "1gpu-accumulate4"):
        flags += ["--case", recipe, "--case", f"{recipe}-compile"]
    with run(program, cache, tmp_path / "a.h5", *flags) as file:
        for recipe in ("1gpu", "1gpu-accumulate4"):
            eager, compiled = losses(file, f"tiny-{recipe}"), losses(file, f"tiny-{recipe}-compile")
            np.testing.assert_allclose(compiled, eager, atol=0.01)
        first = file["ddp/tiny-1gpu-compile/0"].attrs
        second = file["ddp/tiny-1gpu-accumulate4-compile/0"].attrs
        assert first["compile_mode"] == first["execution"] == "compile"
        assert first["first_step_seconds"] == first["first_step_seconds_cold"]
        assert first["first_step_seconds_warm"] < first["first_step_seconds_cold"]
        assert sum(first[f"compile_{part}_seconds"] for part in PARTS) > 0
        assert first["compile_seconds"] < first["first_step_seconds_cold"] + first[
            "first_step_seconds_warm"
        ]
        assert "first_step_seconds_cold" not in second
        assert all(second[f"compile_{part}_seconds"] == 0 for part in PARTS)
    assert "linear_cross_entropy_rows" not in code_of(cache, "gpt2-head")  # a CPU's default
    assert all("Inductor's way" not in log.read_text() for log in (cache / "logs").iterdir())
    # Nothing to compile: no compiler and no Python are asked for.
    ended = program(
        *flags, *SHORT, "--compile-cache", cache, "--out", tmp_path / "b.h5",
        CXX="no-such-compiler", timeout=10 * MINUTES,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_two_ranks_share_packages(program: Program, cache: Path, tmp_path: Path) -> None:
    """Gradients are summed over ranks as in the eager rows, replicas stay equal."""
    flags = ["ddp", "--precision", "bf16"]
    for recipe in ("plain", "both"):
        flags += ["--case", recipe, "--case", f"{recipe}-compile"]
    with run(program, cache, tmp_path / "a.h5", *flags, ranks=2) as file:
        for recipe in ("plain", "both"):
            eager, compiled = losses(file, f"tiny-{recipe}"), losses(file, f"tiny-{recipe}-compile")
            assert eager.shape == (2, 6)
            np.testing.assert_allclose(compiled, eager, atol=0.01)
            assert file[f"ddp/tiny-{recipe}-compile/0/check"].attrs["replicas_equal"]
    assert len(list(cache.glob("gpt2-block-*/block.json"))) == 1


def test_compile_suite(program: Program, cache: Path, tmp_path: Path) -> None:
    """Both attentions train as their eager rows; graph rows say why they did not run. With a GPU's
    defaults: packages call the fused head and loss, and the blocks' own kernels."""
    flags = ["compile", "--precision", "fp32", "--loss-kernel", "fused", "--block-kernel", "fused"]
    with run(program, cache, tmp_path / "a.h5", *flags) as file:
        assert len(file["compile"]) == 6
        for attention in ("sdpa", "naive"):
            eager = losses(file, f"tiny-eager-{attention}")
            np.testing.assert_allclose(losses(file, f"tiny-compile-{attention}"), eager, rtol=1e-4)
            graph = file[f"compile/tiny-graph-{attention}/0"].attrs
            assert graph["status"] == "skipped"
            assert "CUDA graphs need a GPU" in graph["reason"]
        assert "linear_cross_entropy_rows" in code_of(cache, "decoder-head")
        np.testing.assert_allclose(
            losses(file, "tiny-eager-sdpa"), losses(file, "tiny-eager-naive"), rtol=1e-4
        )


def test_finetuning_as_eager(program: Program, cache: Path, tmp_path: Path) -> None:
    """On padded examples; the pass's last micro-batch is smaller and runs eagerly."""
    flags = ["finetune", "--micro-batch", "2", "--accumulate", "2", "--train-examples", "11",
             "--held-out", "3", "--length-buckets", "512", "--compile-cache", cache]
    for method in ("full", "qlora"):
        flags += ["--case", f"{method}-2x2", "--case", f"{method}-2x2-compile"]
    ended = program(*flags, "--learning-rate", "0.01", "--out", tmp_path / "a.h5",
                    timeout=20 * MINUTES)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    with h5py.File(tmp_path / "a.h5") as file:
        for method in ("full", "qlora"):
            eager, compiled = (losses(file, f"tiny-{method}-2x2{kind}") for kind in ("", "-compile"))
            assert eager.shape == (1, 3)
            np.testing.assert_allclose(compiled, eager, rtol=1e-4)
            row = file[f"finetune/tiny-{method}-2x2-compile/0"].attrs
            assert (row["compiled_micro_batches"], row["eager_micro_batches"]) == (5, 1)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"CXX": "no-such-compiler"}, "'no-such-compiler' is not on PATH"),
        ({"TRAINSUITE_CAPTURE": "/nowhere/capture.py"}, "/nowhere/capture.py"),
    ],
)
def test_what_is_missing_is_named_before_the_run(
    program: Program, tmp_path: Path, fault: dict[str, str], words: str
) -> None:
    """One line, exit 2, no result file."""
    ended = program(
        "ddp", "--case", "1gpu-compile", "--compile-cache", tmp_path / "c", "--out",
        tmp_path / "a.h5", **fault,
    )
    assert ended.returncode == 2, ended
    assert words in ended.stderr and len(ended.stderr.splitlines()) == 1
    assert not (tmp_path / "a.h5").exists()


def test_a_cache_that_cannot_be_made_is_named(program: Program, tmp_path: Path) -> None:
    """A file stands where the folder should be."""
    (tmp_path / "file").write_text("")
    ended = program("ddp", "--case", "1gpu-compile", "--compile-cache", tmp_path / "file")
    assert ended.returncode == 2, ended
    assert "--compile-cache" in ended.stderr and len(ended.stderr.splitlines()) == 1


def test_a_compiler_that_fails_is_a_failed_row(program: Program, tmp_path: Path) -> None:
    """The other rows run; the reason names the block and the log, which holds the output."""
    capture = tmp_path / "capture.py"
    capture.write_text("import sys\nprint('it broke')\nsys.exit(1)\n")
    ended = program(
        "ddp", "--case", "1gpu-compile", "--case", "1gpu", *SHORT, "--compile-cache",
        tmp_path / "c", "--out", tmp_path / "a.h5", TRAINSUITE_CAPTURE=str(capture),
    )
    assert ended.returncode == 1, ended
    with h5py.File(tmp_path / "a.h5") as file:
        assert file["ddp/tiny-1gpu/0"].attrs["status"] == "ok"
        row = file["ddp/tiny-1gpu-compile/0"].attrs
        assert row["status"] == "failed"
        assert "it broke" in row["reason"]
        log = Path(row["reason"].split()[-1])
        assert "it broke" in log.read_text()


@pytest.mark.parametrize(("suite", "case", "ranks"),
                         [("compile", "compile-sdpa", 1), ("ddp", "plain-compile", 2)])
def test_a_stop_does_not_wait_for_the_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suite: str, case: str, ranks: int
) -> None:
    """It would take minutes: the row is one that was stopped, and the compiler ends too."""
    capture = tmp_path / "capture.py"
    capture.write_text("import os, pathlib, time\n"
                       f"pathlib.Path('{tmp_path}/compiler').write_text(str(os.getpid()))\n"
                       "time.sleep(3600)\n")
    monkeypatch.setenv("TRAINSUITE_CAPTURE", str(capture))
    out, compiler = tmp_path / "x.h5", tmp_path / "compiler"
    run = Running(tmp_path, suite, "--size", "tiny", "--case", case, "--compile-cache",
                  tmp_path / "c", "--time-limit", "3000", "--out", out, ranks=ranks)
    run.wait_for(lambda: compiler.exists() and compiler.read_text())
    run.send(signal.SIGTERM, ranks - 1)
    assert run.end() == 143, run.said()
    with h5py.File(out) as file:
        row = file[f"{suite}/tiny-{case}/0"].attrs
        assert (row["status"], row["stopped"]) == ("skipped", 1), row["reason"]
        assert "did not leave" not in row["reason"]
    Running.wait_until_gone(int(compiler.read_text()))
    assert list((tmp_path / "c").glob("making-*")) == []
