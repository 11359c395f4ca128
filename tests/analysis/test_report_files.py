"""Pages from result files of every kind, and inputs that make none."""

import math
import re
from pathlib import Path

import h5py
import pytest
from report_samples import (GIB, PageReader, compile_case, ddp_case, ddp_file, finetune_case,
                            make_file, oom_case)

import report

PRICES = """
[[price]]
gpu = "H200"
machine_gpus = 2
usd_per_hour = 7.2
date = "2026-10-29"
source = "a test"
"""


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
    assert page.column("ddp-details", "MFU")[0] == "6.6%"
    assert page.column("ddp-details", "Whole case, $ run day")[2] == "$0.06"


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
    assert "(99,328" not in page.text and "Loss" not in page.tables["compile-table"][0]


def test_twins_share_a_table_and_a_sentence(tmp_path: Path) -> None:
    twin = make_file(tmp_path / "b.h5", ddp_case("1gpu", 0.15, implementation="pytorch"),
                     implementation="pytorch")
    page = PageReader(render(tmp_path, ddp_file(tmp_path / "a.h5"), twin))
    assert page.column("ddp-table", "Program") == ["trainsuite"] * 5 + ["PyTorch"]
    assert "124M 1 GPU: trainsuite trains 1.50x the tokens/s of PyTorch" in page.text


def test_repeats_make_one_row_with_their_median(tmp_path: Path) -> None:
    path = make_file(tmp_path / "a.h5", *(ddp_case("plain", seconds, repeat=repeat)
                                          for repeat, seconds in enumerate((0.2, 0.1, 0.4))))
    page = PageReader(render(tmp_path, path))
    assert page.column("ddp-table", "Tokens/s") == ["81,920"]
    assert page.column("ddp-details", "Repeats") == ["3"]
    assert "Single runs" not in page.text


def test_a_cpu_dry_run_says_so_and_costs_nothing(tmp_path: Path, priced: str) -> None:
    path = make_file(tmp_path / "a.h5", ddp_case("1gpu", 0.1, size="tiny", dry_run=True),
                     device="cpu")
    page = PageReader(render(tmp_path, path, "--prices", priced))
    assert page.column("ddp-table", "Model") == ["TINY (dry run), vocabulary 50,304"]
    assert page.column("ddp-table", "$ per 1B tokens, run day") == ["not priced"]
    assert "no row of it measures a real model" in page.text
    assert "no GPU, on the CPU" in page.text


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
    changed = {heading for heading in before.tables["ddp-table"][0]
               if before.column("ddp-table", heading) != after.column("ddp-table", heading)}
    assert changed == {"$ per 1B tokens, today"}
    assert before.tables["ddp-details"] == after.tables["ddp-details"]
    assert after.column("ddp-table", "$ per 1B tokens, today")[0] == "$24.41"


def test_without_a_price_of_that_day_the_cell_says_so(tmp_path: Path, priced: str) -> None:
    path = make_file(tmp_path / "a.h5", ddp_case("1gpu", 0.1), created="2026-10-28T23:59:59Z")
    page = PageReader(render(tmp_path, path, "--prices", priced))
    assert page.column("ddp-table", "$ per 1B tokens, run day") == ["no price for this date"]
    assert page.column("ddp-table", "$ per 1B tokens, today") == ["$12.21"]
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
    import hashlib

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
