"""Every name that the program writes, of every suite, is in docs/schema.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import h5py
import pytest

SCHEMA = Path(__file__).resolve().parents[2] / "docs" / "schema.md"
ENVIRONMENT = "env_"  # then the variable's name
RUNS = {
    "ddp": ("ddp", "--case", "plain", "--steps", "2", "--warmup", "1"),
    "finetune": ("finetune", "--case", "qlora-4x4", "--steps", "2", "--train-examples", "16",
                 "--held-out", "2"),
    "compile": ("compile", "--case", "eager-sdpa", "--steps", "2", "--warmup", "1"),
    "ceilings": ("ceilings", "--pairs", "--case", "pairs", "--case", "all-reduce", "--case",
                 "matmul-fp32", "--steps", "2", "--warmup", "1"),
}


def names_in(path: Path) -> Iterator[str]:
    """Attributes, datasets and columns of tables, with the object that holds them."""
    found: list[str] = []

    def visit(name: str, item: h5py.Group | h5py.Dataset) -> None:
        found.extend(f"{name}@{key}" for key in item.attrs)
        if isinstance(item, h5py.Dataset):
            found.append(name)
            found.extend(f"{name}.{column}" for column in item.dtype.names or ())

    with h5py.File(path) as file:
        visit("", file)
        file.visititems(visit)
    yield from found


def documented(flags: str) -> set[str]:
    """What stands in backticks in schema.md, and the flags that are stored under their names."""
    text = re.sub(r"```.*?```", "", SCHEMA.read_text(encoding="utf-8"), flags=re.DOTALL)
    named = set(re.findall(r"[a-z0-9_]+", " ".join(re.findall(r"`([^`\n]+)`", text))))
    return named | {flag.replace("-", "_") for flag in re.findall(r"--([a-z0-9-]+)", flags)}


@pytest.mark.parametrize("suite", RUNS)
def test_every_name_is_documented(program, tmp_path: Path, suite: str) -> None:
    path = tmp_path / "a.h5"
    done = program(*RUNS[suite], "--out", path, ranks=1 if suite == "compile" else 2, timeout=280)
    assert done.returncode == 0, done.stderr + done.stdout
    known = documented(program("--help").stdout)
    wanted = list(names_in(path))
    assert len(wanted) > 100 and any(name.startswith(f"{suite}/") for name in wanted)
    missing = [name for name in wanted if (last := re.split(r"[@./]", name)[-1]) not in known
               and not last.startswith(ENVIRONMENT)]
    assert not missing
