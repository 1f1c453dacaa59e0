"""Tables in narrow terminals."""

import pytest
from rich.console import Console

from litlab.callbacks.baselines import comparison
from litlab.util.text import print_table


@pytest.mark.parametrize("width", [20, 40, 160])
def test_a_table_is_wider_than_the_terminal_rather_than_cut(width):
    rows = {name: {f"test/{metric}": 12345.678 for metric in "abcdefg"} for name in ("TransformerClassifier", "naive")}
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        print_table(comparison(rows), console)
    lines = capture.get().splitlines()
    assert [line.split("│")[2:-1] for line in lines[3:5]] == [[" 1.235e+04 "] * 7] * 2
    assert len({len(line) for line in lines}) == 1
