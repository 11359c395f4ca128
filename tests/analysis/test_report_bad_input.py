"""Inputs that make no page: one clear line each, exit 2."""

from pathlib import Path

import h5py
import pytest
from report_samples import PRICES, ddp_file, make_file, oom_case

import report


def damaged(path: Path) -> str:
    whole = Path(ddp_file(path)).read_bytes()
    path.write_bytes(whole[:len(whole) // 2])
    return str(path)


def other_schema(path: Path) -> str:
    with h5py.File(path, "w") as file:
        file.attrs["schema"] = "somebody else's"
    return str(path)


def mixed_units(path: Path) -> str:
    ddp_file(path)
    with h5py.File(path, "a") as file:
        file["ddp/124m-plain/0/step_seconds"].attrs["unit"] = "ms"
    return str(path)


def text_file(path: Path) -> str:
    path.write_text("hello", encoding="utf-8")
    return str(path)


def only_failures(path: Path) -> str:
    return make_file(path, oom_case("ddp", "124m-plain", "rank 1: out of memory"))


def no_case(path: Path) -> str:
    return make_file(path, planned=["124m-plain"], finish=False)


@pytest.mark.parametrize("make, words", [
    (text_file, "is not an HDF5 file"), (other_schema, "is not a trainsuite result file"),
    (damaged, "damaged HDF5 file"), (no_case, "holds no finished case"),
    (only_failures, "no case is ok"),
    (mixed_units, "step_seconds of ddp/124m-plain/0 is in 'ms', not 's'"),
    (lambda path: str(path), "No such file"),
])
def test_a_bad_file_gets_one_clear_line(tmp_path: Path, capsys, make, words: str) -> None:
    path = make(tmp_path / "bad.h5")
    assert report.main([path, "-o", str(tmp_path / "page.html")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("trainsuite-report: ") and said.count("\n") == 1
    assert "bad.h5" in said and words in said
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("arguments, words", [
    (("--prices", "BAD"), "is -1; a price is a finite number above 0"),
    (("--run-price", "0"), "--run-price 0"), (("--run-price", "cheap"), "--run-price cheap"),
    (("--today", "soon"), "--today soon: not a date"),
    (("--page", "BAD"), "unknown key 'price'"), (("-o", "/nowhere/page.html"), "cannot write"),
])
def test_a_bad_option_gets_one_clear_line(tmp_path: Path, capsys, arguments, words: str) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text(PRICES.replace("7.2", "-1"), encoding="utf-8")
    given = [str(bad) if word == "BAD" else word for word in arguments]
    path = ddp_file(tmp_path / "a.h5")
    assert report.main([path, "-o", str(tmp_path / "page.html"), *given]) == 2
    said = capsys.readouterr().err
    assert said.startswith("trainsuite-report: ") and said.count("\n") == 1
    assert words in said


def test_a_bad_flag_is_a_usage_error(tmp_path: Path, capsys) -> None:
    for arguments in (["--token", "5"], ["--tokens", "many"], ["--tokens", "-5"]):
        with pytest.raises(SystemExit) as stopped:
            report.main([ddp_file(tmp_path / f"{len(arguments[1])}.h5"), *arguments])
        assert stopped.value.code == 2
    assert "is not a number of tokens" in capsys.readouterr().err
