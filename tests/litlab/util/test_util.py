"""Helpers that all rooms share: random numbers, steps, tables, memory, directions of metrics,
YAML.
"""

import math
import sys

import pytest
from lightning.pytorch.callbacks import GradientAccumulationScheduler
from rich.table import Table
from torch import nn
from torchmetrics.classification import MulticlassAccuracy, MulticlassHingeLoss

from litlab.metrics import StageMetrics
from litlab.util.metrics import metric_direction
from litlab.util.splitmix import GOLDEN, next_number
from litlab.util.steps import count_steps, epochs_of_run
from litlab.util.text import format_column, print_table
from litlab.util.yaml import dump_config, find_line, read_mapping
from tests.litlab.callbacks.tiny import make_trainer
from tests.litlab.data.conftest import refusal
from tests.processes import Python

# Of the published generator, from state 0
REFERENCE = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_random_numbers_are_those_of_the_published_generator():
    assert [next_number(number * GOLDEN) for number in range(3)] == REFERENCE


def test_the_last_step_of_an_epoch_may_be_shorter():
    schedule = GradientAccumulationScheduler({0: 2, 1: 3, 4: 1, 9: 7})
    trainer = make_trainer(None, callbacks=[schedule])
    sizes = [2, 3, 3, 3, 1, 1, 1, 1, 1, 7, 7, 7]
    for epochs in range(13):
        steps = sum(math.ceil(7 / size) for size in sizes[:epochs])
        assert count_steps(trainer, 7, epochs) == steps
    assert count_steps(trainer, math.inf, 3) == count_steps(trainer, 7, math.inf) == math.inf


@pytest.mark.parametrize(
    ("settings", "epochs"),
    [
        ({"max_epochs": 3}, 3),
        ({"max_steps": 14}, 2),
        ({"max_steps": 10, "max_epochs": 5, "accumulate_grad_batches": 2}, 2.5),
        ({"max_steps": 11, "callbacks": [GradientAccumulationScheduler({0: 1, 1: 3})]}, 2 + 1 / 3),
        ({"max_steps": 14, "max_epochs": 1}, 1),
        ({"max_time": {"seconds": 60}}, math.inf),
    ],
)
def test_epochs_of_a_run_of_seven_batches(monkeypatch, settings, epochs):
    trainer = make_trainer(None, **{"max_epochs": -1, **settings})
    monkeypatch.setattr(trainer.fit_loop, "setup_data", lambda: None)
    trainer.fit_loop.max_batches = 7
    assert epochs_of_run(trainer) == pytest.approx(epochs)


def test_a_table_is_wider_than_the_terminal_rather_than_cut(monkeypatch, capsys):
    def print_row(columns, *cells, **options):
        monkeypatch.setenv("COLUMNS", str(columns))
        table = Table("", "a", "b", **options)
        table.add_row(*cells)
        print_table(table)
        return capsys.readouterr().out

    printed = print_row(20, "TransformerClassifier", "1.235e+04", "1.235e+04")
    assert "│ 1.235e+04 │ 1.235e+04 │" in printed
    # A wide column does not take from those whose words are long.
    flags = "--trainer.strategy.tensor_parallel_size=2 --trainer.devices=4"
    assert "--trainer.strategy.tensor_parallel_size=2 " in print_row(60, "some words " * 5, flags)
    # One whose words fit is no wider than the terminal, and has no spaces at its end.
    cells = "word " * 9, "one two " * 5, "x" * 12
    for line in print_row(40, *cells, box=None, pad_edge=False).splitlines():
        assert len(line) <= 40
        assert line == line.rstrip()


@pytest.mark.parametrize(
    "column",
    [{1.0: "1.0000", 0.81818: "0.8182", 0.009642: "0.0096", 0.0: "0.0000", None: "-"},
     {0.009642: "0.009642", 0.0: "0.000000"}, {99.9996: "100.00", -9.81: "-9.81"},
     {12345.6: "12346", 275.31: "275", 0.306: "0.3060", math.nan: "nan"},
     {1.0: "1.0000", 1e-5: "1.000e-05"}, {2.5e9: "2.500e+09"}],
)  # fmt: skip
def test_numbers_of_a_column_have_equally_many_decimals(column):
    assert format_column([*column]) == [*column.values()]


FAULTS = """
import resource
import torch
from litlab.util.device import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        torch.ones(2**24)  # 64 MiB: 16,384 pages, or fewer where they are huge
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

torch.ones(2**24)
print(faults(), keep_freed_memory(), [faults() for _ in range(5)][-1])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it is a setting of glibc")
def test_freed_memory_is_kept(tmp_path):
    (tmp_path / "faults.py").write_text(FAULTS)
    before, kept, after = Python(tmp_path / "faults.py", cwd=tmp_path).communicate()[0].split()
    if kept == "False":
        pytest.skip("this libc has no mallopt")
    assert 2 * int(after) < int(before)
    assert int(after) < 100


DIRECTIONS = {
    "min": "val/loss val/mae_price test/mse_5 val/mine",
    "max": "train/acc test/r2 val/r2_price val/loss_of_mine",
    None: "val/coverage loss val/accident val/loss_weighted epoch",
}


def test_direction():
    model = nn.Module()
    further = {"mine": MulticlassHingeLoss(3), "loss_of_mine": MulticlassAccuracy(3)}
    model.val_metrics = StageMetrics("val", {"acc": MulticlassAccuracy(3)}, further=further)
    for direction, names in DIRECTIONS.items():
        assert {metric_direction(name, model) for name in names.split()} == {direction}


def test_what_values_mean(tmp_path):
    file = tmp_path / "a.yaml"
    text = "a: [1e-3, -1E4, .5, 1_000, .inf, 2024-01-31, 7, 0x10, Grüße]\nb: 1,5\n"
    file.write_text(text, encoding="utf-8-sig")
    values = [0.001, -10000.0, 0.5, 1000, math.inf, "2024-01-31", 7, 16, "Grüße"]
    assert read_mapping(file) == {"a": values, "b": "1,5"}
    file.write_text("base: &b {x: 1, y: [1, 2]}\nuse: {<<: *b, x: 2}\n")
    assert read_mapping(file)["use"] == {"x": 2, "y": [1, 2]}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"trainer: {a: 1}\nx: 1\ntrainer: {b: 2}\n", ":3: not valid YAML: trainer is there twice"),
        (b"a: !!python/object/apply:os.system [ls]\n", ":1: not valid YAML: could not determine"),
        (b"a: 1\n---\nb: 2\n", "a.yaml:2: not valid YAML: but found another document"),
        (b"", ": it contains no keys and values; write some"),
        (b"name: Gr\xfc\xdfe", ": it can't be read (it is not UTF-8)"),
    ],
    ids=range(5),
)
def test_a_mistake_is_one_line_with_its_place(tmp_path, content, says):
    file = tmp_path / "a.yaml"
    file.write_bytes(content)
    assert says in refusal(read_mapping, file)


def test_the_line_of_a_key_is_found_through_classes(tmp_path):
    file = tmp_path / "a.yaml"
    text = "model:\n  class_path: Mine\n  init_args:\n    optimizer: {init_args: {\n      lr: 1}}\n"
    file.write_text(text)
    assert find_line(file, "model.optimizer.lr") == 5
    assert find_line(file, "model.optimizer.beta") is None


def test_a_config_is_read_back_as_it_was_written(tmp_path):
    """Numbers of a list stand in one line, whatever is in the other settings."""
    settings = {
        "model": {"edges": [[0.5, 1e-8], []], "names": ["ja", "nein", "a: b", "#", "1e-3", "ü"]},
        "data": {"path": "C:\\x", "none": None, "rules": [{"params": "*.x", "lr": 2.0}, [1, [2]]]},
    }
    (tmp_path / "config.yaml").write_text(text := dump_config(settings), encoding="utf-8")
    assert read_mapping(tmp_path / "config.yaml") == settings
    assert "- [0.5, 1.0e-08]" in text
