"""A run of each kind, made once, and what a page must be."""

import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

from litlab.runs.folder import RunFolder
from tests.conftest import Outcome, command
from tests.litlab.conftest import CONFIGS

VOID = {"meta", "img", "br", "hr", "input", "link", "wbr"}
QUIET = ["--trainer.accelerator=cpu", "--trainer.log_every_n_steps=1"]


class Page(HTMLParser):
    """A page of HTML, which must be well-formed: tags balanced, ids once, attributes once, nothing from elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.source = text
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.tags: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []
        assert len(self.ids) == len(set(self.ids))
        assert {link[1:] for link in self.links if link.startswith("#")} <= set(self.ids)
        assert [link for link in self.links if not link.startswith(("#", "data:image/"))] == []
        assert not {"script", "link", "iframe", "object"} & set(self.tags)
        assert """ content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">""" in text
        assert "url(" not in text
        assert "@import" not in text

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), (tag, attrs)
        assert not [name for name in names if name.startswith("on")], attrs
        self.tags.append(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "srcset")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        """What is read, with single spaces."""
        return " ".join(" ".join(self.words).split())

    def section(self, name: str) -> str:
        """The source of a section."""
        found = re.search(rf'<section id="{name}">.*?</section>', self.source, re.DOTALL)
        assert found, f"no section {name}: {self.ids}"
        return found[0]


@pytest.fixture(scope="session")
def fitted(images, texts, series, tmp_path_factory) -> Path:
    """Runs: images/version_0 to version_2 (other seeds), text, series, table and spend."""
    folder = tmp_path_factory.mktemp("reported")
    image_data = ["--data.dataset=folder", f"--data.path={images}", "--trainer.max_epochs=2"]
    confusions = "--trainer.callbacks=[{class_path: ConfusionMatrix}]"
    fits = [
        ("images", *image_data, "--model.width=8", confusions),
        ("images", *image_data, "--model.width=8", confusions, "--seed_everything=1"),
        ("images", *image_data, "--model.width=8", confusions, "--seed_everything=2"),
        ("text", "--data.dataset=csv", f"--data.path={texts}", "--trainer.callbacks=[{class_path: Baselines}]"),
        ("series", "--data.dataset=csv", f"--data.path={series}", "--data.val_fraction=0.2", "--data.targets=null",
         "--trainer.max_epochs=1"),
        ("table",),
        ("table", "--model=Regressor", "--data.target=spend", "--experiment=spend"),
    ]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        torch.set_num_threads(1)
        for name, *flags in fits:
            assert command(patch, "fit", "--config", CONFIGS / f"{name}.yaml", *QUIET, *flags, package="auks") == 0
    return folder / "lightning_logs"


@pytest.fixture
def logs(run, fitted, tmp_path) -> Path:
    """A copy of those runs, in the folder that commands run in."""
    shutil.copytree(fitted, tmp_path / "lightning_logs")
    return Path("lightning_logs")


@pytest.fixture
def report(run, logs) -> Callable[..., Page]:
    """Runs ``report`` and returns the page that it has written."""

    def make(*arguments: object) -> Page:
        done: Outcome = run("report", *arguments)
        assert done.code == 0, done.err
        assert "Traceback" not in done.err
        return Page(Path(done.out.splitlines()[0]).read_text(encoding="utf-8"))

    return make


@pytest.fixture
def images_run(logs) -> RunFolder:
    """The first run of images."""
    return RunFolder(logs / "images/version_0")
