"""trainsuite-export: exact round trips, units in headings, and files with nothing to hide."""

import contextlib
import copy
import csv
import io
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

import export
import export_json
import published
import redact
import results
import results_rewrite
from made_files import case, repeats, run, write
from samples import comparable, tree, write_awkward

REPORT = Path(export.__file__).with_name("report.py")
HOSTS = ("gpu17.cluster.example.org", "vm")
UUID = "GPU-3eefa0dd-c293-62fa-0582-f96620f24f29"
SECRETS = ("gpu17", "cluster.example", "vm", "3eefa0dd", "/scratch", "alice", "results/alice",
           "4711042", "10.1.2.3", "aa:bb:cc:dd:ee:ff", "a.b@example.org", "secret-model")


def exported(*arguments: object) -> subprocess.CompletedProcess:
    """What trainsuite-export does with these arguments, in this process."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        status = export.main([str(argument) for argument in arguments])
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), errors.getvalue())


def everything(file: results.Results) -> list:
    """All that a loaded file says, comparable bit by bit."""
    def series(named: dict) -> dict:
        return {name: (one.unit, one.values.dtype, comparable(one.values),
                       np.asarray(one.ranks).tolist()) for name, one in named.items()}

    def values(named: dict) -> dict:
        return {name: (type(value), repr(value)) for name, value in named.items()}

    return [file.path, file.complete,
            [(vars(one) | {"attributes": values(one.attributes), "gpus": repr(one.gpus),
                           "networks": repr(one.networks)}) for one in file.runs],
            [(one.label, one.run, one.status, one.reason, values(one.settings),
              values(one.results), values(one.checks), series(one.series), series(one.facts),
              series(one.telemetry),
              one.warmup.tolist(), one.ranks.tolist(), one.ranks.dtype) for one in file.cases]]


def awkward(path: Path) -> str:
    """Unequal ranks, NaN, infinities, whole numbers beyond float64, texts of all kinds."""
    write_awkward(str(path))
    file = results.load(str(path))
    assert any(np.isnan(one.values).any() for each in file.cases for one in each.series.values()
               if one.values.dtype.kind == "f")
    return str(path)


def test_json_gives_back_every_bit(tmp_path: Path) -> None:
    odd = case("124m-odd", seconds=(0.1 + 0.2, 1e-300), learning_rate=float("inf"))
    odd.ranks[0].series[2].values = [float("inf"), float("-inf"), float("nan"), -0.0]
    odd.settings |= {"big": 2**63 - 1, "small": 5e-324}
    paths = [awkward(tmp_path / "a.h5"), write(tmp_path / "b.h5", [odd])]
    not_utf8(paths[1], "ddp/124m-odd/0")
    done = exported(*paths, "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    for path, back in zip(paths, export_json.loads(done.stdout), strict=True):
        assert everything(back) == everything(results.load(path))


def not_utf8(path: str, place: str) -> None:
    """Puts bytes there that are no UTF-8, as a command line may hold."""
    with h5py.File(path, "r+") as file:
        file[place].attrs.create("unsound", b"caf\xe9", dtype=h5py.string_dtype("utf-8"))
    assert results.load(path).cases[-1].value("unsound") == "caf\udce9"


def read_csv(text: str) -> list[dict[str, str]]:
    """The lines as dictionaries."""
    return list(csv.DictReader(io.StringIO(text)))


def test_tidy_steps_give_back_every_bit(tmp_path: Path) -> None:
    odd = case("124m-odd", seconds=(0.1 + 0.2, 1.1))
    odd.ranks[1].series[2].values = [float("inf"), 5e-324, float("nan"), -0.0]
    for path in (awkward(tmp_path / "a.h5"), write(tmp_path / "b.h5", [odd])):
        lines = read_csv(exported(path, "--format", "steps").stdout)
        compared = 0
        for one in results.load(path).cases:
            mine = [line for line in lines if (line["case"], line["repeat"]) ==
                    (one.name, str(one.repeat))]
            for name, series in one.series.items():
                head = name if series.unit == "1" else f"{name} [{series.unit}]"
                for row, rank in enumerate(one.ranks):
                    cells = [line[head] for line in mine if line["rank"] == str(rank)]
                    whole = series.values.dtype.kind == "i"
                    back = [int(text) if whole else float(text or "nan") for text in
                            cells[:series.values.shape[1]]]
                    assert comparable(np.array(back, series.values.dtype)) == \
                        comparable(series.values[row])
                    assert not any(cells[series.values.shape[1]:])
                    compared += len(back)
            warm = [line["warmup"] == "true" for line in mine if line["rank"] == "0"]
            assert warm == one.warmup.tolist()[:len(warm)]
        assert compared > 20


def test_rows_hold_exact_figures_with_units(tmp_path: Path) -> None:
    a = write(tmp_path / "a.h5", repeats((1 / 3, 0.7), host_launch_seconds=1 / 7))
    oom = write(tmp_path / "b.h5", [case("124m-both", status="oom")])
    lines = read_csv(exported(a, oom).stdout)
    assert [line["status"] for line in lines] == ["ok", "ok", "oom"]
    for line, one in zip(lines, results.load(a).cases):
        assert float(line["tokens_per_second [token/s]"]) == one.tokens_per_second()
        assert float(line["step_seconds_p90 [s]"]) == one.p90("step_seconds")
        assert line["peak_allocated_bytes [byte]"] == str(2 << 30)
        assert float(line["host_launch_seconds [s]"]) == 1 / 7
        assert line["vocabulary"] == "50304" and line["dry_run"] == "false"
        assert (line["gpus"], line["hosts"]) == ("1x H200", "node-a")
        assert line["run_torch_version"] == "2.11.0+cu130"
    assert lines[2]["tokens_per_second [token/s]"] == ""
    assert lines[2]["reason"] == "rank 0: out of memory"


def test_markdown_is_one_table_with_units(tmp_path: Path) -> None:
    broken = case("124m-both", status="oom")
    broken.reason = "a | b\nc"
    a = write(tmp_path / "a.h5", [case(seconds=[0.25]), broken], run(planned=["124m-gone"]))
    done = exported(a, "-o", tmp_path / "a.md")
    assert (done.returncode, done.stdout) == (0, "")
    lines = (tmp_path / "a.md").read_text().splitlines()
    assert lines[0].count("|") == lines[1].count("|") == 13
    assert "step, ms (median)" in lines[0] and "peak allocated, GiB" in lines[0]
    assert "| 2,048 | 250.00 | 250.00..250.00 | 0.00 | 2.000 | 3.000 | 9.00 |" in lines[3]
    assert "oom: a \\| b c" in lines[2]
    assert any("is not complete: no result of 124m-gone" in line for line in lines)


def secretive(path: Path) -> str:
    """A file that repeats hosts, paths, users and jobs wherever programs write them."""
    invocation = run(1, HOSTS, env_SLURM_JOB_ID="4711042", env_SLURM_ARRAY_TASK_ID="3",
                     env_SLURM_NTASKS="2", env_USER="alice", env_CUDA_VISIBLE_DEVICES=UUID,
                     slurm_job_id="4711042", git_commit="0123abcd",
                     env_NCCL_SOCKET_IFNAME="10.1.2.3")
    invocation.argv = ["/scratch/alice/bin/trainsuite", "ddp", "--case", "plain", "--data",
                       "secret-model", "--out=results/alice/x.h5", "--model", "/scratch/m"]
    invocation.ranks[0].uuid = UUID
    good = case(seconds=(1.0, 1.0), out="results/alice/x.h5", model="/scratch/m", device="cuda",
                kernels="attention=flash")
    good.checks = {"note": "compared on gpu17 with VM, see /scratch/alice/log.txt"}
    good.ranks[0].facts["where"] = "gpu17.cluster.example.org"
    bad = case("124m-both", seconds=(1.0, 1.0), status="oom")
    bad.reason = f"rank 1 (vm, {UUID}): out of memory; job 4711042 of alice wrote " \
        "results/alice/x.h5 and /scratch/alice/core.1; a.b@example.org, aa:bb:cc:dd:ee:ff, 8 GiB"
    return write(path, [good, bad], invocation)


def hidden(content: str | bytes) -> None:
    """No secret is left, in any case."""
    text = content.decode("latin-1") if isinstance(content, bytes) else content
    words = text.lower()
    for secret in SECRETS:
        if secret == "vm":  # too short to look for in bytes of numbers
            assert not any(f"{a}vm{b}" in words for a in " (\0" for b in ", )\0")
        else:
            assert secret not in words, secret


def test_a_redacted_file_hides_and_keeps(tmp_path: Path) -> None:
    path, out = secretive(tmp_path / "a.h5"), tmp_path / "clean.h5"
    raw = Path(path).read_bytes()
    with pytest.raises(AssertionError):
        hidden(raw)
    done = exported(path, "--redact", "-o", out)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    hidden(out.read_bytes())
    before, after = results.load(path), results.load(str(out))
    (invocation,) = after.runs
    assert [one["host"] for one in invocation.ranks] == ["host-1", "host-2"]
    assert [one["host"] for one in invocation.hosts] == ["host-1", "host-2"]
    assert invocation.argv == ["trainsuite", "ddp", "--case", "plain", "--data", "<path-2>",
                               "--out=<path-3>.h5", "--model", "<path-4>"]
    assert invocation.attributes["git_commit"] == "0123abcd"
    assert invocation.attributes["env_SLURM_NTASKS"] == "2"
    assert [one["device_name"] for one in invocation.ranks] == ["NVIDIA H200"] * 2
    oom = after.case("124m-both")
    assert oom.reason == "rank 1 (host-2, GPU-1): out of memory; job <job-1> of <user-1> wrote " \
        "<path-3> and <path-5>; <address>, <address>, 8 GiB"
    good = after.case("124m-plain")
    assert good.value("out") == "<path-3>.h5" and good.value("kernels") == "attention=flash"
    assert good.value("device") == "cuda" and good.tokens_per_second() == 1024.0
    for name, series in before.case("124m-plain").series.items():
        assert comparable(good.series[name].values) == comparable(series.values)


@pytest.mark.parametrize("form", ["json", "csv", "steps", "markdown"])
def test_redacted_texts_hide(tmp_path: Path, form: str) -> None:
    path = secretive(tmp_path / "alice.h5")
    text = exported(path, "--format", form, "--redact").stdout
    assert len(text) > 100 and "file-1.h5" in text
    hidden(text.replace(str(tmp_path).lower(), "/scratch"))


def test_a_page_of_a_redacted_file_hides(tmp_path: Path) -> None:
    out, page = tmp_path / "clean.h5", tmp_path / "page.html"
    redact.copy(secretive(tmp_path / "a.h5"), str(out))
    done = subprocess.run([sys.executable, str(REPORT), str(out), "-o", str(page)],
                          capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    hidden(page.read_text(encoding="utf-8").replace(str(tmp_path), ""))


def test_one_thing_has_one_name_over_files(tmp_path: Path) -> None:
    a = write(tmp_path / "a.h5", [case()], run(hosts=("x1", "x2")))
    b = write(tmp_path / "b.h5", [case()], run(hosts=("x2", "x3")))
    with redact.copies([a, b]) as paths:
        names = [[one["host"] for one in results.load(path).runs[0].hosts] for path in paths]
    assert names == [["host-1", "host-2"], ["host-2", "host-3"]]
    assert not any(Path(path).exists() for path in paths)


def test_rewriting_changes_nothing_by_itself(tmp_path: Path, monkeypatch) -> None:
    """Parts that a killed run left included."""
    path = awkward(tmp_path / "a.h5")
    not_utf8(path, "ddp/tiny-größe/0")
    results_rewrite.rewrite(path, str(tmp_path / "b.h5"), lambda name, texts: texts)
    assert tree(str(tmp_path / "b.h5")) == tree(path)
    path = str(tmp_path / "c.h5")
    writer = results.ResultWriter(path, run())
    for repeat in range(9):
        if repeat == 8:
            monkeypatch.setattr("results_writer.SMALL_FILE_BYTES", 1)
        writer.append(case(repeat=repeat))
    assert (tmp_path / "c.h5.parts").is_dir()
    results_rewrite.rewrite(path, str(tmp_path / "d.h5"), lambda name, texts: texts)
    copied = results.load(str(tmp_path / "d.h5"))
    assert everything(results.load(path))[1:] == everything(copied)[1:]


def test_published_rows_as_csv(tmp_path: Path) -> None:
    example = Path(export.__file__).parent / "examples" / "published.toml"
    lines = read_csv(exported(example).stdout)
    assert len(lines) == len(published.rows(example)) == 32
    assert lines[0]["source"] == "published" and float(lines[0]["printed_run_day"]) == 0.066
    done = exported(example, "--format", "steps")
    assert done.returncode == 2 and "summary figures only" in done.stderr


def test_bad_input_is_one_sentence(tmp_path: Path) -> None:
    good = write(tmp_path / "a.h5", [case()])
    mixed = copy.deepcopy(case())
    mixed.ranks[0].series[0].unit = "ms"
    mixed_path = write(tmp_path / "mixed.h5", [mixed])
    (tmp_path / "half.h5").write_bytes(Path(good).read_bytes()[:700])
    example = Path(export.__file__).parent / "examples" / "published.toml"
    for arguments, words in (
            ([tmp_path / "half.h5"], "is a damaged HDF5 file"),
            ([mixed_path], "is in 'ms', not 's'; units are mixed"),
            ([good, "-o", good], "is never overwritten"),
            ([good, "-o", tmp_path / "no" / "x.csv"], "does not exist"),
            ([good, "--format", "h5"], "needs a new file"),
            ([good, "-o", tmp_path / "x.h5"], "use cp"),
            ([good, good, "--redact", "-o", tmp_path / "x.h5"], "copies one file, 2 given"),
            ([good, example], "have different columns")):
        done = exported(*arguments)
        assert (done.returncode, done.stdout) == (2, ""), arguments
        assert done.stderr.startswith("trainsuite-export: ") and done.stderr.count("\n") == 1
        assert words in done.stderr
    for text in ("hello", "[]", '{"format": "trainsuite-export", "version": 2}'):
        with pytest.raises(results.ResultError):
            export_json.loads(text)
