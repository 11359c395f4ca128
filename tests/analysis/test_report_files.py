"""Pages from result files of every kind."""

import hashlib
import math
import re
from pathlib import Path

import pytest
from report_samples import (GIB, PRICES, PageReader, compile_case, ddp_case, ddp_file,
                            finetune_case, make_file, oom_case)

import report


def render(tmp_path: Path, *arguments: str) -> str:
    out = tmp_path / "page.html"
    assert report.main([*arguments, "-o", str(out), "--today", "2026-10-30"]) == 0
    return out.read_text(encoding="utf-8")


@pytest.fixture
def priced(tmp_path: Path) -> str:
    path = tmp_path / "prices.toml"
    path.write_text(PRICES, encoding="utf-8")
    return str(path)


def test_figures_follow_from_the_steps(tmp_path: Path, priced: str) -> None:
    page = PageReader(render(tmp_path, ddp_file(tmp_path / "a.h5"), "--prices", priced))
    assert page.column("ddp-table", "Variant") == [
        "1 GPU", "1 GPU, accumulate 4", "2 GPUs, plain DDP", "2 GPUs, bf16 gradients",
        "2 GPUs, both"]
    # 8 x 1024 tokens / 0.1 s; 2 ranks x 8192 / 0.2 s; 2 x 4 x 8192 / 0.42 s
    assert page.column("ddp-table", "Tokens/s") == ["81,920", "84,021", "81,920", "109,227",
                                                    "156,038"]
    assert page.column("ddp-table", "Speed-up over 1 GPU, same accumulation") == [
        "1.00x", "1.00x", "1.00x", "1.33x", "1.86x"]
    assert page.column("ddp-table", "Speed-up over 1 GPU")[-1] == "1.90x"
    # $3.60/h, one GPU's share: 1e9 / 81,920 / 3,600 x 3.6; then the whole machine's
    assert page.column("ddp-table", "$ per 1B tokens, run day")[0] == "$12.21"
    assert page.column("ddp-table", "$ per 1B tokens, run day")[2] == "$24.41"
    assert page.column("ddp-details", "Whole machine, $ per 1B tokens")[0] == "24.4"
    # 8e8 FLOPs x 81,920 / 989.5e12
    assert page.column("ddp-details", "MFU")[:3] == ["6.6%", "6.8%", "3.3%"]
    assert page.column("ddp-details", "Whole case, $ run day")[2] == "$0.06"
    assert "Padded tokens/s" not in page.tables["ddp-details"][0]


def test_all_suites_stand_in_the_published_order(tmp_path: Path) -> None:
    finetune = make_file(
        tmp_path / "f.h5", finetune_case("full", "4x4", 20.0, 36.9, 1.103, 1.065),
        finetune_case("lora", "4x4", 10.0, 14.5, 1.102, 1.058),
        oom_case("finetune", "1.5b-full-8x2", "rank 0: out of memory in backward with "
                 f"{int(39.6 * GIB)} bytes allocated: CUDA out of memory", size="1.5b",
                 recipe="full"), ranks=1)
    compiled = make_file(tmp_path / "c.h5", compile_case("eager", "sdpa", 89.3, 17.38, 0.4),
                         compile_case("compile", "sdpa", 53.5, 12.11, 28.4), ranks=1)
    html_text = render(tmp_path, ddp_file(tmp_path / "d.h5"), compiled, finetune)
    order = re.findall(r'<section id="(\w+)"', html_text)
    assert order == ["finetune", "ddp", "compile", "costs", "gpus", "files"]
    page = PageReader(html_text)
    assert page.column("finetune-table", "Tokens/s") == ["500", "1,000", "-"]
    assert page.column("finetune-details", "Padded tokens/s")[:2] == ["1,000", "2,000"]
    assert page.column("finetune-table", "Train time, s")[2] == "out of memory"
    assert "full 8x2 ran out of memory in the backward phase with 39.6 GiB allocated" in page.text
    assert "wins back its first step of 28.4 s after 782 steps" in page.text
    assert len(page.ids) > 300 and len(page.ids) == len(set(page.ids))


def test_a_slow_first_step_does_not_squeeze_the_plot(tmp_path: Path) -> None:
    page = render(tmp_path, make_file(tmp_path / "a.h5", ddp_case("1gpu", 0.1)))
    plot = page[page.index('aria-label="Step time of 124M 1 GPU'):]
    plot = plot[:plot.index("</figure>")]
    assert "Warm-up steps of up to 2,000 ms lie above the axis." in plot
    ticks = [float(tick) for tick in re.findall(r">([\d.]+)</text>", plot)]
    assert ticks and max(ticks) < 120


def test_twins_share_a_table_and_a_sentence(tmp_path: Path) -> None:
    twin = make_file(tmp_path / "b.h5", ddp_case("1gpu", 0.15, implementation="pytorch"),
                     implementation="pytorch")
    page = PageReader(render(tmp_path, ddp_file(tmp_path / "a.h5"), twin))
    assert page.column("ddp-table", "Program") == ["trainsuite"] * 5 + ["PyTorch"]
    assert "124M 1 GPU: trainsuite trains 1.50x the tokens/s of PyTorch" in page.text


def test_torch_compile_names_pytorchs_rows_alone(tmp_path: Path) -> None:
    modes = ("eager", "compile", "graph")
    ours = make_file(tmp_path / "a.h5", *(compile_case(mode, "sdpa", 60, 12, 9) for mode in modes))
    twin = make_file(tmp_path / "b.h5", *(compile_case(mode, "sdpa", 70, 13, 40, "pytorch")
                                          for mode in (*modes, "max-autotune")),
                     implementation="pytorch")
    page = PageReader(render(tmp_path, ours, twin))
    names = ["eager", "block-compiled", "CUDA graph", "eager", "torch.compile",
             "torch.compile reduce-overhead", "torch.compile max-autotune"]
    assert page.column("compile-table", "Setup") == [f"{name} + sdpa attention" for name in names]
    assert page.column("compile-table", "Program") == ["trainsuite"] * 3 + ["PyTorch"] * 4


def test_tuned_twins_of_finetune_are_named(tmp_path: Path) -> None:
    cases = [finetune_case(recipe, "4x4", 10, 12, 1.1, 1.0) for recipe in ("lora", "qlora")]
    cases[1].name, cases[1].settings["recipe"] = "1.5b-lora-4x4-tuned", "lora-4x4-tuned"
    for case in cases:
        case.settings["implementation"] = "pytorch"
    page = PageReader(render(tmp_path, make_file(tmp_path / "a.h5", *cases,
                                                 implementation="pytorch")))
    assert page.column("finetune-table", "Method") == ["LoRA", "LoRA, tuned"]
    assert page.column("finetune-table", "Micro-batch x accumulation") == ["4x4", "4x4"]


def test_random_weights_are_told_from_a_models(tmp_path: Path) -> None:
    words = "start from random weights"
    case = finetune_case("lora", "4x4", 10, 12, 1.1, 1.0)
    assert words not in PageReader(render(tmp_path, make_file(tmp_path / "a.h5", case))).text
    case.settings["model"] = "random"
    assert words in PageReader(render(tmp_path, make_file(tmp_path / "b.h5", case))).text


def test_repeats_make_one_row_with_their_median(tmp_path: Path) -> None:
    path = make_file(tmp_path / "a.h5", *(ddp_case("plain", seconds, repeat=repeat)
                                          for repeat, seconds in enumerate((0.2, 0.1, 0.4))))
    page = PageReader(render(tmp_path, path))
    assert page.column("ddp-table", "Tokens/s") == ["81,920"]
    assert page.column("ddp-details", "Repeats") == ["3"]
    assert "Single runs" not in page.text


def test_compiled_rows_are_told_on_their_own_base(tmp_path: Path) -> None:
    page = PageReader(render(tmp_path, make_file(
        tmp_path / "a.h5", ddp_case("1gpu", 0.4), ddp_case("1gpu-compile", 0.2),
        ddp_case("plain-compile", 0.25))))
    assert page.column("ddp-table", "Variant") == ["1 GPU", "1 GPU, compile",
                                                   "2 GPUs, plain DDP, compile"]
    assert page.column("ddp-table", "Speed-up over 1 GPU, same accumulation") == [
        "1.00x", "1.00x", "1.60x"]
    assert page.column("ddp-table", "Speed-up over 1 GPU") == ["1.00x", "2.00x", "3.20x"]


def test_a_stand_in_is_in_the_table_and_not_beside_real_bars(tmp_path: Path) -> None:
    tiny = make_file(tmp_path / "t.h5", ddp_case("1gpu", 0.001, size="tiny", dry_run=True),
                     device="AMD EPYC")
    html_text = render(tmp_path, ddp_file(tmp_path / "a.h5"), tiny)
    assert "8,192,000" in PageReader(html_text).column("ddp-table", "Tokens/s")
    bars = html_text[html_text.index('<figure class="bars headline">'):]
    assert "8,192,000" not in bars[:bars.index("</figure>")]


def test_one_gpu_with_and_without_communication_have_names_of_their_own(tmp_path: Path) -> None:
    path = make_file(tmp_path / "a.h5", ddp_case("1gpu-accumulate4", 0.4, ranks=1),
                     ddp_case("accumulate4", 0.4, ranks=1), ddp_case("plain", 0.1, ranks=1),
                     oom_case("ddp", "124m-both", "rank 0: out of memory in forward beside "
                              f"{3 * GIB} bytes allocated and 9 reserved: CUDA", size="124m",
                              recipe="both"), ranks=1)
    page = PageReader(render(tmp_path, path))
    assert page.column("ddp-table", "Variant") == [
        "1 GPU, accumulate 4", "1 GPU, DDP accumulate 4", "1 GPU, plain DDP", "1 GPU, DDP both"]
    assert "ran out of memory in the forward phase with 3.0 GiB allocated" in page.text


def test_a_cpu_dry_run_says_so_and_costs_nothing(tmp_path: Path, priced: str) -> None:
    path = make_file(tmp_path / "a.h5", ddp_case("1gpu", 0.1, size="tiny", dry_run=True),
                     device="AMD EPYC")
    page = PageReader(render(tmp_path, path, "--prices", priced))
    assert page.column("ddp-table", "Model") == ["TINY (dry run), vocabulary 50,304"]
    assert page.column("ddp-table", "$ per 1B tokens, run day") == ["not priced"]
    assert "no row of it measures a real model" in page.text
    assert "no GPU, on the CPU" in page.text and "gpu-table" not in page.tables
    assert page.column("ddp-table", "Variant") == ["1 CPU rank"]
    assert "What stood out" not in page.text


def test_a_run_cut_short_is_named(tmp_path: Path, capsys) -> None:
    path = make_file(tmp_path / "cut.h5", ddp_case("1gpu", 0.1), finish=False,
                     planned=["124m-1gpu", "124m-plain"])
    page = PageReader(render(tmp_path, path))
    assert page.column("ddp-table", "Tokens/s") == ["81,920", "not measured"]
    assert "cut.h5 was cut short: without a result of 124m-plain" in page.text
    assert "cut.h5 was cut short" in capsys.readouterr().err


def test_losses_that_are_no_numbers_are_named(tmp_path: Path) -> None:
    case = ddp_case("1gpu", 0.1)
    loss = next(one for one in case.ranks[0].series if one.name == "loss")
    loss.values[3:] = [math.nan] * 5
    page = PageReader(render(tmp_path, make_file(tmp_path / "a.h5", case)))
    assert "the loss is not a number from step 4 on, in 5 of 8 steps" in page.text


def test_an_unknown_card_is_named(tmp_path: Path) -> None:
    path = make_file(tmp_path / "a.h5", ddp_case("1gpu", 0.1), device="NVIDIA Foo 9000")
    assert "'NVIDIA Foo 9000' is not in the table of GPUs" in PageReader(
        render(tmp_path, path)).text


def test_new_prices_change_todays_cells_only(tmp_path: Path, priced: str) -> None:
    path = ddp_file(tmp_path / "a.h5")
    before = PageReader(render(tmp_path, path, "--prices", priced))
    newer = PRICES.replace("7.2", "14.4").replace("10-29", "10-30")
    Path(priced).write_text(PRICES + newer, encoding="utf-8")
    after = PageReader(render(tmp_path, path, "--prices", priced))
    changed = {heading for table in ("ddp-table", "ddp-details")
               for heading in before.tables[table][0]
               if before.column(table, heading) != after.column(table, heading)}
    assert changed == {"$ per 1B tokens, today", "Whole case, $ today"}
    assert after.column("ddp-table", "$ per 1B tokens, today")[0] == "$24.41"


def test_without_a_price_of_that_day_the_cell_says_so(tmp_path: Path, priced: str) -> None:
    path = make_file(tmp_path / "a.h5", ddp_case("1gpu", 0.1), created="2026-10-28T23:59:59Z")
    page = PageReader(render(tmp_path, path, "--prices", priced))
    assert page.column("ddp-table", "$ per 1B tokens, run day") == ["no price for this date"]
    assert page.column("ddp-table", "$ per 1B tokens, today") == ["$12.21"]
    path = make_file(tmp_path / "b.h5", ddp_case("1gpu", 0.1), created="2026-10-30T00:00:00Z")
    page = PageReader(render(tmp_path, path, "--prices", priced))
    assert page.column("ddp-table", "$ per 1B tokens, run day") == ["no price for this date"]
    given = PageReader(render(tmp_path, path, "--prices", priced, "--run-price", "3.6"))
    assert given.column("ddp-table", "$ per 1B tokens, run day") == ["$12.21"]


def test_out_of_stock_and_old_prices(tmp_path: Path, priced: str) -> None:
    path = ddp_file(tmp_path / "a.h5")
    Path(priced).write_text(PRICES + '[[price]]\ngpu = "H200"\nout_of_stock = true\n'
                            'date = "2026-10-30"\nsource = "a test"\n', encoding="utf-8")
    page = PageReader(render(tmp_path, path, "--prices", priced))
    assert set(page.column("ddp-table", "$ per 1B tokens, today")) == {"Not in stock"}
    Path(priced).write_text(PRICES, encoding="utf-8")
    out = tmp_path / "late.html"
    assert report.main([path, "-o", str(out), "--prices", priced, "--today", "2026-11-06"]) == 0
    assert "days old" in out.read_text(encoding="utf-8")
    assert "days old" in PageReader(out.read_text(encoding="utf-8")).text
    assert report.main([path, "-o", str(out), "--prices", priced, "--today", "2026-11-05"]) == 0
    assert "days old" not in out.read_text(encoding="utf-8")


def test_tokens_add_hours_and_dollars(tmp_path: Path, priced: str) -> None:
    page = PageReader(render(tmp_path, ddp_file(tmp_path / "a.h5"), "--prices", priced,
                             "--tokens", "10e9"))
    assert page.tables["tokens"][0] == ["Row", "GPUs", "Hours", "$, run day", "$, today"]
    # 10e9 / 81,920 / 3,600 hours at $3.60
    assert page.tables["tokens"][1] == ["ddp: 124M 1 GPU", "1", "33.9", "$122.07", "$122.07"]


def test_an_authors_page_and_notes(tmp_path: Path) -> None:
    toml = tmp_path / "page.toml"
    toml.write_text('title = "Four <cards>"\nauthor = "A. Author"\npublished = 2026-11-01\n'
                    'licence = "CC BY 4.0"\n[notes]\nddp = ["Mind the fan."]\n', encoding="utf-8")
    html_text = render(tmp_path, ddp_file(tmp_path / "a.h5"), "--page", str(toml))
    assert "<h1>Four &lt;cards&gt;</h1>" in html_text
    page = PageReader(html_text)
    assert "A. Author" in page.text and "published 2026-11-01" in page.text
    assert "Author's note. Mind the fan." in page.text
    assert "Licence: CC BY 4.0" in page.text


def test_reproduce_gives_command_commit_and_hashes(tmp_path: Path) -> None:
    path = ddp_file(tmp_path / "a.h5")
    page = PageReader(render(tmp_path, path))
    assert "mpirun -np 2 trainsuite ddp --out" in page.text
    assert "Commit 0123456789abcdef" in page.text
    assert hashlib.sha256(Path(path).read_bytes()).hexdigest() in page.text


def test_a_page_is_made_again_the_same(tmp_path: Path) -> None:
    path = ddp_file(tmp_path / "a.h5")
    assert render(tmp_path, path) == render(tmp_path, path)


def test_long_runs_of_many_ranks_are_thinned_and_say_so(tmp_path: Path) -> None:
    case = ddp_case("independent", 0.1, ranks=16, steps=2000, jitter=0.01)
    for series in case.ranks[11].series:
        if series.name == "step_seconds":
            series.values = [value * 1.2 for value in series.values]
    html_text = render(tmp_path, make_file(tmp_path / "a.h5", case, ranks=16))
    assert len(html_text) < 400_000
    page = PageReader(html_text)
    assert "Each point is the median of 7 steps, the shade reaches from the least to the most" \
        in page.text
    assert "rank 11 is a straggler, its median step takes 20% longer than the median rank's" in \
        page.text


def test_a_redacted_page_names_nobody(tmp_path: Path, priced: str) -> None:
    folder = tmp_path / "alice" / "job-4711"
    folder.mkdir(parents=True)
    path = make_file(folder / "ddp-4711.h5", ddp_case("1gpu", 0.1), ddp_case("plain", 0.2),
                     host="node17.cluster", slurm_job_id="4711", env_USER="alice")
    secrets = ("node17", "4711", "alice", "/secret/place", "GPU-node17")
    plain = render(tmp_path, path, "--prices", priced)
    assert "node17" in plain and "/secret/place" in plain
    shown = render(tmp_path, path, "--prices", priced, "--redact")
    assert not [secret for secret in secrets if secret in shown]
    assert PageReader(shown).column("ddp-table", "Tokens/s") == ["81,920", "81,920"]
