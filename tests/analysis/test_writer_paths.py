"""Where the Python writer puts a file, and what it says when it cannot."""

import re
from pathlib import Path

import pytest

import results
from results_durable import create_exclusively, replace_durably


def test_a_name_without_room_for_its_temporary_is_refused(tmp_path: Path) -> None:
    run = results.RunRecord("2026-01-02T03:04:05Z")
    results.ResultWriter(str(tmp_path / ("n" * 200)), run).finish()
    with pytest.raises(results.ResultError, match="name is too long.*give a shorter one"):
        results.check_creatable(str(tmp_path / ("n" * 250)))
    assert [len(path.name) for path in tmp_path.iterdir()] == [200]


@pytest.mark.parametrize("folder", ["/proc/self", "/sys"])
def test_a_folder_where_not_even_root_writes_is_refused(folder: str) -> None:
    with pytest.raises(results.ResultError, match=f"'{folder}' is not writable"):
        results.check_creatable(f"{folder}/a.h5")


def test_a_file_that_cannot_be_created_keeps_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "no" / "a.h5")
    with pytest.raises(results.ResultError, match=f"cannot create {path}: .*nothing is recorded"):
        create_exclusively(path, b"1")
    with pytest.raises(results.ResultError, match=f"cannot write {path}: .*before are kept"):
        replace_durably(path, b"1")


def test_slurm_ids_lose_what_no_name_should_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "../a b/\n7")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "é/4_.-Z")
    path = results.default_path("ddp", str(tmp_path))
    assert re.fullmatch(r"ddp-\d{8}T\d{6}Z-\.\.ab7_4_\.-Z\.h5", Path(path).name), path
    assert Path(path).parent == tmp_path
