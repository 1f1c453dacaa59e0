"""A run of each kind, made once, and what a page must be."""

import re
import shutil
from html import unescape
from pathlib import Path

import pytest

from litlab.runs.folder import RunFolder
from tests.conftest import BRIEF
from tests.litlab.conftest import CONFIGS


class Page:
    """A page of HTML, which loads nothing from elsewhere and runs nothing."""

    def __init__(self, text: str) -> None:
        self.source = text
        self.ids = re.findall(r' id="([^"]+)"', text)
        assert len(self.ids) == len(set(self.ids))
        links = re.findall(r' (?:src|href|srcset)="([^"]*)"', text)
        assert all(
            link.removeprefix("#") in self.ids or link.startswith("data:image/") for link in links
        )
        assert not re.search(r"<(script|link|iframe|object)|<[^>]* on\w+=|url\(|@import", text)
        assert (
            """ content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">""" in text
        )

    @property
    def text(self):
        """What is read, with single spaces."""
        return " ".join(
            unescape(re.sub("<style.*?</style>|<[^>]+>", " ", self.source, flags=re.DOTALL)).split()
        )

    def section(self, name):
        """The source of a section."""
        [section] = re.findall(rf'<section id="{name}">.*?</section>', self.source, re.DOTALL)
        return section


@pytest.fixture
def logs(run, small_data, make_once, monkeypatch, tmp_path) -> Path:
    """Runs, in the folder that commands run in: images, table/version_0 and version_1 (another
    seed), and spend.
    """
    table = f"--config={CONFIGS}/table.yaml"
    callbacks = "--trainer.callbacks=[ConfusionMatrix,Baselines]"
    spend = "--model=Regressor --data.target=spend --experiment=spend"

    def train(folder):
        monkeypatch.chdir(folder)
        for flags in (
            [*small_data["images"], "--model.width=8", callbacks],
            [table],
            [table, "--seed_everything=1"],
            [table, *spend.split()],
        ):
            run("fit", *flags, *BRIEF).check()

    shutil.copytree(make_once("reported", train), tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return Path("lightning_logs")


@pytest.fixture
def report(run, logs):
    """Runs ``report`` and returns the page that it has written."""

    def make(*arguments):
        done = run("report", *arguments).check()
        assert "Traceback" not in done.err
        return Page(Path(done.out.splitlines()[0]).read_text(encoding="utf-8"))

    return make


@pytest.fixture
def images_run(logs) -> RunFolder:
    """The first run of images."""
    return RunFolder(logs / "images/version_0")
