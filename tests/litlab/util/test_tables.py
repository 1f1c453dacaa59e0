"""Tables in terminals of all widths."""

import re

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from litlab.callbacks import RunSummary
from litlab.callbacks.baselines import comparison
from litlab.util.tables import Fitted

WIDTHS = (20, 30, 40, 60, 80, 100, 200)


def shown(table: Table, width: int) -> str:
    console = Console(width=width, color_system=None, highlight=False)
    with console.capture() as capture:
        console.print(Fitted(table))
    return capture.get()


def summary() -> Table:
    made = RunSummary()
    made._results = {"test/a_metric_with_a_long_name_per_class": 1.2345e-7, "test/acc": 0.8871}
    made._rows = {"best val/acc": "0.7512 (epoch 12)", "samples/s": "12,345 (median)", "run folder": "[red]/" * 20}
    return made.table()


def baselines() -> Table:
    names = ("mse", "mae", "mae_units", "mase", "coverage", "width", "a_long_name_of_something")
    rows = {name: {f"test/{metric}": 12345.678 for metric in names} for name in ("TransformerClassifier", "naive")}
    return comparison({**rows, "other": {"test/mse": -1e-9}})


def side_by_side(names: list[str], rows: dict[str, list[str]]) -> Table:
    table = Table("", *names, box=None, pad_edge=False)
    for name, cells in rows.items():
        table.add_row(name, *cells)
    return table


def many_runs() -> Table:
    losses = [f"{2.5 + number}" for number in range(6)]
    rows = {"best val/acc": ["0.81"] * 6, "test/loss": losses, "minutes": ["90.00 (3 epochs)"] * 6}
    return side_by_side([f"an_experiment/version_{number}" for number in range(6)], rows)


TABLES = {
    "summary": (summary, ["1.235e-07", "0.8871", "0.7512", "12,345", "12"]),
    "baselines": (baselines, ["1.235e+04", "-1.000e-09"]),
    "many runs": (many_runs, ["0.81", "2.5", "7.5", "90.00"]),
    "settings": (
        lambda: side_by_side(["a/version_1", "b/version_2"], {"optimizer.lr": ["0.00123", "\\[0.9, 0.95]"]}),
        ["0.00123", "0.95"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", TABLES)
def test_all_numbers_stay_whole(name, width):
    make, numbers = TABLES[name]
    text = shown(make(), width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for number in numbers:
        assert re.search(rf"(?<![\d.]){re.escape(number)}(?![\d.])", text), f"{number} in\n{text}"


def test_a_table_may_be_shown_in_several_widths():
    table = baselines()
    wide = shown(table, 200)
    assert len(wide.splitlines()) == 7
    assert "  mae_units: 1.235e+04" in shown(table, 40)
    assert shown(table, 200) == wide


def test_words_fold_before_rows_become_blocks():
    table = Table("name", "value", box=None)
    table.add_row(Text("a_name_of_24_characters_"), Text("0.5 (epoch 3)"))
    assert [line.split() for line in shown(table, 22).splitlines()] == [
        ["name", "value"], ["a_name_of", "0.5"], ["_24_chara", "(epoch", "3)"], ["cters_"],
    ]  # fmt: skip
    assert shown(table, 12).split() == ["a_name_of_24", "_characters_", "value:", "0.5", "(epoch", "3)"]


def test_what_is_no_markup_is_shown_as_it_is():
    assert shown(summary(), 400).count("[red]/") == 20
