"""Sentences about hardware, links and versions, from what a file records."""

import pytest
from report_samples import ddp_case, make_file

import report_machine
import results
from report_costs import Costing
from report_read import rows_of
from report_suite import Suite


def links(*kinds: str) -> list[dict]:
    return [{"host": "h", "gpu_a": 0, "gpu_b": number + 1, "link": kind}
            for number, kind in enumerate(kinds)]


@pytest.mark.parametrize("kinds, sentence", [
    (("PHB",) * 6, "Every GPU pair PHB (through the host bridge), no NVLink"),
    (("NV18",) * 6, "Every GPU pair NV18 (NVLink)"),
    (("NV4", "SYS", "SYS"), "2 of 3 GPU pairs SYS (across CPU sockets), 1 of 3 GPU pairs NV4 "
                            "(NVLink)"),
    (("PIX", "SYS", "SYS"), "2 of 3 GPU pairs SYS (across CPU sockets), 1 of 3 GPU pairs PIX "
                            "(through one PCIe switch), no NVLink"),
    ((), ""),
])
def test_topology_in_words(kinds: tuple[str, ...], sentence: str) -> None:
    assert report_machine.topology_sentence(links(*kinds)) == sentence


def suite_of(tmp_path, **of_run) -> Suite:
    path = make_file(tmp_path / "a.h5", ddp_case("plain", 0.1), **of_run)
    return Suite("ddp", rows_of(results.load(path)), Costing(None, "2026-10-29"), [], [path])


def test_hardware_names_nominal_gb_and_usable_gib(tmp_path) -> None:
    sentences = report_machine.hardware(suite_of(tmp_path))
    assert sentences[0] == "node1: 2x H200 141 GB (139.8 GiB usable), CPU EPYC, 64 cores, " \
                           "256 GiB RAM, 6.1"
    assert sentences[1] == "How its GPUs are linked is not recorded in the file"


def test_recorded_links_make_the_sentence_and_the_caveat(tmp_path) -> None:
    import report_keep_in_mind

    suite = suite_of(tmp_path)
    suite.rows[0].run.topology = links("PHB")
    assert report_machine.hardware(suite)[1] == \
        "Every GPU pair PHB (through the host bridge), no NVLink"
    assert list(report_keep_in_mind.link_of_result(suite)) == [
        "A result over PCIe: machines with NVLink behave differently"]
    suite.rows[0].run.topology = links("NV18")
    assert "over NVLink" in list(report_keep_in_mind.link_of_result(suite))[0]


def test_software_names_versions_and_commit(tmp_path) -> None:
    assert report_machine.software(suite_of(tmp_path, git_dirty=True)) == [
        "trainsuite: trainsuite 0.1.0, torch 2.11.0+cu130, commit 0123456789ab with local changes"]


def test_method_names_shapes_and_steps(tmp_path) -> None:
    sentences = report_machine.method(suite_of(tmp_path))
    assert "vocabulary 50,304, random tokens, sequence 1,024, micro-batch 8 a rank" in sentences[0]
    assert "6 steps after 2 of warm-up" in sentences[1]
