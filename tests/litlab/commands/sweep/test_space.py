"""Entries, conditions, overlays and the points that are checked."""

import subprocess
import sys

import optuna
import pytest

from litlab.commands.sweep.space import corner_points, grid, overlay, suggest
from tests.litlab.commands.sweep.studies import choice, search_range

OPTIMIZERS = {"sgd": {"class_path": "SGD", "init_args": {"momentum": 0.9}}, "adam": {"class_path": "Adam"}}
SPACE = {
    "model.width": search_range(8, 32, step=8),
    "model.optimizer": choice(OPTIMIZERS),
    "model.optimizer.lr": search_range(1e-3, 1e-1, log=True),
    "model.optimizer.nesterov": choice({True: True, False: False}, when={"model.optimizer": ["sgd"]}),
}


def test_conditions_decide_what_is_asked():
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    seen = {}
    for _ in range(20):
        values = suggest(SPACE, study.ask())
        seen[values["model.optimizer"]] = values
    assert list(seen["sgd"]) == list(SPACE)
    assert list(seen["adam"]) == list(SPACE)[:3]
    assert isinstance(seen["adam"]["model.width"], int)
    assert seen["adam"]["model.width"] % 8 == 0


def test_overlay_puts_values_into_the_block_they_belong_to():
    values = {"model.optimizer.lr": 0.01, "model.optimizer": "sgd", "model.width": 8}
    block = {"class_path": "SGD", "init_args": {"momentum": 0.9, "lr": 0.01}}
    assert overlay(SPACE, values) == {"model.width": 8, "model.optimizer": block}
    assert OPTIMIZERS["sgd"]["init_args"] == {"momentum": 0.9}


def test_steps_are_written_as_people_would():
    space = {"model.dropout": search_range(0.0, 0.3, step=0.05)}
    assert overlay(space, {"model.dropout": 3 * 0.05}) == {"model.dropout": 0.15}
    assert overlay(space, {"model.dropout": 1 / 3 * 1e-9})["model.dropout"] == pytest.approx(1e-9 / 3, rel=1e-11)


def test_overlay_of_a_class_by_name_and_of_nested_blocks():
    space = {
        "model.optimizer": choice({"Adam": "Adam"}),
        "model.optimizer.lr": search_range(0.1, 0.2),
        "model.schedule": choice({"a": {"scheduler": {"class_path": "W"}, "interval": "step"}}),
        "model.schedule.scheduler.warmup": search_range(0.1, 0.2),
    }
    values = {"model.optimizer": "Adam", "model.optimizer.lr": 0.1, "model.schedule": "a"}
    assert overlay(space, {**values, "model.schedule.scheduler.warmup": 0.2}) == {
        "model.optimizer": {"class_path": "Adam", "init_args": {"lr": 0.1}},
        "model.schedule": {"scheduler": {"class_path": "W", "init_args": {"warmup": 0.2}}, "interval": "step"},
    }


def test_grid_has_every_point_once_and_knows_conditions():
    space = {name: entry for name, entry in SPACE.items() if name != "model.optimizer.lr"}
    points = list(grid(space))
    assert len(points) == 4 * (2 + 1)
    assert {tuple(point.items()) for point in points} == {tuple(point.items()) for point in points}
    assert sum("model.optimizer.nesterov" in point for point in points) == 8


@pytest.mark.parametrize(
    ("entry", "values"),
    [
        (search_range(1, 3), [1, 2, 3]),
        (search_range(0.0, 0.3, step=0.1), [0.0, 0.1, 0.2, 0.3]),
        (choice({"a": 1, None: None}), ["a", None]),
    ],
)
def test_grid_of_an_entry(entry, values):
    assert entry.grid() == values if entry.choices else entry.grid() == pytest.approx(values)


def test_corner_points_hold_every_corner_with_all_that_it_depends_on():
    points = corner_points(SPACE)
    asked = {(path, value) for point in points for path, value in point.items()}
    assert asked == {
        ("model.width", 8), ("model.width", 32), ("model.optimizer", "sgd"), ("model.optimizer", "adam"),
        ("model.optimizer.lr", 1e-3), ("model.optimizer.lr", 1e-1),
        ("model.optimizer.nesterov", True), ("model.optimizer.nesterov", False),
    }  # fmt: skip
    pair = ("model.optimizer", "model.optimizer.lr")
    with_block = {(point[pair[0]], point[pair[1]]) for point in points if pair[1] in point}
    assert with_block == {("sgd", 1e-3), ("sgd", 1e-1), ("adam", 1e-3), ("adam", 1e-1)}
    assert all(point["model.optimizer"] == "sgd" for point in points if "model.optimizer.nesterov" in point)
    assert len(points) < 8


def test_command_imports_neither_torch_nor_lightning():
    """Ten seconds of a core and half a GB; only the server that fits are forked from needs them. Nor plotly."""
    names = ("sweep", "check", "workers", "table", "report")
    modules = ", ".join(f"litlab.commands.sweep.{name}" for name in names)
    code = f"import sys, {modules}; print({{'torch', 'lightning', 'plotly'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
