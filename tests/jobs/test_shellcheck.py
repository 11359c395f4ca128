"""Every shell script of the project passes shellcheck."""

from pathlib import Path

from conftest import PROJECT, run


def is_shell(path: Path) -> bool:
    """By name, or by its first line."""
    if path.suffix in {".sh", ".sbatch"}:
        return True
    with path.open("rb") as file:
        first = file.readline(100)
    return first.startswith(b"#!") and (b"bash" in first or first.rstrip().endswith(b"sh"))


def test_all_scripts_pass_shellcheck() -> None:
    folders = [".ci", "jobs", "tests", "cmake", "suites", "analysis", "docs"]
    scripts = [
        str(path.relative_to(PROJECT))
        for folder in folders
        for path in sorted((PROJECT / folder).rglob("*"))
        if path.is_file() and is_shell(path)
    ]
    assert {".ci/run", "jobs/run.sh", "jobs/ddp.sbatch", "tests/gpu/run.sh"} <= set(scripts)
    done = run(["shellcheck", "--external-sources", *scripts], cwd=PROJECT, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
