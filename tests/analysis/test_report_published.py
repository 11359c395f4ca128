"""The published tables, rendered from their file: every cell as printed."""

import re
import tomllib
from pathlib import Path

import pytest
from report_samples import PageReader

import report

EXAMPLE = Path(__file__).resolve().parents[2] / "analysis" / "examples" / "published.toml"
PRINTED = tomllib.loads(EXAMPLE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def html_text(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("page") / "page.html"
    assert report.main([str(EXAMPLE), "-o", str(path)]) == 0
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(html_text: str) -> PageReader:
    return PageReader(html_text)


def cells(page: PageReader, suite: str, *headings: str) -> list[tuple[str, ...]]:
    return list(zip(*(page.column(f"{suite}-table", heading) for heading in headings)))


def test_finetune_cells_come_out_as_printed(page: PageReader) -> None:
    found = cells(page, "finetune", "Method", "Micro-batch x accumulation",
                  "Trainable parameters (share)", "Train time, s", "Tokens/s", "Peak, GiB",
                  "Held-out loss, before to after", "Training, $, run day", "Training, $, today")
    assert len(found) == len(PRINTED["finetune"]["rows"]) == 6
    for row, printed in zip(found, PRINTED["finetune"]["rows"]):
        assert row[:2] == tuple(printed[:2])
        assert row[2].startswith(f"{printed[2]:,.1f}M (")
        if printed[3] == "out of memory":
            assert row[3:] == ("out of memory", "-", "-", "-", "-", "-")
            continue
        method, _, _, seconds, rate, peak, before, after, then, today = printed
        assert row[3:] == (f"{seconds}", f"{rate:,}", f"{peak}", f"{before:.3f} to {after:.3f}",
                           f"${then:.3f}", f"${today:.3f}"), method


def test_ddp_cells_come_out_as_printed(page: PageReader) -> None:
    found = cells(page, "ddp", "Model", "Variant", "Tokens/s",
                  "Speed-up over 1 GPU, same accumulation", "$ per 1B tokens, run day",
                  "$ per 1B tokens, today")
    assert len(found) == len(PRINTED["ddp"]["rows"]) == 10
    for row, printed in zip(found, PRINTED["ddp"]["rows"]):
        model, variant, rate, speed_up, then, today = printed
        expected = 3.55 if (model, variant) == ("355M", "4 GPUs, both") else speed_up
        assert row == (f"{model}, vocabulary not stated", variant, f"{rate:,}", f"{expected:.2f}x",
                       f"${then:.2f}", f"${today:.2f}")


def test_the_slip_is_shown_on_both_bases(page: PageReader) -> None:
    assert page.column("ddp-table", "Model")[-1].startswith("355M")
    assert page.column("ddp-table", "Variant")[-1] == "4 GPUs, both"
    assert page.column("ddp-table", "Speed-up over 1 GPU, same accumulation")[-1] == "3.55x"
    assert page.column("ddp-table", "Speed-up over 1 GPU")[-1] == "3.66x"
    assert "3.66x is on the plain base" in page.text


def test_compile_cells_come_out_as_printed(page: PageReader) -> None:
    found = cells(page, "compile", "GPU", "Setup", "Step, ms", "Tokens/s", "Peak, GB",
                  "First step, s", "M tokens per $, run day", "M tokens per $, today")
    assert len(found) == len(PRINTED["compile"]["rows"]) == 16
    for row, printed in zip(found, PRINTED["compile"]["rows"]):
        assert row[:2] == tuple(printed[:2])
        if printed[2] == "OOM":
            assert row[2:] == ("out of memory",) + ("-",) * 5
            continue
        _, _, step, rate, peak, first, then, today = printed
        assert row[2:] == (f"{step}", f"{rate:,}", f"{peak:.1f}", f"{first:.1f}", f"{then}",
                           f"{today}")


def test_hourly_prices_are_one_gpus_share(page: PageReader) -> None:
    hourly = page.column("compile-table", "$/hour, run day")
    assert hourly[::4] == ["$1.15", "$0.54", "$0.65", "$3.86"]
    assert "4 GPUs $2.64/h" not in page.text
    prices = page.tables["prices"]
    assert [row[:3] for row in prices if row[0] == "RTX A6000"][0] == ["RTX A6000", "$2.64", "4"]
    assert ["H100", "from $15.48", "4"] in [row[:3] for row in prices]


@pytest.mark.parametrize("suite, sentence", [
    ("finetune", "quantizing the base cost 0.042, 78% of the 0.054 that its fine-tune took off"),
    ("finetune", "LoRA peaked at 14.5 GiB at micro-batch 4 and at 25.8 GiB at 8"),
    ("finetune", "Which machine each row of the L40S ran on is not stated: their speeds are not "
                 "compared"),
    ("ddp", "At its best, with 124M 4 GPUs, both, a token cost 11% more $ than on one GPU ($3.13 "
            "against $2.82 per 1B tokens at the run day's price)"),
    ("ddp", "A result over PCIe: machines with NVLink behave differently"),
    ("compile", "On the H100 eager attention ran at 435 ms a step and 56 GB; compiled, 169 ms "
                "and 39 GB"),
    ("compile", "Eager with sdpa attention was faster than compiled eager attention on every GPU "
                "that ran both"),
    ("compile", "used at most 45% of its peak memory"),
    ("compile", "On the RTX 5090 eager attention fits neither eager nor compiled"),
    ("compile", "Compiling cut the peak of sdpa attention by 23% on every GPU that ran both"),
    ("compile", "The H100 was fastest (1.29x the tokens/s of the RTX 5090, each at its best "
                "setup) at 3.36x its $/hour; the L40S trained the most tokens per $"),
    ("compile", "no fp32 master weights"),
])
def test_the_pages_own_findings_are_derived(html_text: str, suite: str, sentence: str) -> None:
    start = html_text.index(f'<section id="{suite}"')
    part = PageReader(html_text[start:html_text.index("</section>", start)]).text
    assert sentence in part


def test_finetune_rows_of_unknown_machines_give_no_speed_sentence(html_text: str) -> None:
    start = html_text.index('<section id="finetune"')
    part = html_text[start:html_text.index("</section>", start)]
    assert "was fastest" not in part and "tie for the most" not in part
    assert "cheapest" not in part


def test_published_rows_have_no_steps_and_say_so(page: PageReader) -> None:
    assert "Published rows have summary figures only: there are no steps to plot." in page.text
    assert "When compiling pays" in page.text  # that needs summary figures only


def test_the_page_needs_nothing_from_outside(html_text: str) -> None:
    assert not re.search(r'(?:src|href)="(?!#|data:)', html_text)
    assert not re.search(r"@import|url\((?!#)", html_text)


def test_ids_are_unique(page: PageReader) -> None:
    assert len(page.ids) == len(set(page.ids))
