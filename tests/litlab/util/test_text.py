"""Tables in narrow terminals."""

import pytest
from rich.console import Console
from rich.table import Table

from litlab.util.text import print_table


@pytest.mark.parametrize("width", [20, 40, 160])
def test_a_table_is_wider_than_the_terminal_rather_than_cut(width):
    table = Table("", *"abcdefg")
    for name in ("TransformerClassifier", "naive"):
        table.add_row(name, *["1.235e+04"] * 7)
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        print_table(table, console)
    lines = capture.get().splitlines()
    assert [line.split("│")[2:-1] for line in lines[3:5]] == [[" 1.235e+04 "] * 7] * 2
    assert len({len(line) for line in lines}) == 1
