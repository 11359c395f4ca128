"""The page in a browser: headless Chromium at phone and desktop width, light and dark."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from report_samples import (GIB, ceiling_case, compile_case, ddp_case, ddp_file, finetune_case,
                            make_file, oom_case)
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.keys import Keys

import report

WIDTHS = (320, 390, 768, 1280)
EXAMPLE = Path(__file__).resolve().parents[2] / "analysis" / "examples" / "published.toml"

TOO_WIDE = """
const wide = [];
for (const one of document.body.querySelectorAll('*')) {
  if (one.closest('.table-frame table, pre, svg, .skip')) continue;
  const box = one.getBoundingClientRect();
  if (box.width && box.right > document.documentElement.clientWidth + 0.5) {
    wide.push(one.tagName + '.' + one.className + ' ' + Math.round(box.right));
  }
}
return wide;
"""
LOW_CONTRAST = """
function rgba(text) {
  const parts = text.match(/[\\d.]+/g).map(Number);
  return parts.length === 3 ? [...parts, 1] : parts;
}
function luminance(color) {
  const [r, g, b] = color.slice(0, 3).map(function (value) {
    value /= 255;
    return value <= 0.03928 ? value / 12.92 : Math.pow((value + 0.055) / 1.055, 2.4);
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function background(one) {
  for (; one; one = one.parentElement) {
    const color = rgba(getComputedStyle(one).backgroundColor);
    if (color[3] > 0) return color;
  }
  return [255, 255, 255, 1];
}
let checked = 0;
const low = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const one = walker.currentNode.parentElement;
  if (!walker.currentNode.data.trim() || one.closest('script, style, .skip')) continue;
  const style = getComputedStyle(one);
  const color = rgba(one.closest('svg') ? style.fill : style.color);
  const pair = [luminance(color), luminance(background(one))].sort((a, b) => b - a);
  const contrast = (pair[0] + 0.05) / (pair[1] + 0.05);
  checked += 1;
  if (contrast < 4.5) low.push(one.tagName + ' ' + walker.currentNode.data.trim() + ' ' + contrast);
}
return [checked, low];
"""
LOW_CONTRAST_OF_MARKS = """
function parts(text) { return text.match(/[\\d.]+/g).map(Number); }
function luminance(color) {
  const [r, g, b] = color.slice(0, 3).map(function (value) {
    value /= 255;
    return value <= 0.03928 ? value / 12.92 : Math.pow((value + 0.055) / 1.055, 2.4);
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
const low = [];
for (const bar of document.querySelectorAll('.bar')) {
  const colors = [bar, bar.closest('.bars')].map(
    one => luminance(parts(getComputedStyle(one).backgroundColor)));
  colors.sort((a, b) => b - a);
  if ((colors[0] + 0.05) / (colors[1] + 0.05) < 3) low.push(bar.className);
}
return [document.querySelectorAll('.bar').length, low];
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    """A page of everything: each suite, a twin, a CPU run cut short, published rows."""
    folder = tmp_path_factory.mktemp("page")
    twin = make_file(folder / "twin.h5", ddp_case("1gpu", 0.15, implementation="pytorch"),
                     implementation="pytorch")
    cpu = make_file(folder / "cpu.h5", ddp_case("1gpu", 0.3, size="tiny", dry_run=True),
                    device="AMD EPYC", finish=False, planned=["tiny-1gpu", "tiny-plain"])
    many = make_file(folder / "many.h5", ddp_case("independent", 0.1, ranks=12, steps=900),
                     ranks=12)
    finetune = make_file(
        folder / "f.h5", finetune_case("full", "4x4", 20.0, 36.9, 1.103, 1.065),
        finetune_case("lora", "4x4", 10.0, 14.5, 1.102, 1.058),
        oom_case("finetune", "1.5b-full-8x2", "rank 0: out of memory in backward with "
                 f"{40 * GIB} bytes allocated", size="1.5b", recipe="full"), ranks=1)
    compiled = make_file(folder / "c.h5", compile_case("eager", "sdpa", 89.3, 17.38, 0.4),
                         compile_case("compile", "sdpa", 53.5, 12.11, 28.4), ranks=1)
    limits = make_file(folder / "l.h5", ceiling_case("matmul-bf16", 1e-3),
                       ceiling_case("all-reduce", 1e-3), ceiling_case("copy-device", 1e-3))
    out = folder / "page.html"
    files = [ddp_file(folder / "a.h5"), twin, cpu, many, finetune, compiled, limits, str(EXAMPLE)]
    assert report.main([*files, "-o", str(out), "--tokens", "1e9", "--today", "2026-11-30"]) == 0
    return out.as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    """Debian's Chromium (packages chromium and chromium-driver)."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    assert chromium and driver, "install Debian's chromium and chromium-driver (jobs/test.sh does)"
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                 "--hide-scrollbars"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    chrome = webdriver.Chrome(options=options, service=Service(driver))
    chrome.set_page_load_timeout(60)
    yield chrome
    chrome.quit()


def show(browser: webdriver.Chrome, page: str, width: int = 1280, scheme: str = "light") -> None:
    """Loads the page, everything unfolded."""
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
        "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {
        "features": [{"name": "prefers-color-scheme", "value": scheme},
                     {"name": "prefers-reduced-motion", "value": "reduce"}]})
    browser.get(page)
    browser.execute_script("document.querySelectorAll('details').forEach(one => one.open = true)")


def column(browser: webdriver.Chrome, table: str, heading: str) -> list[str]:
    return browser.execute_script("""
        const table = document.getElementById(arguments[0]);
        const headings = Array.from(table.tHead.rows[0].cells);
        const index = headings.findIndex(one => one.textContent === arguments[1]);
        return Array.from(table.tBodies[0].rows).map(row => row.cells[index].textContent);
        """, table, heading)


def heading_button(browser: webdriver.Chrome, table: str, heading: str):
    return browser.execute_script("""
        return Array.from(document.querySelectorAll('#' + arguments[0] + ' th button'))
          .find(one => one.textContent === arguments[1]);""", table, heading)


def test_no_message_and_no_request(browser, page) -> None:
    browser.get_log("browser")
    browser.get_log("performance")
    show(browser, page)
    assert browser.get_log("browser") == []
    sent = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = {one["params"]["request"]["url"] for one in sent
            if one["method"] == "Network.requestWillBeSent"}
    assert {url for url in urls if not url.startswith("data:")} == {page}


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_reaches_beyond_the_page(browser, page, width: int) -> None:
    show(browser, page, width)
    assert browser.execute_script("return document.documentElement.scrollWidth") == width
    assert browser.execute_script(TOO_WIDE) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_and_bar_stands_out(browser, page, scheme: str) -> None:
    show(browser, page, scheme=scheme)
    dark = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert dark == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(18, 23, 29)")
    checked, low = browser.execute_script(LOW_CONTRAST)
    assert checked > 1000 and low == []
    bars, low = browser.execute_script(LOW_CONTRAST_OF_MARKS)
    assert bars > 50 and low == []


def test_tables_sort_by_click_with_unknown_cells_last(browser, page) -> None:
    show(browser, page)
    table, heading = "compile-table", "Tokens/s"
    before = column(browser, table, heading)
    assert before.count("-") == 4
    heading_button(browser, table, heading).click()
    down = column(browser, table, heading)
    numbers = [int(text.replace(",", "")) for text in down[:-4]]
    assert numbers == sorted(numbers, reverse=True) and numbers[0] == 153_121
    assert down[-4:] == ["-"] * 4 and sorted(down) == sorted(before)
    heading_button(browser, table, heading).click()
    up = column(browser, table, heading)
    assert up == [*reversed(down[:-4]), *down[-4:]]
    assert browser.execute_script(
        "return Array.from(document.querySelectorAll('#compile-table th[aria-sort]'))"
        ".map(one => one.textContent + ' ' + one.getAttribute('aria-sort'))") == \
        ["Tokens/s ascending"]


def test_tables_sort_by_keyboard_and_words_as_words(browser, page) -> None:
    show(browser, page)
    heading_button(browser, "compile-table", "GPU").send_keys(Keys.ENTER)
    cards = column(browser, "compile-table", "GPU")
    assert cards == sorted(cards) and len(set(cards)) == 5


def test_pictures_speak(browser, page) -> None:
    show(browser, page)
    silent = browser.execute_script("""
        const pictures = Array.from(document.querySelectorAll('svg, img, [role=img]'));
        return [pictures.length, pictures.filter(one => one.getAttribute('role') !== 'img' ||
            (one.getAttribute('aria-label') || '').length < 20).map(one => one.outerHTML)];""")
    assert silent[0] > 20 and silent[1] == []


def test_the_page_has_an_outline_and_named_regions(browser, page) -> None:
    show(browser, page)
    levels = browser.execute_script(
        "return Array.from(document.querySelectorAll('h1,h2,h3')).map(one => +one.tagName[1])")
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in zip(levels, levels[1:]))
    assert browser.execute_script("""
        return Array.from(document.querySelectorAll('.table-frame')).filter(function (one) {
          const name = document.getElementById(one.getAttribute('aria-labelledby'));
          return one.tabIndex !== 0 || !name || !name.textContent.trim();
        }).length""") == 0
    assert browser.execute_script(
        "return Array.from(document.querySelectorAll('a[href^=\"#\"]'))"
        ".filter(one => !document.getElementById(one.getAttribute('href').slice(1))).length") == 0


def test_the_first_tab_stop_skips_to_the_content(browser, page) -> None:
    show(browser, page)
    browser.find_element("tag name", "body").send_keys(Keys.TAB)
    focused = browser.switch_to.active_element
    assert focused.text == "Skip to the content"
    assert focused.rect["x"] >= 0


def test_plots_are_readable_on_a_phone(browser, page) -> None:
    show(browser, page, 390)
    smallest = browser.execute_script("""
        return Math.min(...Array.from(document.querySelectorAll('.plot svg text')).map(
          one => parseFloat(getComputedStyle(one).fontSize) *
                 one.ownerSVGElement.getBoundingClientRect().width /
                 one.ownerSVGElement.viewBox.baseVal.width));""")
    assert smallest >= 9


def test_plots_follow_the_colours_of_the_page(browser, page) -> None:
    inks = []
    for scheme in ("light", "dark"):
        show(browser, page, scheme=scheme)
        inks.append(browser.execute_script(
            "return getComputedStyle(document.querySelector('.plot svg text')).fill"))
    assert inks == ["rgb(22, 32, 43)", "rgb(232, 237, 242)"]


def test_everything_is_printed(browser, page) -> None:
    show(browser, page)
    browser.execute_script("document.querySelectorAll('details').forEach(one => one.open = false);"
                           "window.dispatchEvent(new Event('beforeprint'))")
    assert browser.execute_script(
        "return document.querySelectorAll('details:not([open])').length") == 0
    browser.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert browser.execute_script("return document.querySelectorAll('details[open]').length") == 0
