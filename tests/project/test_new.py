"""``new`` and ``remove`` in this project: docs/experiments.md shows what they do, and they leave alone what is here."""

import re
import shutil
from pathlib import Path

import pytest

from litlab.commands.scaffold.new import KINDS, planned
from litlab.commands.scaffold.remove import planned as plan_of_removal
from litlab.commands.scaffold.tree import here
from litlab.errors import UserError
from tests.conftest import CONFIGS, ROOT

EXPERIMENTS = sorted(CONFIGS.glob("*.yaml"))
PAGE = (ROOT / "docs/experiments.md").read_text()
NAME = "mine"  # on the page
FILES = re.compile(rf"^`(\S+/(?:test_)?{NAME}\.\w+)`(?:(?!^```).)*^```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def root(monkeypatch) -> Path:
    """The working directory of the commands, which only plan here."""
    monkeypatch.chdir(ROOT)
    return ROOT


@pytest.mark.parametrize("own_data", [True, False], ids=["own", "only"])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_here_is_in_the_way(root, kind, own_data):
    files = planned(here("new"), f"brand_new_{kind}", kind, own_data)
    assert not [path for path in files if path.name == "__init__.py"], "the folders are packages already"


def test_no_experiment_is_written_twice(root):
    project = here("new")
    for config in EXPERIMENTS:
        with pytest.raises(UserError):
            planned(project, config.stem, "linear", own_data=False)


def test_an_experiment_that_others_use_is_not_removed(root):
    """As most are: by other experiments, or by the tests of the commands."""
    project = here("remove")
    try:
        gone = plan_of_removal(EXPERIMENTS[0].stem, project).files
    except UserError as error:
        said = str(error)
    else:
        texts = [path.read_text() for path in project.files if path not in gone]
        assert not any(EXPERIMENTS[0].name in text for text in texts)
        return
    assert said.endswith(" by hand, as docs/experiments.md, 'Removing an experiment', says")
    assert "\n## Removing an experiment\n" in PAGE


def test_the_page_shows_what_is_written(root):
    """The page writes `mine`, which may be here: whoever reads the README types it."""
    planned_now = planned(here("new"), f"x{NAME}", "cifar", own_data=True)
    files = {str(path).replace(f"x{NAME}", NAME): text for path, (text, _) in planned_now.items()}
    shown = FILES.findall(PAGE.partition("## Parts of a network")[0])
    assert [name for name, _ in shown] == [
        f"src/project/networks/{NAME}.py", f"configs/{NAME}.yaml", f"tests/project/test_{NAME}.py"
    ]  # fmt: skip
    for name, text in shown:
        assert text == files[name].replace(f"x{NAME}", NAME).replace(f"X{NAME}", NAME.capitalize()), name


def test_the_page_shows_what_is_printed(run, tmp_path, monkeypatch):
    """What it shows is written beside the files that are here, and removed again."""
    ignored = shutil.ignore_patterns("__pycache__", f"*{NAME}.*", f"{NAME.capitalize()}*")
    for name in ("src/project", "configs/with", "tests/project"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr("litlab.commands.scaffold.tree.package_folder", lambda: tmp_path / "src/project")
    typed, printed = re.findall(r"^```(?:bash|text)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[:2]
    done = run(*typed.split()[3:])
    assert (done.code, done.err) == (0, "")
    assert done.out.split() == printed.split()
    done = run("remove", NAME, "--yes")
    assert (done.code, done.err) == (0, "")
    assert sorted(tmp_path.rglob("*")) == before
