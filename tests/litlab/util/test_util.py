"""Helpers that all rooms share: random numbers, steps, tables, memory, directions of metrics,
YAML.
"""

import math
import sys

import pytest
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import GradientAccumulationScheduler
from rich.table import Table
from torch import nn
from torchmetrics.classification import MulticlassAccuracy, MulticlassHingeLoss

from litlab.errors import UserError
from litlab.metrics import StageMetrics
from litlab.util.metrics import choose_mode, metric_direction
from litlab.util.splitmix import GOLDEN, next_number
from litlab.util.steps import count_steps, epochs_of_run
from litlab.util.text import decimals, print_table
from litlab.util.yaml import dump_config, find_line, read_mapping
from tests.processes import Python

# Of the published generator, from state 0
REFERENCE = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_random_numbers_are_those_of_the_published_generator():
    assert [next_number(number * GOLDEN) for number in range(3)] == REFERENCE


def test_the_last_step_of_an_epoch_may_be_shorter():
    schedule = GradientAccumulationScheduler({0: 2, 1: 3, 4: 1, 9: 7})
    trainer = Trainer(
        accelerator="cpu", logger=False, enable_checkpointing=False, callbacks=[schedule]
    )
    sizes = [schedule.get_accumulate_grad_batches(epoch) for epoch in range(12)]
    for epochs in range(13):
        assert count_steps(trainer, 7, epochs) == sum(
            math.ceil(7 / size) for size in sizes[:epochs]
        )
    assert count_steps(trainer, math.inf, 3) == count_steps(trainer, 7, math.inf) == math.inf


@pytest.mark.parametrize(
    ("settings", "epochs"),
    [
        ({"max_epochs": 3}, 3),
        ({"max_steps": 14, "max_epochs": -1}, 2),
        ({"max_steps": 10, "max_epochs": 5, "accumulate_grad_batches": 2}, 2.5),
        (
            {
                "max_steps": 11,
                "callbacks": [GradientAccumulationScheduler({0: 1, 1: 3})],
                "max_epochs": -1,
            },
            2 + 1 / 3,
        ),
        ({"max_steps": 14, "max_epochs": 1}, 1),
        ({"max_time": {"seconds": 60}, "max_epochs": -1}, math.inf),
    ],
)
def test_epochs_of_a_run_of_seven_batches(monkeypatch, settings, epochs):
    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, **settings)
    monkeypatch.setattr(trainer.fit_loop, "setup_data", lambda: None)
    trainer.fit_loop.max_batches = 7
    assert epochs_of_run(trainer) == pytest.approx(epochs)


def test_a_table_is_wider_than_the_terminal_rather_than_cut(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "20")
    table = Table("", "a", "b")
    table.add_row("TransformerClassifier", *["1.235e+04"] * 2)
    print_table(table)
    lines = capsys.readouterr().out.splitlines()
    assert lines[3].split("│")[2:-1] == [" 1.235e+04 "] * 2

    # A wide column does not take from those whose words are long.
    monkeypatch.setenv("COLUMNS", "60")
    table = Table("", "a")
    table.add_row(
        "some words " * 5, "--trainer.strategy.tensor_parallel_size=2 --trainer.devices=4"
    )
    print_table(table)
    assert "--trainer.strategy.tensor_parallel_size=2 " in capsys.readouterr().out

    # One whose words fit is no wider than the terminal, and has no spaces at its end.
    monkeypatch.setenv("COLUMNS", "40")
    table = Table("", "a", "b", box=None, pad_edge=False)
    table.add_row("word " * 9, "one two " * 5, "x" * 12)
    print_table(table)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 40
    assert [line for line in lines if line.endswith(" ")] == []


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.888, "0.8880"), (0.0, "0.000"), (12.0, "12.00"), (999.96, "1000"), (12345.6, "12346"),
     (1e-5, "1.000e-05"), (2.5e9, "2.500e+09"), (-3.0, "-3.000"), (math.nan, "nan"),
     (None, "-")],
)  # fmt: skip
def test_numbers_have_four_digits(value, text):
    assert decimals(value) == text


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


KNOWN = {
    "val/loss": "min",
    "train/acc": "max",
    "test/r2": "max",
    "val/mae_price": "min",
    "val/r2_price": "max",
    "test/mse_5": "min",
    "val/mine": "min",
    "val/loss_of_mine": "max",
}
UNKNOWN = ["val/coverage", "loss", "val/accident", "val/loss_weighted", "epoch"]


def test_direction():
    model = nn.Module()
    further = {"mine": MulticlassHingeLoss(3), "loss_of_mine": MulticlassAccuracy(3)}
    model.val_metrics = StageMetrics("val", {"acc": MulticlassAccuracy(3)}, further=further)
    assert {
        name: metric_direction(name, model) for name in [*KNOWN, *UNKNOWN]
    } == KNOWN | dict.fromkeys(UNKNOWN)


@pytest.mark.parametrize(
    ("mode", "monitor", "says"),
    [
        ("max", "val/loss", "val/loss is better when lower; set min, or leave mode out"),
        (
            None,
            "val/score",
            "it is not known whether val/score is better when lower or higher; set",
        ),
    ],
)
def test_mode(mode, monitor, says):
    assert choose_mode("checkpoint.mode", None, "val/acc") == "max"
    assert choose_mode("checkpoint.mode", "min", "val/score") == "min"
    with pytest.raises(UserError, match=f"^checkpoint.mode: {says}"):
        choose_mode("checkpoint.mode", mode, monitor)


def test_what_values_mean(tmp_path):
    file = tmp_path / "a.yaml"
    text = (
        "a: 1e-3\nb: -1E4\nc: .5\nd: 1_000\ne: .inf\nf: 2024-01-31\ng: 1,5\nh: 7\ni: 0x10\nj: "
        "Grüße\n"
    )
    file.write_text(text, encoding="utf-8-sig")
    values = [0.001, -10000.0, 0.5, 1000, float("inf"), "2024-01-31", "1,5", 7, 16, "Grüße"]
    assert list(read_mapping(file).values()) == values
    file.write_text("base: &b {x: 1, y: [1, 2]}\nuse: {<<: *b, x: 2}\n")
    assert read_mapping(file)["use"] == {"x": 2, "y": [1, 2]}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("trainer: {a: 1}\nx: 1\ntrainer: {b: 2}\n", ":3: not valid YAML: trainer is there twice"),
        (
            "a: !!python/object/apply:os.system [ls]\n",
            ":1: not valid YAML: could not determine a constructor",
        ),
        ("a: 1\n---\nb: 2\n", "a.yaml:2: not valid YAML: but found another document"),
        ("", ": it holds no keys and values; write some, such as trainer: {max_epochs: 3}"),
        (
            "name: Grüße".encode("latin-1"),
            ": it can't be read (it is not UTF-8); give a YAML file in UTF-8",
        ),
    ],
    ids=range(5),
)
def test_a_mistake_is_one_line_with_its_place(tmp_path, content, says):
    file = tmp_path / "a.yaml"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(UserError) as caught:
        read_mapping(file)
    assert says in str(caught.value)


def test_the_line_of_a_key_is_found_through_classes(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text(
        "model:\n  class_path: Mine\n  init_args:\n    optimizer:\n      init_args:\n  "
        "      lr: 1\n"
    )
    assert find_line(file, "model.optimizer.lr") == 6
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
