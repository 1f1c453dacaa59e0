"""The page of a sweep's report."""

import re
from datetime import datetime
from html.parser import HTMLParser

import pytest
from optuna.distributions import CategoricalDistribution, IntDistribution
from optuna.trial import TrialState

from litlab.sweep.page import report_page
from tests.litlab.sweep.studies import create, ended, spec

NOW = datetime(2026, 3, 1, 18, 30)
SPACE = {"model.width": IntDistribution(1, 64), "data.<flip>": CategoricalDistribution([True, "<i>no</i>"])}
PARAMS = {"model.width": 8, "data.<flip>": "<i>no</i>"}
VOID = {"meta", "img", "wbr"}


class Page(HTMLParser):
    """What is on a page; fails where a tag is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += data


@pytest.fixture
def sweep(tmp_path):
    return spec(tmp_path, name="a<b", trials=8, hours=2.0)


@pytest.fixture
def trials(sweep):
    made = create(sweep)
    runs = [str(sweep.folder / "trial_0000" / "version_0")]
    ended(made, PARAMS, SPACE, values=[0.8], runs=runs, minutes=2.5)
    ended(made, {"model.width": 16}, {"model.width": SPACE["model.width"]}, values=[0.9], minutes=4)
    ended(made, PARAMS, SPACE, state=TrialState.PRUNED, reported={0: 0.1})
    tail = ["Epoch 1 <script>alert(1)</script>", "RuntimeError: a & b"]
    ended(made, PARAMS, SPACE, state=TrialState.FAIL, reason='exit code 1: "<b>"', tail=tail)
    ended(made, PARAMS, SPACE, state=TrialState.FAIL, replaced_by=5)
    ended(made, PARAMS, SPACE, state=TrialState.RUNNING, replaces=4)
    return made.trials


def test_the_heading_tells_metric_budget_counts_and_times(sweep, trials):
    page = Page(report_page(sweep, trials, {}, NOW))
    assert "Sweep a<b" in page.text
    for fact in ("val/acc (maximize)", "8 trials or 2 hours a command", "2 completed, 1 pruned, 1 failed, 1 running"):
        assert fact in page.text
    assert "2026-03-01 12:00 to 2026-03-01 12:04" in page.text
    assert "2026-03-01 18:30" in page.text
    assert "seeds" not in page.text


def test_the_best_trials_with_their_settings(sweep, trials):
    page = Page(report_page(sweep, trials, {}, NOW))
    assert page.rows == [
        ["trial", "val/acc", "model.width", "data.<flip>", "minutes", "run folder"],
        ["1", "0.9", "16", "-", "4.0", ""],
        ["0", "0.8", "8", "<i>no</i>", "2.5", "trial_0000/version_0"],
    ]
    assert [attributes.get("class") for tag, attributes in page.tags if tag == "tr"] == [None, "best", None]


def test_of_a_loss_the_lowest_is_the_best_and_ten_are_shown(tmp_path):
    sweep = spec(tmp_path, metrics=["val/loss"], directions=["minimize"], seeds=2)
    made = create(sweep)
    for number in range(14):
        ended(made, PARAMS, SPACE, values=[number / 10], values_by_seed=[[number / 10], [number / 10 + 0.2]])
    page = Page(report_page(sweep, made.trials, {}, NOW))
    assert [row[0] for row in page.rows[1:]] == [str(number) for number in range(10)]
    assert page.rows[0][:3] == ["trial", "val/loss", "± over seeds"]
    assert page.rows[1][:3] == ["0", "0", "0.1414"]
    assert "4 more were completed" in page.text
    assert "2 fits a trial; the value is their mean, made worse by 1 times their standard deviation" in page.text


def test_all_of_the_pareto_front_is_shown(tmp_path):
    sweep = spec(tmp_path, metrics=["val/acc", "cost"], directions=["maximize", "minimize"])
    made = create(sweep)
    for number in range(12):
        ended(made, PARAMS, SPACE, values=[number / 20, float(number)])
    ended(made, PARAMS, SPACE, values=[0.0, 99.0])
    page = Page(report_page(sweep, made.trials, {}, NOW))
    assert "Pareto front" in page.text
    assert [row[:3] for row in page.rows[1:3]] == [["11", "0.55", "11"], ["10", "0.5", "10"]]
    assert len(page.rows) == 1 + 12


def test_failures_tell_their_reason_and_last_lines(sweep, trials):
    text = report_page(sweep, trials, {}, NOW)
    page = Page(text)
    assert "Failed trials (1)" in page.text
    assert 'trial 3: exit code 1: "<b>"' in page.text
    assert "Epoch 1 <script>alert(1)</script>\nRuntimeError: a & b" in page.text
    assert "Taken up again, as their worker was gone: trial 4 as 5." in page.text
    assert "<script" not in text
    assert "<i>" not in text
    assert "<b>" not in text


def test_the_page_asks_for_nothing_from_elsewhere(sweep, trials):
    text = report_page(sweep, trials, {"history": b"png", "curves": b"\x00\xff"}, NOW)
    sources = [attributes["src"] for tag, attributes in Page(text).tags if tag == "img"]
    assert sources == ["data:image/png;base64,cG5n", "data:image/png;base64,AP8="]
    tags = {tag for tag, _ in Page(text).tags}
    assert tags.isdisjoint({"script", "link", "iframe", "a"})
    assert not re.search(r"https?:|url\(|@import", text)
    assert "color-scheme: light dark" in text
