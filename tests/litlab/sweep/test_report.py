"""The report of a sweep."""

import base64
import re

import optuna
import pytest
from optuna.distributions import FloatDistribution, IntDistribution
from optuna.trial import TrialState
from PIL import Image

from litlab.errors import UserError
from litlab.sweep.report import write_report
from litlab.sweep.storage import open_storage
from tests.litlab.sweep.studies import create, ended, spec, study

SPACE = {"x": FloatDistribution(0.0, 1.0), "y": FloatDistribution(0.0, 1.0)}


def test_pictures_and_page_of_a_study_in_sqlite(tmp_path, capsys):
    sweep = spec(tmp_path / "cifar", seeds=2)
    study(sweep, 20, open_storage(sweep.folder))
    page = write_report(sweep, optuna.load_study(study_name="cifar", storage=open_storage(sweep.folder)))
    assert page == sweep.folder / "report" / "report.html"
    names = ["history", "importances", "parallel", "slices", "curves"]
    assert sorted(path.name for path in page.parent.iterdir()) == sorted([*(f"{n}.png" for n in names), page.name])
    embedded = re.findall(r'data:image/png;base64,([^"]+)', page.read_text())
    assert [base64.b64decode(text) for text in embedded] == [(page.parent / f"{n}.png").read_bytes() for n in names]
    for name in names:
        with Image.open(page.parent / f"{name}.png") as picture:
            assert picture.width > 500
            assert picture.convert("L").getextrema()[0] < 100  # something is drawn
    assert capsys.readouterr() == ("", "")


def test_several_metrics_have_a_pareto_picture(tmp_path):
    sweep = spec(tmp_path, metrics=["val/acc", "cost"], directions=["maximize", "minimize"])
    page = write_report(sweep, study(sweep, 12))
    assert (page.parent / "pareto.png").is_file()
    assert not (page.parent / "curves.png").exists()  # nothing was reported


def test_one_completed_trial_is_enough(tmp_path):
    sweep = spec(tmp_path)
    made = create(sweep)
    ended(made, {"x": 3}, {"x": IntDistribution(3, 3)}, values=[0.5])
    page = write_report(sweep, made)
    assert "1 completed" in page.read_text()


def test_without_a_completed_trial_there_is_no_report(tmp_path):
    sweep = spec(tmp_path)
    made = create(sweep)
    ended(made, {"x": 0.5}, {"x": SPACE["x"]}, state=TrialState.PRUNED, reported={0: 0.5})
    with pytest.raises(UserError, match=r"^sweep cifar: no trial was completed yet, there is nothing to report\.$"):
        write_report(sweep, made)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    sweep = spec(tmp_path / "file")
    sweep.folder.write_text("")
    made = create(sweep)
    ended(made, {"x": 0.5}, {"x": SPACE["x"]}, values=[0.5])
    with pytest.raises(UserError, match=r"file/report/history\.png can't be written: Not a directory\."):
        write_report(sweep, made)


def test_a_report_takes_the_place_of_the_one_before(tmp_path):
    sweep = spec(tmp_path)
    made = create(sweep)
    ended(made, {"x": 0.5}, {"x": SPACE["x"]}, values=[0.5])
    page = write_report(sweep, made)
    before = page.read_bytes()
    ended(made, {"x": 0.5}, {"x": SPACE["x"]}, values=[0.99])
    with page.open("rb") as reader:
        assert write_report(sweep, made) == page
        assert reader.read() == before  # whoever reads the old one reads it to its end
    assert "0.99" in page.read_text()
    assert not [path.name for path in page.parent.iterdir() if path.name.startswith(".")]
