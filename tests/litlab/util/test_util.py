"""Small helpers: random numbers, steps of a run, tables in narrow terminals."""

import math

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import GradientAccumulationScheduler
from rich.table import Table

from litlab.util.splitmix import GOLDEN, next_number
from litlab.util.steps import count_steps
from litlab.util.text import print_table

REFERENCE = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]  # of the published generator, from state 0


def test_random_numbers_are_those_of_the_published_generator():
    assert [next_number(number * GOLDEN) for number in range(3)] == REFERENCE


def test_the_last_step_of_an_epoch_may_be_shorter():
    schedule = GradientAccumulationScheduler({0: 2, 1: 3, 4: 1, 9: 7})
    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, callbacks=[schedule])
    sizes = [schedule.get_accumulate_grad_batches(epoch) for epoch in range(12)]
    for epochs in range(13):
        assert count_steps(trainer, 7, epochs) == sum(math.ceil(7 / size) for size in sizes[:epochs])
    assert count_steps(trainer, math.inf, 3) == count_steps(trainer, 7, math.inf) == math.inf


def test_a_table_is_wider_than_the_terminal_rather_than_cut(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "20")
    table = Table("", "a", "b")
    table.add_row("TransformerClassifier", *["1.235e+04"] * 2)
    print_table(table)
    lines = capsys.readouterr().out.splitlines()
    assert lines[3].split("│")[2:-1] == [" 1.235e+04 "] * 2
    assert len({len(line) for line in lines}) == 1

    # A wide column does not take from those whose words are long.
    monkeypatch.setenv("COLUMNS", "60")
    table = Table("", "a")
    table.add_row("some words " * 5, "--trainer.strategy.tensor_parallel_size=2 --trainer.devices=4")
    print_table(table)
    assert "--trainer.strategy.tensor_parallel_size=2 " in capsys.readouterr().out
