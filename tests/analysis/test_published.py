"""Every row of the shipped published results, its printed cells, and what is refused."""

import copy
import datetime
import math
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import published
from costs import rounded
from results_records import ResultError

EXAMPLE = Path(published.__file__).parent / "examples" / "published.toml"
COST_CELLS = {"finetune": slice(8, 10), "ddp": slice(4, 6), "compile": slice(6, 8)}


def printed_rows() -> list[tuple[str, list]]:
    """(suite, cells) of the file itself, in order."""
    document = tomllib.loads(EXAMPLE.read_text(encoding="utf-8"))
    return [(suite, cells) for suite in COST_CELLS for cells in document[suite]["rows"]]


def changed(tmp_path: Path, old: str, new: str) -> Path:
    """The example with one place changed."""
    text = EXAMPLE.read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / "published.toml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return path


def test_every_cost_cell_comes_out_as_printed() -> None:
    compared = 0
    rows = published.rows(EXAMPLE)
    assert len(rows) == len(printed_rows()) == 32
    for row, (suite, cells) in zip(rows, printed_rows()):
        assert row.suite == suite
        if row.status == "oom":
            assert row.costs is None and cells[-1] in ("OOM", "out of memory")
            continue
        cost_cells = cells[COST_CELLS[suite]]
        assert [row.costs.run_day, row.costs.today] == cost_cells, row.case
        assert [float(text) for text in row.costs.texts()] == cost_cells, row.case
        compared += 2
    assert compared == 54


def test_speed_ups_come_out_as_printed_on_their_own_base() -> None:
    rows = [row for row in published.rows(EXAMPLE) if row.suite == "ddp"]
    assert len(rows) == 10
    for row in rows:
        own, plain = rounded(row.speed_up_own_base, 2), rounded(row.speed_up_plain_base, 2)
        if row.case == "355m-both":  # printed on the plain base
            assert (own, plain, row.printed_speed_up) == (3.55, 3.66, 3.66)
        else:
            assert own == row.printed_speed_up, row.case


def test_rows_name_work_units_and_status() -> None:
    rows = {(row.suite, row.case, row.gpu): row for row in published.rows(EXAMPLE)}
    lora = rows["finetune", "1.5b-lora-4x4", "L40S"]
    assert (lora.peak, lora.peak_unit, lora.peak_bytes) == (14.5, "GiB", 14.5 * 2**30)
    assert (lora.train_tokens, lora.loss_before, lora.loss_after) == (753_486, 1.102, 1.058)
    assert (lora.trainable_parameters, lora.micro_batch, lora.accumulate) == (18.5e6, 4, 4)
    naive = rows["compile", "468m-compile-naive", "H100"]
    assert (naive.peak_unit, naive.peak_bytes, naive.step_seconds) == ("GB", 39.1e9, 0.169)
    assert rows["compile", "468m-eager-naive", "L40S"].status == "oom"
    one, four = (rows["ddp", f"124m-{name}", "RTX A6000"] for name in ("1gpu", "bf16"))
    assert (one.gpus, one.machine_gpus, four.gpus) == (1, 4, 4)
    assert one.run_price.usd_for(1) == pytest.approx(0.66)
    assert one.run_price.is_share(1) and not four.run_price.is_share(4)


@pytest.mark.parametrize("old, new, words", [
    ('4970, 14.5, 1.102', '4970, "14.5 GB", 1.102',
     "[finetune] row 2: peak GiB is '14.5 GB'; give the number in the column's own unit"),
    ("14.5, 1.102", "14.5, nan", "[finetune] row 2: loss before is nan, not a finite number"),
    ("usd_per_hour = 1.14", "usd_per_hour = -1.14",
     "price 1: usd_per_hour is -1.14; a price is a finite number above 0"),
    ('gpu = "RTX A6000"\nmachine_gpus = 4', 'gpu = "RTX 6000"\nmachine_gpus = 4',
     "price 3: unknown GPU 'RTX 6000'; did you mean 'RTX A6000'?"),
    ('["H100",      "eager + sdpa', '["H1000",      "eager + sdpa',
     "[compile] row 13: unknown GPU 'H1000'; did you mean 'H100'?"),
    ('"4 GPUs, plain DDP"', '"4 GPUs, fast DDP"', "[ddp] row 2: variant '4 GPUs, fast DDP'"),
    ("64912, 1.00,  2.82,  2.44]", "64912, 1.00,  2.82]",
     "[ddp] row 1: the row ends before its cell '$ per 1B tokens today'"),
    ("64912, 1.00,  2.82,  2.44]", "64912, 1.00,  2.82,  2.44, 7]", "1 cells too many: [7]"),
    ("[page]", "[pages]", "has no [page] with prices_read_utc"),
    ("[page]", "[page", "is not TOML"),
])
def test_bad_files_get_one_sentence(tmp_path: Path, old: str, new: str, words: str) -> None:
    path = changed(tmp_path, old, new)
    with pytest.raises(ResultError) as error:
        published.read(path)
    assert words in str(error.value) and str(path) in str(error.value)
    assert "\n" not in str(error.value)


ODD = ("", 0, -1, True, math.nan, math.inf, 10**400, [1], {"a": 1}, datetime.date(2026, 1, 1))


def places(node: object, path: tuple = ()) -> Iterator[tuple]:
    """Where the values of a document lie: every table, of a list its first three entries."""
    if path:
        yield path
    keys = node if isinstance(node, dict) else range(min(3, len(node))) \
        if isinstance(node, list) else ()
    for key in keys:
        yield from places(node[key], (*path, key))


def with_value(document: dict, path: tuple, value: object) -> dict:
    """A copy with one value replaced."""
    made = copy.deepcopy(document)
    place = made
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return made


def test_no_value_anywhere_ends_in_anything_but_a_sentence(monkeypatch) -> None:
    document = tomllib.loads(EXAMPLE.read_text(encoding="utf-8"))
    refused = 0
    for path in places(document):
        for value in ODD:
            changed_document = with_value(document, path, value)
            monkeypatch.setattr(published, "read_toml", lambda _, found=changed_document: found)
            try:
                for row in published.rows("x.toml"):
                    assert row.status == "oom" or len(row.costs.texts()) == 2
            except ResultError as error:
                refused += 1
                assert str(error).startswith("x.toml") and "\n" not in str(error)
    assert refused > 300
