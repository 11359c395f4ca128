"""Every wrong command line: exit status 2 and one line that names the fault and the fix."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Program

RANKS = (1, 2, 4)

# Flags, and what the one line must hold.
WRONG = {
    "unknown suite": (["dpd"], ["'dpd'", "did you mean 'ddp'?", "Suites: ddp"]),
    "no suite": ([], ["no suite", "ddp"]),
    "no steps": (["ddp", "--steps", "0"], ["--steps '0'", "whole number from 1"]),
    "case": (["ddp", "--case", "nothing"], ["no case matches 'nothing'", "plain", "both"]),
    "case, near": (["ddp", "--case", "palin"], ["'palin'", "did you mean 'plain'?"]),
    "size": (["ddp", "--size", "999m"], ["unknown size '999m'", "124m, 355m, tiny"]),
    "link on a CPU": (["ddp", "--link", "shm"], ["--link shm", "CPU"]),
    "link over MPI": (["ddp", "--link", "socket", "--comm", "mpi"], ["--link socket", "MPI"]),
    "NCCL on a CPU": (["ddp", "--comm", "nccl", "--device", "cpu"], ["--comm nccl", "--comm mpi"]),
    "no GPU": (["ddp", "--device", "cuda"], ["--device cuda", "CUDA_VISIBLE_DEVICES"]),
    "flag": (["ddp", "--stepz", "3"], ["'--stepz'", "did you mean '--steps'?"]),
    "prefix": (["ddp", "--step", "3"], ["'--step'", "did you mean '--steps'?"]),
    "value": (["ddp", "--device", "gpu"], ["'gpu'", "cuda"]),
    "junk after a number": (["ddp", "--warmup", "3s"], ["--warmup '3s'", "whole number"]),
    "twice": (["ddp", "--seed", "1", "--seed", "2"], ["--seed is given twice"]),
    "surplus": (["ddp", "124m-plain"], ["unexpected '124m-plain'", "quote"]),
    "case of another size": (
        ["ddp", "--size", "tiny", "--case", "124m-plain"],
        ["'124m-plain'", "--size tiny", "add --size 124m"],
    ),
    "unknown interface": (["ddp", "--interface", "no0"], ["--interface no0", "it has lo"]),
    "plan as JSON": (["ddp", "--plan", "--json"], ["--plan", "leave --json out"]),
    "memory limit on a CPU": (["ddp", "--memory-limit", "32"], ["--memory-limit", "CPU"]),
}


def expect_one_line(ended: subprocess.CompletedProcess[str], parts: list[str]) -> None:
    """Exit status 2, nothing on standard output, one line of ours that holds all parts."""
    assert ended.returncode == 2, ended
    assert ended.stdout == "", ended.stdout
    lines = ended.stderr.splitlines()
    assert len(lines) == 1, ended.stderr
    assert lines[0].startswith("trainsuite: "), lines[0]
    for part in parts:
        assert part in lines[0], f"{part!r} is not in: {lines[0]}"


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("fault", WRONG)
def test_wrong_command_line(program: Program, fault: str, ranks: int) -> None:
    """One line, however many ranks there are."""
    flags, parts = WRONG[fault]
    expect_one_line(program(*flags, ranks=ranks), parts)


@pytest.mark.parametrize("ranks", RANKS)
def test_no_such_gpu(program: Program, ranks: int) -> None:
    """A list that names no GPU at all: as if there were none."""
    ended = program("ddp", "--device", "cuda", ranks=ranks, CUDA_VISIBLE_DEVICES="-1")
    expect_one_line(ended, ["--device cuda", "GPU"])


@pytest.mark.parametrize("ranks", RANKS)
def test_output_in_a_missing_folder(program: Program, tmp_path: Path, ranks: int) -> None:
    """The folder is named and not made."""
    folder = tmp_path / "missing"
    expect_one_line(program("ddp", "--out", folder / "x.h5", ranks=ranks), [str(folder), "exist"])
    assert not folder.exists()


@pytest.mark.parametrize("ranks", RANKS)
def test_output_below_a_file(program: Program, tmp_path: Path, ranks: int) -> None:
    """What should be a folder is a file."""
    file = tmp_path / "file"
    file.write_text("kept", encoding="utf-8")
    expect_one_line(program("ddp", "--out", file / "x.h5", ranks=ranks), [str(file)])
    assert file.read_text(encoding="utf-8") == "kept"


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("folder", ["/proc/self", "/sys"])
def test_output_in_a_read_only_folder(program: Program, folder: str, ranks: int) -> None:
    """Folders in which not even root makes files; with /sys only the try itself tells."""
    expect_one_line(program("ddp", "--out", f"{folder}/x.h5", ranks=ranks), [folder])


@pytest.mark.parametrize("ranks", RANKS)
def test_output_with_too_long_a_name(program: Program, tmp_path: Path, ranks: int) -> None:
    """The name itself could be, the longer one it is first written to could not."""
    expect_one_line(program("ddp", "--out", "n" * 245, ranks=ranks), ["too long", "shorter"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ranks", RANKS)
def test_output_that_exists(program: Program, tmp_path: Path, ranks: int) -> None:
    """It is left as it is."""
    file = tmp_path / "x.h5"
    file.write_bytes(b"results of last night")
    expect_one_line(program("ddp", "--out", file, ranks=ranks), [str(file), "exists"])
    assert file.read_bytes() == b"results of last night"


@pytest.mark.parametrize("ranks", RANKS)
def test_output_that_is_a_folder(program: Program, tmp_path: Path, ranks: int) -> None:
    """A folder is no file name."""
    expect_one_line(program("ddp", "--out", tmp_path, ranks=ranks), [str(tmp_path)])


# Flags that name something to read; it is made as a FIFO without a writer, or as a folder.
READ = {
    "resume": ["ddp", "--resume", "--out", "{}"],
    "ceilings": ["ddp", "--plan", "--ceilings", "{}"],
    "data": ["finetune", "--plan", "--data", "{}"],
    "config": ["finetune", "--plan", "--model", "{}/config.json"],
    "weights": ["finetune", "--case", "full-4x4", "--steps", "1", "--model", "{}/model.safetensors"],
}
CONFIG = """{"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 8, "intermediate_size": 8,
"num_attention_heads": 1, "vocab_size": 512, "rms_norm_eps": 1e-6}"""


@pytest.mark.parametrize("make", (os.mkfifo, os.mkdir))
@pytest.mark.parametrize("what", READ)
def test_what_is_no_file_is_not_waited_for(
    program: Program, tmp_path: Path, what: str, make: Callable[[Path], None]
) -> None:
    flags = [flag.replace("{}", str(tmp_path / "x")) for flag in READ[what]]
    target = Path(flags[-1])
    target.parent.mkdir(exist_ok=True)
    if what == "weights":
        (target.parent / "config.json").write_text(CONFIG)
    make(target)
    if what in ("config", "weights"):
        flags[-1] = str(target.parent)
    ended = program(*flags)
    assert ended.returncode in (1, 2), ended
    lines = ended.stderr.splitlines()
    assert len(lines) == 1 and str(target) in lines[0], ended.stderr


def test_wrong_input_leaves_nothing_behind(program: Program, tmp_path: Path) -> None:
    """Not even the folder for results."""
    program("ddp", "--steps", "0")
    program("ddp", "--case", "nothing", ranks=2)
    assert list(tmp_path.iterdir()) == []
