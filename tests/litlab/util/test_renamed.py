"""Old names of litlab work for a while, and say in one line what to write instead."""

import re
import warnings
from pathlib import Path

import pytest

import litlab
import litlab.nn
from litlab.nn import MAX_LAYERS
from litlab.util import renamed
from litlab.util.renamed import RenamedWarning, renamed_attributes, saved_as_now
from tests.conftest import ROOT
from tests.litlab.conftest import CONFIGS
from tests.processes import Python, ranks

CONFIG = """\
trainer:
  max_epochs: 1
  callbacks+:
    - class_path: GradientNoiseScale
      init_args:
        {name}: 3
"""


@pytest.fixture
def old(tmp_path) -> Path:
    """A config with the old name of a setting."""
    path = tmp_path / "old.yaml"
    path.write_text(CONFIG.format(name="every"))
    return path


def test_a_name_of_a_module_leads_to_the_new_one_and_says_where_it_is_used():
    with pytest.warns(RenamedWarning, match=r"^litlab\.nn\.DEEPEST is called MAX_LAYERS now; rename it") as said:
        assert litlab.nn.DEEPEST is MAX_LAYERS
    assert said[0].filename == __file__
    with pytest.raises(AttributeError, match=r"module 'litlab\.nn' has no attribute 'DEEPER'"):
        _ = litlab.nn.DEEPER


@pytest.mark.parametrize(("rank", "lines"), [(0, 1), (1, 0)])
def test_the_line_of_a_setting_in_a_config_comes_from_one_process(team, old, tmp_path, rank, lines):
    words = ["-m", team, "fit", "--config", CONFIGS / "images.yaml", "--config", old, "--print_config"]
    process = Python(*words, cwd=tmp_path, environment=ranks(2)[rank])
    out, err = process.communicate()
    assert process.wait() == 0, err
    assert "every_n_steps: 3" in out
    line = f"warning: {old}:6: GradientNoiseScale.every is called every_n_steps now; rename it before litlab 0.4.0, "
    assert err.count(line) == err.count("every_n_steps now") == lines


def test_a_run_is_read_under_the_old_name_without_a_word(fit_images, old, tmp_path):
    with pytest.warns(RenamedWarning, match=r"^GradientNoiseScale\.every is called every_n_steps now"):
        done = fit_images("fit", "--config", old, "--test_after_fit=false")
    assert done.code == 0, done.err
    config = tmp_path / "lightning_logs/images/version_0/config.yaml"
    text = config.read_text()
    assert " every_n_steps: 3" in text
    config.write_text(text.replace(" every_n_steps: 3", " every: 3"))  # as a run of the version before
    with warnings.catch_warnings():
        warnings.simplefilter("error", RenamedWarning)
        done = fit_images("validate", "--run", "images")
    assert done.code == 0, done.err


def test_a_flag_is_refused_with_the_new_name(fit_images, old):
    old.write_text(CONFIG.format(name="every_n_steps"))
    done = fit_images("fit", "--config", old, "--trainer.callbacks.every=4")
    assert done.code == 2
    assert "error: --trainer.callbacks.every: GradientNoiseScale has no 'every'; it is called 'every_n_steps' now" in (
        done.err
    )


def test_another_mistake_in_the_file_is_the_one_that_is_named(fit_images, old):
    old.write_text(f"{old.read_text()}    - class_path: GradNorm\n")
    with pytest.warns(RenamedWarning):
        done = fit_images("fit", "--config", old)
    assert done.code == 2
    assert f"error: {old}:7: trainer.callbacks.1: there is no class 'GradNorm'" in done.err


def test_what_a_run_has_saved_has_the_names_of_now(monkeypatch):
    monkeypatch.setitem(renamed.SETTINGS, "Net", {"size": ("width", "9.0.0")})
    saved = {"_class_path": "litlab.tasks.Net", "size": 1, "parts": [{"class_path": "Net", "init_args": {"size": 2}}]}
    assert saved_as_now(saved) == {
        "_class_path": "litlab.tasks.Net", "width": 1, "parts": [{"class_path": "Net", "init_args": {"width": 2}}]
    }  # fmt: skip
    other = {"class_path": "mine.Net", "init_args": {"size": 2}}
    assert saved_as_now(other) == other


def test_no_old_name_outlives_its_version():
    """Delete what fails here, and say so in CHANGELOG.md."""
    ends = [until for names in renamed.SETTINGS.values() for _, until in names.values()]
    for file in (ROOT / "src/litlab").rglob("__init__.py"):
        ends += re.findall(rf'= {renamed_attributes.__name__}\(__name__, "([\d.]+)"', file.read_text())
    here = [int(part) for part in litlab.__version__.split(".")]
    assert ends
    assert all(here < [int(part) for part in until.split(".")] for until in ends)


def test_the_version_is_that_of_the_changelog():
    versions = re.findall(
        r"^## \[([\d.]+)\] - (unreleased|\d{4}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text(), re.M
    )
    assert versions[0][0] == litlab.__version__
    assert [date for _, date in versions[1:] if date == "unreleased"] == []
