"""The page of a sweep's report."""

import re
from datetime import datetime
from html.parser import HTMLParser

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from litlab.commands.sweep.report import report_page, write_report
from litlab.commands.sweep.study import find_study, start_study
from litlab.errors import UserError
from tests.litlab.commands.sweep.studies import create, ended, spec, study

NOW = datetime(2026, 3, 1, 18, 30)
SPACE = {"model.width": IntDistribution(1, 64), "data.<flip>": CategoricalDistribution([True, "<i>no</i>"])}
PARAMS = {"model.width": 8, "data.<flip>": "<i>no</i>"}
VOID = {"meta", "br"}


class Page(HTMLParser):
    """What is on a page; fails where a tag is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "script" in self.open:
            self.scripts.append(data)
        else:
            self.text += data

    def rows(self) -> list[list[str]]:
        """The rows of the table of the best trials."""
        _, _, below = self.text.partition("\ntrial ")
        return [line.split() for line in below.partition("\n\n")[0].splitlines()[1:]]


@pytest.fixture
def sweep(tmp_path):
    return spec(tmp_path, name="a<b", trials=8, hours=2.0)


@pytest.fixture
def made(sweep):
    """Two completed trials, one pruned, one failed, one requeued and running."""
    made = create(sweep)
    runs = [str(sweep.folder / "trial_0000" / "version_0")]
    ended(made, PARAMS, SPACE, values=[0.8], runs=runs, minutes=2.5)
    ended(made, {"model.width": 16}, {"model.width": SPACE["model.width"]}, values=[0.9], minutes=4)
    ended(made, PARAMS, SPACE, state=TrialState.PRUNED, reported={0: 0.1})
    tail = ["Epoch 1 <script>alert(1)</script>", "RuntimeError: a & b"]
    ended(made, PARAMS, SPACE, state=TrialState.FAIL, reason='exit code 1: "<b>"', tail=tail)
    ended(made, PARAMS, SPACE, state=TrialState.FAIL)
    ended(made, PARAMS, SPACE, state=TrialState.RUNNING, replaces=4)
    return made


def test_how_the_sweep_stands_and_the_best_trials(sweep, made):
    page = Page(report_page(sweep, made, NOW))
    assert "Sweep a<b" in page.text
    for fact in ("val/acc (maximize)", "4 of 8 ended (2 done, 1 pruned, 1 failed), 1 running", "2026-03-01 18:30"):
        assert fact in page.text
    assert page.rows() == [
        ["1", "done", "0", "0.9", "4.0", "model.width=16"],
        ["0", "done", "0", "0.8", "2.5", "trial_0000/version_0", "model.width=8", "data.<flip>=<i>no</i>"],
    ]


def test_of_a_loss_the_lowest_is_the_best_and_ten_are_shown(tmp_path):
    sweep = spec(tmp_path, metrics=["val/loss"], directions=["minimize"], seeds=2)
    made = create(sweep)
    for number in range(14):
        ended(made, PARAMS, SPACE, values=[number / 10], values_by_seed=[[number / 10], [number / 10 + 0.2]])
    page = Page(report_page(sweep, made, NOW))
    assert [row[0] for row in page.rows()[:10]] == [str(number) for number in range(10)]
    assert page.rows()[0][3:6] == ["0", "±", "0.1414"]
    assert "4 more were completed" in page.text


def test_all_of_the_pareto_front_is_shown(tmp_path):
    sweep = spec(tmp_path, metrics=["val/acc", "cost"], directions=["maximize", "minimize"])
    made = create(sweep)
    for number in range(12):
        ended(made, PARAMS, SPACE, values=[number / 20, float(number)])
    ended(made, PARAMS, SPACE, values=[0.0, 99.0])
    page = Page(report_page(sweep, made, NOW))
    assert [row[3:5] for row in page.rows()[:2]] == [["0.55", "11"], ["0.5", "10"]]
    assert {row[0] for row in page.rows()[:12]} == {str(number) for number in range(12)}


def test_failures_have_their_reason_and_last_lines(sweep, made):
    text = report_page(sweep, made, NOW)
    page = Page(text)
    assert "Failed trials (1)" in page.text
    assert 'trial 3: exit code 1: "<b>"' in page.text
    assert "Epoch 1 <script>alert(1)</script>\nRuntimeError: a & b" in page.text
    assert "requeued, as they were stopped or killed: trial 4 as 5." in page.text
    ours = text.replace(page.scripts[0], "")
    assert "<script>alert" not in ours
    assert "<i>no" not in ours


def test_the_page_needs_nothing_from_elsewhere(sweep, made):
    """plotly.js is in it, once."""
    text = report_page(sweep, made, NOW)
    page = Page(text)
    assert len([script for script in page.scripts if len(script) > 1_000_000]) == 1
    assert text.count("plotly.js v") == 1
    assert {tag for tag, _ in page.tags}.isdisjoint({"link", "iframe", "img", "a"})
    assert not any("src" in attributes or "href" in attributes for _, attributes in page.tags)
    assert not re.search(r"https?:|url\(|@import", text.replace(page.scripts[0], ""))


def test_page_of_a_study_in_sqlite(tmp_path, capsys):
    sweep = spec(tmp_path / "cifar", seeds=2)
    start_study(sweep).add_trials(study(sweep, 40).trials)
    made = find_study(sweep)
    assert made is not None
    page = write_report(sweep, made)
    assert page == sweep.folder / "report" / "report.html"
    titles = re.findall("<h2>(.*?)</h2>", page.read_text())
    assert titles[:5] == [
        "History of val/acc (maximize)", "Importances for val/acc", "Settings and values", "val/acc over each setting",
        "val/acc at each validation",
    ]  # fmt: skip
    assert page.read_text().count('class="plotly-graph-div"') == 5
    assert capsys.readouterr() == ("", "")


def test_one_completed_trial_is_enough(tmp_path):
    sweep = spec(tmp_path)
    made = create(sweep)
    ended(made, {"x": 3}, {"x": IntDistribution(3, 3)}, values=[0.5])
    assert "1 done" in Page(write_report(sweep, made).read_text()).text


def test_without_a_completed_trial_there_is_no_report(tmp_path):
    sweep = spec(tmp_path)
    made = create(sweep)
    ended(made, {"x": 0.5}, {"x": FloatDistribution(0, 1)}, state=TrialState.PRUNED, reported={0: 0.5})
    with pytest.raises(UserError, match=r"^sweep cifar: no trial has completed yet; there is nothing to report\.$"):
        write_report(sweep, made)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    sweep = spec(tmp_path / "file")
    sweep.folder.write_text("")
    made = create(sweep)
    ended(made, {"x": 0.5}, {"x": FloatDistribution(0, 1)}, values=[0.5])
    with pytest.raises(UserError, match=r"file/report/report\.html: it can't be written \(Not a directory\)"):
        write_report(sweep, made)


def test_a_report_replaces_the_one_before(tmp_path):
    sweep = spec(tmp_path)
    made = create(sweep)
    ended(made, {"x": 0.5}, {"x": FloatDistribution(0, 1)}, values=[0.5])
    page = write_report(sweep, made)
    before = page.read_bytes()
    ended(made, {"x": 0.5}, {"x": FloatDistribution(0, 1)}, values=[0.99])
    with page.open("rb") as reader:
        assert write_report(sweep, made) == page
        assert reader.read() == before  # whoever reads the old one reads it to its end
    assert "0.99" in page.read_text()
    assert not [path.name for path in page.parent.iterdir() if path.name.startswith(".")]
