"""The page in a real browser: what a person sees."""

import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.litlab.commands.serve.browser import CHROMIUM, Browser

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")]
TOKEN = "a-token"
KINDS = ("images", "series", "targets")


@pytest.fixture(scope="module")
def servers(start, example):
    """One for each kind of page that is not a line of text; that of images asks for a token."""
    tokens = {"images": {"LITLAB_SERVE_TOKEN": TOKEN}}
    runs = {kind: example(kind).run for kind in KINDS}
    with ThreadPoolExecutor(len(KINDS)) as pool:
        started = {kind: pool.submit(start, "--run", runs[kind], environment=tokens.get(kind)) for kind in KINDS}
        return {kind: one.result() for kind, one in started.items()}


@pytest.fixture
def browser(tmp_path):
    with Browser(tmp_path / "profile") as browser:
        yield browser


def test_an_image_behind_a_token(servers, example, browser, tmp_path):
    name = "<img src=x onerror=alert(1)>.png"
    shutil.copy(example("images").input, tmp_path / name)
    browser.open(servers["images"].address)
    assert browser.run("document.activeElement.tagName") == "BODY"
    browser.type("#token", "wrong")
    browser.press("#access button")
    assert browser.error() == "the token is wrong; send the header 'Authorization: Bearer TOKEN'"
    browser.run("document.querySelector('#token').value = ''")
    browser.type("#token", TOKEN)
    browser.press("#access button")
    browser.wait("document.title === 'images/version_0'")
    browser.choose("#image", tmp_path / name)
    row = example("images").predicted[0]
    assert browser.answer().startswith(f"{row['prediction']} ({100 * float(row['probability']):.1f} %)")
    widths = browser.run("[...document.querySelectorAll('.fill')].map((bar) => bar.getBoundingClientRect().width)")
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 1.2 * widths[-1] > 0
    browser.wait("document.querySelector('#preview').naturalWidth === 32")
    assert browser.run("document.querySelector('#invitation').textContent") == name
    assert browser.run("document.querySelectorAll('#images img').length") == 1
    (tmp_path / "notes.txt").write_text("no image")
    browser.choose("#image", tmp_path / "notes.txt")
    assert browser.error().startswith("image: it can't be read (not an image)")
    assert browser.run("document.querySelector('#answer').hidden")
    told = [line for line in browser.told if "status of 4" not in line]  # the refusals above
    assert told == []


def test_a_series_that_is_pasted(servers, example, browser):
    browser.open(servers["series"].address)
    browser.press("#series button")
    assert browser.error() == "Paste a series, or choose a file."
    browser.type("#csv", example("series").input.read_text())
    browser.press("#series button")
    shown = browser.answer()
    assert "load" in shown
    assert example("series").predicted[-1]["date"] in shown
    parts = "querySelectorAll('.past, .future, .band').length"
    assert browser.run(f"[...document.querySelectorAll('figure')].map((plot) => plot.{parts})") == [3, 3]
    assert browser.run("document.querySelector('figure .future').getBBox().width") > 100
    browser.run("document.querySelector('#csv').value = 'date,load\\n2024-01-01,1'")
    browser.press("#series button")
    assert "there is no column 'heat'" in browser.error()
    assert [line for line in browser.told if "status of 4" not in line] == []


def test_a_row_that_is_filled_in(servers, example, browser):
    browser.open(servers["targets"].address)
    labels = browser.run("[...document.querySelectorAll('#cells label')].map((label) => label.firstChild.textContent)")
    assert labels == ["age", "income", "visits", "distance", "plan", "city", "channel"]
    for name, value in {"age": "20", "visits": "1", "distance": "0.5"}.items():
        browser.type(f"#cells [name={name}]", value)
    for name, value in {"plan": "student", "channel": "phone"}.items():
        browser.run(f"document.querySelector('#cells [name={name}]').value = '{value}'")
    browser.press("#rows button")
    expected = float(example("targets").predicted[1]["predicted_spend"])
    assert browser.answer().startswith(f"spend: {expected:.6g}"[:11])
    browser.choose("#rows-file", example("targets").input)
    browser.wait("document.querySelectorAll('#answer tr').length === 4")
    browser.open(f"{servers['targets'].address}/docs")
    browser.wait("document.querySelector('#programs').open")
    assert "curl" in browser.run("document.querySelector('#commands').textContent")
    assert browser.told == []
