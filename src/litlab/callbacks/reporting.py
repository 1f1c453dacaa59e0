"""Put settings, pictures and tables where people look for them: in the loggers and the folder of a run.

TensorBoard, W&B and MLflow take pictures and tables; a logger of your own does if it has W&B's ``log_image`` and
``log_table``, or MLflow's ``run_id`` and client. Everything but `run_folder` is called on rank zero.
"""

import csv
import html
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning.pytorch import Trainer
from lightning.pytorch.loggers import MLFlowLogger, TensorBoardLogger

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_ROWS = 100  # of a table in TensorBoard, which shows it as one text
MOST_CHARACTERS = 300  # of a text in Markdown; the file has it whole


def run_folder(trainer: Trainer) -> Path | None:
    """Return the folder of this run, that of the first logger, and create it; None for a run without one.

    A run without a logger has none, and neither has one with ``fast_dev_run``. Call it on every rank: it is broadcast.
    """
    folder = trainer.log_dir if trainer.loggers else None  # without loggers it would be the working directory
    if folder is None:
        return None
    if trainer.is_global_zero:
        Path(folder).mkdir(parents=True, exist_ok=True)
    return Path(folder)


def log_settings(trainer: Trainer, settings: Mapping[str, Any]) -> None:
    """Send the settings of a run to every logger.

    Args:
        trainer: The trainer whose loggers get them.
        settings: Plain values by dotted name.
    """
    for logger in trainer.loggers:
        new = dict(settings)
        if isinstance(logger, MLFlowLogger):  # it refuses to change a value, and a resumed run may train for longer
            run = logger.experiment.get_run(str(logger.run_id)).to_dictionary()
            for name in run["data"]["params"]:
                new.pop(name, None)
        logger.log_hyperparams(new)  # pyright: ignore[reportArgumentType]


def publish_figure(trainer: Trainer, folder: Path | None, name: str, figure: "Figure", stage: str = "test") -> None:
    """Save a figure as ``NAME.png`` and log it as ``STAGE/NAME``.

    Args:
        trainer: The trainer whose loggers get it.
        folder: The run folder; None for a run without one.
        name: Name of the figure.
        figure: The figure, made with matplotlib's objects: pyplot keeps a global state.
        stage: What stands before the name in the loggers.
    """
    if folder is None and not trainer.loggers:
        return
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text
    from PIL import Image

    for text in figure.findobj(Text):
        text.set_parse_math(False)  # names of classes and columns may hold a $, which would begin a formula

    # Rendered once, for all.
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())[:, :, :3]  # (height, width, colour)
    if folder is not None:
        Image.fromarray(pixels).save(folder / f"{name}.png")

    key, step = f"{stage}/{name}", trainer.global_step
    loggers: list[Any] = trainer.loggers
    for logger in loggers:
        if hasattr(logger, "log_image"):
            logger.log_image(key=key, images=[pixels], step=step)
        elif hasattr(logger, "run_id"):
            logger.experiment.log_image(logger.run_id, pixels, f"{key}.png")
        elif isinstance(logger, TensorBoardLogger):
            logger.experiment.add_image(key, pixels, step, dataformats="HWC")


def publish_table(
    trainer: Trainer,
    folder: Path | None,
    name: str,
    header: Sequence[str],
    rows: Sequence[Sequence[object]],
    file: str | None = None,
    text: str | None = None,
) -> None:
    """Save a table of a test as a CSV file and log it as ``test/NAME``.

    Args:
        trainer: The trainer whose loggers get it.
        folder: The run folder; None: no file is written.
        name: Name of the table.
        header: Names of the columns.
        rows: Their values.
        file: Name of the file; ``NAME.csv`` by default.
        text: The table in Markdown, where it is not simply one table.
    """
    if folder is not None:
        write_rows(folder / (file or f"{name}.csv"), header, rows)
    text = text or markdown_table(header, rows)
    cells = [list(row) for row in rows]

    key, step = f"test/{name}", trainer.global_step
    loggers: list[Any] = trainer.loggers
    for logger in loggers:
        if hasattr(logger, "log_table"):
            logger.log_table(key=key, columns=list(header), data=cells, step=step)
        elif hasattr(logger, "run_id"):
            logger.experiment.log_text(logger.run_id, text, f"{key}.md")
        elif isinstance(logger, TensorBoardLogger) and len(cells) <= MOST_ROWS:
            logger.experiment.add_text(key, text, step)


def write_rows(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a CSV file.

    Args:
        path: The file; an existing one is replaced.
        header: Names of the columns.
        rows: Their values. Floats get six significant digits; NaN is an empty field.
    """
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(header)
        for row in rows:
            writer.writerow([format_value(value) for value in row])


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown: long texts cut, nothing in them taken for markup.

    Args:
        header: Names of the columns.
        rows: Their values, numbers as in `write_rows`.
    """
    lines = [[_escape(name) for name in header], ["---"] * len(header)]
    for row in rows:
        lines.append([_escape(format_value(value)) for value in row])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def format_value(value: object, digits: int = 6) -> str:
    """Return a value as tables show it: floats with so many significant digits, NaN as nothing."""
    if not isinstance(value, float):
        return str(value)
    return "" if math.isnan(value) else f"{value:.{digits}g}"


def _escape(text: str) -> str:
    text = " ".join(text.split())
    if len(text) > MOST_CHARACTERS:
        text = f"{text[: MOST_CHARACTERS - 1]}…"
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", html.escape(text, quote=False))
