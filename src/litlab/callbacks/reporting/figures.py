"""Publish a figure: as a picture in every logger that takes one, and as a PNG file in the run folder."""

from pathlib import Path
from typing import TYPE_CHECKING

from lightning.pytorch import Trainer

from litlab.callbacks.reporting.loggers import log_image, takes_images

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def publish_figure(trainer: Trainer, folder: Path | None, name: str, figure: "Figure", stage: str = "test") -> None:
    """Save a figure as ``NAME.png`` and log it as ``test/NAME``. Call it on rank zero.

    Args:
        trainer: The trainer that tests.
        folder: The run folder; ``None`` for a run without one.
        name: Name of the figure.
        figure: The figure, made with matplotlib's objects: pyplot keeps a global state.
        stage: What stands before the name in the loggers.
    """
    if folder is None and not takes_images(trainer):
        return
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text
    from PIL import Image

    for text in figure.findobj(Text):
        text.set_parse_math(False)  # names of classes and columns may hold a $, which would begin a formula

    # Rendered once, for all; and TensorBoard's add_figure would go through pyplot and its global state.
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())[:, :, :3]  # (height, width, colour)
    if folder is not None:
        Image.fromarray(pixels).save(folder / f"{name}.png")
    log_image(trainer, f"{stage}/{name}", pixels)
