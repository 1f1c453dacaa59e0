"""What sweep files may say, and how they are refused."""

import pytest
import yaml

from litlab.commands.sweep.space import Entry, list_corners, list_points, make_overlay
from litlab.commands.sweep.spec import read_spec
from litlab.commands.sweep.study import open_storage
from litlab.errors import UserError

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
CONTENT = """
base: base.yaml
metric: val/acc
trials: 3
space:
  model.width: {low: 32, high: 64, step: 16}
  model.optimizer:
    choices:
      muon: {class_path: Muon}
      adamw: {class_path: AdamW, init_args: {eps: 0.000001}}
  model.optimizer.lr: {low: 0.0001, high: 0.1, log: true}
  model.optimizer.momentum: {low: 0.1, high: 0.3, step: 0.1}
  data.pooling: {choices: [null, [mean, max]]}
"""


@pytest.fixture
def read(tmp_path):
    (tmp_path / "base.yaml").write_text("{}")

    def read_file(**content):
        file = tmp_path / "tiny.yaml"
        file.write_text(yaml.safe_dump(yaml.safe_load(CONTENT) | content, sort_keys=False))
        return read_spec(file)

    return read_file


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"metrics": "val/acc"}, "metrics: there is no such key; did you mean 'metric'?"),
        ({"name": "x" * 300}, "name: it names a folder"),
        (
            {"direction": "minimize"},
            "minimize would find the worst val/acc; set maximize",
        ),
        (
            {"metric": "val/mine"},
            "direction: it is not known whether",
        ),
        ({"seeds": True}, "seeds: True is not valid"),
        ({"hours": 0}, "hours: 0 is not valid"),
        ({"sampler": "grid"}, "space.model.optimizer.lr: a grid needs a step"),
        ({"settings": {"seed_everything": 3}}, "seed_everything: the sweep sets it"),
        ({"space": {"a": {"low": 0.1, "high": 1.0, "step": 0}}}, "space.a: `step > 0` must hold"),
        ({"space": {"a": {"choices": [1, 1.0]}}}, "space.a: '1.0' equals an earlier choice"),
    ],
)
def test_refused(read, content, words):
    with pytest.raises(Exception, match=r"tiny\.yaml: ") as caught:
        read(**content)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_points_and_overlays(read):
    """Conditions, blocks with values inside, even steps, choices that are lists."""
    space = read().space
    corners = list_corners(space)
    ends = ({"model.optimizer": "muon", "model.optimizer.lr": 1e-4},
            {"model.optimizer": "adamw", "model.optimizer.lr": 0.1})  # fmt: skip
    assert all(point in corners for point in ends)
    grid = {path: entry for path, entry in space.items() if path != "model.optimizer.lr"}
    assert len(list_points(grid, Entry.grid)) == 3 * 2 * 3 * 2

    point = ends[1] | {"model.optimizer.lr": 0.1 + 0.2, "data.pooling": '["mean", "max"]'}
    block = {"class_path": "AdamW", "init_args": {"eps": 1e-6, "lr": 0.3}}
    assert make_overlay(space, point) == {"model.optimizer": block, "data.pooling": ["mean", "max"]}


@pytest.mark.parametrize(
    "space", [{"model.hidden_sise": [8]}, {"data.batch_size": [8, "nonsense"]}], ids=str
)
def test_refused_before_the_first_trial(sweep, space):
    outcome = sweep.start(space={path: {"choices": choices} for path, choices in space.items()})
    assert (outcome.code, outcome.err.count("error: ")) == (2, 1)
    assert "tiny.yaml: space: " in outcome.err
    assert not sweep.kept.exists()


def test_a_storage_that_can_not_be_opened(tmp_path, monkeypatch):
    monkeypatch.setenv("LITLAB_SWEEP_STORAGE", "postgresql://me:secret@127.0.0.1:9/x")
    with pytest.raises(
        UserError, match="LITLAB_SWEEP_STORAGE: the study can't be opened"
    ) as refused:
        open_storage(tmp_path)
    assert "secret" not in str(refused.value)
