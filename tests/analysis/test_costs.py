"""Prices: choice and validation; costs: arithmetic, rounding, words."""

import re
from pathlib import Path

import pytest

import costs
import gpus
import prices
from results_records import ResultError

REPOSITORY = Path(__file__).resolve().parents[2]
ENTRY = {"gpu": '"L40S"', "usd_per_hour": "1.0", "date": '"2026-01-01"', "source": '"shop"'}


def history(tmp_path: Path, *entries: dict[str, str]) -> prices.Prices:
    """Prices of these entries, each a change of ENTRY (None drops a key)."""
    lines = []
    for entry in entries:
        merged = {key: value for key, value in {**ENTRY, **entry}.items() if value is not None}
        lines += ["[[price]]", *(f"{key} = {value}" for key, value in merged.items())]
    path = tmp_path / "prices.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    return prices.load(path)


def test_gpu_table_is_that_of_the_program() -> None:
    source = (REPOSITORY / "src/device/gpu_table.cpp").read_text(encoding="utf-8")
    rows = re.findall(r'\{"(NVIDIA [^"]+)", "([^"]+)", \d+, (\d+), ([\d.]+)\}', source)
    assert len(rows) > 5
    assert {driver: (page, int(gb), float(peak))
            for driver, page, gb, peak in rows} == gpus.GPU_TABLE


def test_a_run_takes_the_price_of_its_own_day(tmp_path: Path) -> None:
    found = history(tmp_path, {}, {"date": '"2026-01-03"', "usd_per_hour": "2.0"})
    assert found.on("L40S", "2026-01-03T23:59:59Z").usd_per_hour == 2.0
    assert found.on("L40S", "2026-01-01").usd_per_hour == 1.0
    assert found.on("L40S", "2026-01-02") is None
    assert found.on("H100", "2026-01-01") is None


def test_the_last_reading_of_a_day_counts(tmp_path: Path) -> None:
    found = history(tmp_path,
                    {"read_utc": '"2026-01-01T20:00:00Z"', "usd_per_hour": "3.0"},
                    {"read_utc": '"2026-01-01T23:00:00+02:00"', "usd_per_hour": "4.0"},
                    {"read_utc": "2026-01-01T05:00:00Z", "usd_per_hour": "2.0"})
    assert found.on("L40S", "2026-01-01").usd_per_hour == 4.0


def test_machine_sizes_shares_and_kinds(tmp_path: Path) -> None:
    found = history(tmp_path, {"machine_gpus": "4", "usd_per_hour": "2.64"}, {},
                    {"machine_gpus": "8", "usd_per_hour": "4.0"},
                    {"kind": '"spot"', "usd_per_hour": "0.2"})
    assert found.on("L40S", "2026-01-01").machine_gpus == 1
    assert found.on("L40S", "2026-01-01", 8).usd_per_hour == 4.0
    assert found.on("L40S", "2026-01-01", 3) is None
    assert found.on("L40S", "2026-01-01", gpus=2).machine_gpus == 4
    assert found.on("L40S", "2026-01-01", gpus=16).machine_gpus == 8
    assert found.on("L40S", "2026-01-01", kind="spot").usd_per_hour == 0.2
    four = found.on("L40S", "2026-01-01", 4)
    assert (four.usd_for(1), four.usd_for(4), four.usd_for(8)) == pytest.approx((.66, 2.64, 5.28))
    assert costs.price_words(four) == \
        "$0.66/h, one GPU's share of a 4-GPU machine at $2.64/h (2026-01-01)"
    assert costs.price_words(four, 4) == "$2.64/h (2026-01-01)"


def test_today_is_the_last_day_read_and_may_be_out_of_stock(tmp_path: Path) -> None:
    found = history(tmp_path, {}, {"date": '"2026-01-05"', "machine_gpus": "2",
                                   "usd_per_hour": None, "usd_per_gpu_hour": "0.5", "from": "true"},
                    {"date": '"2026-01-05"', "machine_gpus": "8", "usd_per_hour": "4.8"},
                    {"date": '"2026-01-09"', "usd_per_hour": None, "out_of_stock": "true"})
    assert found.today("L40S", "2026-01-04").usd_per_hour == 1.0
    cheapest = found.today("L40S", "2026-01-08")
    assert (cheapest.usd_per_gpu_hour, cheapest.machine_gpus, cheapest.from_price) == (.5, 2, True)
    assert found.today("L40S", "2026-01-08", 8).usd_per_gpu_hour == pytest.approx(0.6)
    gone = found.today("L40S", "2026-01-10")
    assert isinstance(gone, prices.OutOfStock) and gone.last.date == "2026-01-05"
    assert costs.price_words(gone) == "Not in stock (2026-01-09)"
    assert found.today("L40S", "2025-12-31") is None
    assert not cheapest.stale("2026-01-12") and cheapest.stale("2026-01-13")
    pair = costs.pair("usd_per_billion_tokens", 1000.0, cheapest, gone, 1)
    assert pair.texts()[1] == "Not in stock"


def test_another_currency_is_converted(tmp_path: Path) -> None:
    euros = history(tmp_path, {"usd_per_hour": None, "per_hour": "2.0", "currency": '"EUR"',
                               "usd_rate": "1.25"}).on("L40S", "2026-01-01")
    assert (euros.usd_per_hour, euros.currency) == (2.5, "EUR")


@pytest.mark.parametrize("change, words", [
    ({"usd_per_hour": "0"}, "price 1 (L40S): usd_per_hour is 0; a price is a finite number"),
    ({"usd_per_hour": "-1.5"}, "usd_per_hour is -1.5; a price"),
    ({"usd_per_hour": "nan"}, "usd_per_hour is nan; a price"),
    ({"usd_per_hour": "inf"}, "usd_per_hour is inf; a price"),
    ({"usd_per_hour": '"1.5"'}, "usd_per_hour is '1.5', not a number"),
    ({"usd_per_hour": "true"}, "usd_per_hour is True, not a number"),
    ({"usd_per_hour": None}, "no price; give one of usd_per_hour"),
    ({"usd_per_gpu_hour": "1"}, "usd_per_hour and usd_per_gpu_hour; give one of"),
    ({"out_of_stock": "true"}, "out of stock, but with a price"),
    ({"date": None}, "no date; every price needs the day"),
    ({"date": '"soon"'}, "'soon' is not a date"),
    ({"read_utc": '"2026-01-02T00:00:00Z"'}, "are different days"),
    ({"source": None}, "no source; say where the price was read"),
    ({"source": '" "'}, "source is ' '"),
    ({"gpu": '"L40"'}, "price 1: unknown GPU 'L40'; did you mean 'L40S'?"),
    ({"gpu": None}, "no gpu; name the GPU"),
    ({"machine_gpus": "0"}, "machine_gpus is 0; give a whole number from 1"),
    ({"machine_gpus": "1.5"}, "machine_gpus is 1.5"),
    ({"kind": '"reserved"'}, "kind 'reserved' is none of on-demand, spot"),
    ({"currency": '"EUR"'}, "usd_per_hour is in USD but currency is EUR"),
    ({"usd_per_hour": None, "per_hour": "1", "currency": '"EUR"'}, "a price in EUR needs usd_rate"),
    ({"usd_per_hours": "1"}, "unknown key 'usd_per_hours'; did you mean 'usd_per_hour'?"),
])
def test_bad_prices_get_one_sentence(tmp_path: Path, change: dict, words: str) -> None:
    with pytest.raises(ResultError) as error:
        history(tmp_path, change)
    assert words in str(error.value) and str(tmp_path / "prices.toml") in str(error.value)
    assert "\n" not in str(error.value)


def test_the_same_offer_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="price 2 .L40S.: the same offer and time as price 1"):
        history(tmp_path, {}, {"usd_per_hour": "2.0"})


def test_shipped_prices_are_sound() -> None:
    assert len(prices.load_default().readings) >= 10


@pytest.mark.parametrize("text, words", [
    ("cheap", "give $ per hour"), ("-1", "a price is a finite number above 0"),
    ("nan", "a price is a finite"), ("2/0", "whole number from 1"), ("", "give $ per hour")])
def test_bad_run_prices_are_refused(text: str, words: str) -> None:
    with pytest.raises(ResultError, match=re.escape(words)):
        prices.run_price(text, "L40S", "2026-01-01")


def test_run_price_names_the_machine() -> None:
    given = prices.run_price("2.64/4", "L40S", "2026-01-01T10:00:00Z")
    assert (given.usd_for(1), given.machine_gpus, given.date) == \
        (pytest.approx(0.66), 4, "2026-01-01")


def test_costs_by_hand() -> None:
    # 1e6 tokens/s trains 3.6e9 tokens an hour: at $7.2 an hour $2 per 1e9, 500M per $.
    assert costs.usd_per_billion_tokens(1e6, 7.2) == pytest.approx(2.0)
    assert costs.million_tokens_per_usd(1e6, 7.2) == pytest.approx(500)
    assert costs.training_usd(1800, 7.2) == pytest.approx(3.6)
    assert costs.hours_for(7.2e9, 1e6) == pytest.approx(2)
    assert costs.usd_for(7.2e9, 1e6, 7.2) == pytest.approx(14.4)


def test_published_mode_rounds_first_and_exact_never() -> None:
    run = prices.Price("L40S", 3.0, 1, "2026-01-01", "shop")
    today = prices.Price("L40S", 1.0, 1, "2026-02-01", "shop")
    # 1e9 tokens in 1,001.6 s: $0.83467 exactly, 0.83 as printed; a third of it 0.27822 or 0.2767.
    rate = 1e9 / 1001.6
    exact = costs.pair("usd_per_billion_tokens", rate, run, today, 1)
    assert (exact.run_day, exact.today) == pytest.approx((0.834667, 0.278222), abs=1e-6)
    assert costs.pair("usd_per_billion_tokens", rate, run, today, 1, "published").today == 0.28
    printed = costs.pair("training_usd", 12.0, run, today, 1, "published")  # 0.010
    assert (printed.run_day, printed.today) == (0.01, 0.003)
    tokens = costs.pair("million_tokens_per_usd", 1250.0, run, today, 1, "published")  # 1.5 -> 2
    assert (tokens.run_day, tokens.today) == (2.0, 6.0)
    assert costs.pair("million_tokens_per_usd", 1250.0, run, today, 1).today == pytest.approx(4.5)


def test_missing_prices_say_so() -> None:
    assert costs.pair("training_usd", 10.0, None, None, 1).texts() == \
        ("no price for this date", "no price for this date")
    for rate in (0.0, float("nan"), -1.0):
        with pytest.raises(ValueError, match="tokens/s"):
            costs.usd_per_billion_tokens(rate, 1.0)


def test_rounding_is_half_away_from_zero() -> None:
    assert [costs.rounded(value, 0) for value in (0.5, 1.5, 2.5)] == [1, 2, 3]
    assert costs.rounded(1.005, 2) == 1.01
    assert costs.number(1234.5, 0) == "1,235"
