"""The drawings of a page, as SVG. They are drawn on white; the page inverts them for readers in dark mode."""

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from litlab.runs.page import encode

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE: Any = {"svg.hashsalt": "litlab", "svg.fonttype": "none", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3}
Line = tuple[str, Any, Any, str]  # label, x, y, and matplotlib's format such as "C0--"


def draw_lines(lines: Sequence[Line], x_label: str) -> str:
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        labels = [label for label, *_ in lines if label]
        figure = Figure(figsize=(4.4, 2.6 + 0.15 * len(labels)), layout="constrained")
        axes = figure.add_subplot(xlabel=x_label)
        for label, x, y, line in lines:
            axes.plot(x, y, line, label=label, markersize=3)
        if labels:
            figure.legend(fontsize=8, frameon=False, loc="outside lower left")
        return encode_figure(figure)


def encode_figure(figure: "Figure") -> str:
    """Return a figure as an address that holds it as SVG, the same each time."""
    import matplotlib
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_parse_math(False)  # names may hold a $, which would begin a formula
    stream = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(stream, format="svg", metadata={"Date": None})
    return encode("svg+xml", stream.getvalue())
