"""Figures: what becomes of them."""

from types import SimpleNamespace

from matplotlib.figure import Figure

from litlab.callbacks.reporting.figures import publish_figure


def test_names_with_dollars_are_no_formulas(tmp_path):
    figure = Figure()
    axes = figure.add_subplot(title=r"$\frac$")
    axes.set_xticks([0, 1], ["$a_{$", "b"])
    publish_figure(SimpleNamespace(loggers=[], global_step=0), tmp_path, "picture", figure)
    assert (tmp_path / "picture.png").is_file()
