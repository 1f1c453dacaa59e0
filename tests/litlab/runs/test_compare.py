"""`python -m auks compare`."""

import re

import pytest
import yaml

from litlab.errors import UserError
from litlab.runs import compare
from tests.litlab.runs.make import write_group, write_run


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    root = tmp_path / "lightning_logs"
    versions = {"python": "3.11.2", "torch": "2.14.0"}
    write_run(root, "cifar/version_0", best=0.8, test={"test/loss": 2.5}, versions=versions, hours_ago=5)
    write_run(root, "cifar/version_1", best=0.9, test={"test/loss": 3.5}, width=32, dirty=True,
              versions={**versions, "torch": "2.15.0"}, commit="f" * 40)  # fmt: skip
    return root


def show(capsys, *arguments: str) -> dict[str, list[str]]:
    """The cells of each row that is printed, by its first one."""
    assert compare.main([*arguments]) == 0
    lines = [re.split(" {2,}", line.strip()) for line in capsys.readouterr().out.splitlines() if line.strip()]
    return {name: row for name, *row in lines}


def test_runs_side_by_side(root, capsys):
    """What differs: a group is one column, and a run may lack what another has."""
    write_group(root, "cifar/seeds_0", [0.8, 0.9], width=64, hours_ago=9)
    old = write_run(root, "old/version_0")
    callbacks = [{"class_path": "litlab.callbacks.VRAM"}, {"class_path": "a.Pictures", "init_args": {"images": 32}}]
    model = {"class_path": "a.B", "init_args": {"num_layers": 3}}
    old.config.write_text(yaml.safe_dump({"model": model, "trainer": {"callbacks": callbacks}}))
    old.metrics.unlink()
    rows = show(capsys, "cifar/version_0", "cifar/version_1", "cifar/seeds_0", "old")
    expected = {
        "model.width": ["16", "32", "64", "-"],
        "model": ["SmallCNN", "SmallCNN", "SmallCNN", "B"],
        "model.num_layers": ["-", "-", "-", "3"],
        "trainer.callbacks.Pictures.images": ["-", "-", "-", "32"],
        "val/acc": ["0.8", "0.9", "0.85 ± 0.05", "-"],
        "test/loss": ["2.5", "3.5", "-", "-"],
        "versions.torch": ["2.14.0", "2.15.0", "-", "-"],
        "dirty": ["false", "true", "false", "false"],
    }
    assert {name: rows.get(name) for name in expected} == expected
    two = show(capsys, "cifar/version_0", "cifar/version_1")
    assert not {"seed_everything", "model", "versions.python", "command", "started"} & two.keys()


@pytest.mark.parametrize(
    ("other", "line"),
    [
        ("cifra", "cifra: there is no such run; did you mean 'cifar'"),
        ("lost", "lost/version_0/config.yaml: no such file"),
        ("bad", "bad/version_0/provenance.json: it holds no JSON object"),
    ],
)
def test_what_can_not_be_compared(root, other, line):
    write_run(root, "lost/version_0", hours_ago=9).config.unlink()
    write_run(root, "bad/version_0", hours_ago=9).provenance.write_text("{")
    with pytest.raises(UserError, match=line):
        compare.main(["cifar", other])
