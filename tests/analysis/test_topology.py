"""Links between GPUs: from the file to the page's sentence, and out of a redacted file."""

from pathlib import Path

import pytest
from report_samples import ddp_case, make_file, run_record

import redact
import report_machine
import results
from report_costs import Costing
from report_read import rows_of
from report_suite import Suite


def file_with(path: Path, *kinds: str) -> str:
    """A file of one row whose GPU 0 is linked to others in these ways."""
    run = run_record(["124m-plain"])
    run.topology = [results.GpuLink("node1", 0, number + 1, kind)
                    for number, kind in enumerate(kinds)]
    writer = results.ResultWriter(str(path), run)
    writer.append(ddp_case("plain", 0.1))
    writer.finish()
    return str(path)


@pytest.mark.parametrize("kinds, sentence", [
    (("PHB", "PHB"), "Every GPU pair PHB (through the host bridge), no NVLink"),
    (("NV18",), "Every GPU pair NV18 (NVLink)"),
])
def test_the_page_says_what_the_file_holds(tmp_path: Path, kinds: tuple[str, ...],
                                           sentence: str) -> None:
    path = file_with(tmp_path / "a.h5", *kinds)
    assert [one["link"] for one in results.load(path).runs[0].topology] == list(kinds)
    suite = Suite("ddp", rows_of(results.load(path)), Costing(None, "2026-10-29"), [], [path])
    assert report_machine.hardware(suite)[1] == sentence


def test_without_links_the_table_is_absent(tmp_path: Path) -> None:
    path = make_file(tmp_path / "a.h5", ddp_case("plain", 0.1))
    assert results.load(path).runs[0].topology == []


def test_redaction_keeps_links_and_hides_hosts(tmp_path: Path) -> None:
    out = tmp_path / "clean.h5"
    redact.copy(file_with(tmp_path / "a.h5", "NV18"), str(out))
    run = results.load(str(out)).runs[0]
    assert [(one["gpu_a"], one["gpu_b"], one["link"]) for one in run.topology] == [(0, 1, "NV18")]
    assert b"node1" not in out.read_bytes()
    assert run.topology[0]["host"] == run.hosts[0]["host"]
