"""Put pictures and tables where people look for them: in the loggers and the folder of a run.

TensorBoard, W&B and MLflow take pictures and tables; a logger of your own does if it has W&B's
``log_image`` and ``log_table``, or MLflow's ``run_id`` and client. Everything but `run_folder` is
called on rank zero.
"""

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning.pytorch import Trainer
from lightning.pytorch.loggers import TensorBoardLogger
from tqdm import tqdm

from litlab.util.files import check_replaceable, write_output
from litlab.util.text import format_column

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure
    from pandas import DataFrame

GREY = "#808080"  # its contrast with white, and with the dark page of a report, is 4 to 1
MOST_ROWS = 100  # of a table on the console and in TensorBoard, which shows it as one text


def run_folder(trainer: Trainer) -> Path | None:
    """Return the folder of this run, that of the first logger, and create it; None for a run
    without one.

    A run without a logger has none, and neither has one with ``fast_dev_run``. Call it on every
    rank: it is broadcast.
    """
    # Without loggers it would be the working directory
    folder = trainer.log_dir if trainer.loggers else None
    if folder is None:
        return None
    if trainer.is_global_zero:
        Path(folder).mkdir(parents=True, exist_ok=True)
    return Path(folder)


def check_files(trainer: Trainer, folder: Path) -> None:
    """Refuse a run in whose folder something stands in the place of what a callback is to write.

    Args:
        trainer: The trainer, whose callbacks may name what they write in ``files``.
        folder: The run folder.
    """
    for callback in trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
        for name in getattr(callback, "files", ()):
            check_replaceable(folder / name)


def make_axes(
    rows: int, columns: int, width: float, height: float, **shared: Any
) -> tuple["Figure", "np.ndarray"]:
    """Return a figure of so many inches, and its axes, an array of shape (rows, columns)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, **shared)
    for axes in grid.flat:
        axes.tick_params(labelsize=7)
        axes.grid(alpha=0.3)
    return figure, grid


def publish_figure(
    trainer: Trainer, folder: Path | None, name: str, figure: "Figure", stage: str = "test"
) -> None:
    """Save a figure as ``NAME.png`` and log it as ``STAGE/NAME``.

    The file has a transparent background, for light and dark pages; loggers get it on white.

    Args:
        trainer: The trainer whose loggers get it.
        folder: The run folder; None for a run without one.
        name: Name of the figure.
        figure: The figure, made with matplotlib's objects: pyplot keeps a global state.
        stage: What stands before the name in the loggers.

    Raises:
        UserError: Something else is there, or it was changed since it was written.
    """
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text
    from PIL import Image

    for text in figure.findobj(Text):
        # Names of classes and columns may hold a $, which would begin a formula
        text.set_parse_math(False)
    suit_any_page(figure)

    # Rendered once, for all.
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    image = Image.fromarray(np.asarray(canvas.buffer_rgba()))
    if folder is not None:
        content = io.BytesIO()
        image.save(content, "png")
        write_output(folder / f"{name}.png", content.getvalue())
    white = Image.new("RGBA", image.size, "white")
    pixels = np.asarray(Image.alpha_composite(white, image))[:, :, :3]  # (height, width, colour)

    key, step = f"{stage}/{name}", trainer.global_step
    loggers: list[Any] = trainer.loggers
    for logger in loggers:
        if hasattr(logger, "log_image"):
            logger.log_image(key=key, images=[pixels], step=step)
        elif hasattr(logger, "run_id"):
            logger.experiment.log_image(logger.run_id, pixels, f"{key}.png")
        elif isinstance(logger, TensorBoardLogger):
            logger.experiment.add_image(key, pixels, step, dataformats="HWC")


def suit_any_page(figure: "Figure") -> None:
    """Make the background of a figure transparent, and its black texts and frames grey, which can
    be read on white and on black. Text on top of an image stays as it is.
    """
    from matplotlib.colors import same_color
    from matplotlib.legend import Legend
    from matplotlib.text import Text

    figure.patch.set_alpha(0)
    within: set[Text] = set()
    for axes in figure.axes:
        axes.patch.set_alpha(0)
        axes.tick_params(colors=GREY, which="both")
        for spine in axes.spines.values():
            spine.set_edgecolor(GREY)
        within.update(axes.texts if axes.images else ())
    for text in set(figure.findobj(Text)) - within:
        if same_color(text.get_color(), "black"):
            text.set_color(GREY)
    for legend in figure.findobj(Legend):
        legend.get_frame().set_alpha(0)


def publish_table(trainer: Trainer, folder: Path | None, name: str, table: "DataFrame") -> None:
    """Save a table of a test as ``NAME.csv`` and log it as ``test/NAME``.

    Args:
        trainer: The trainer whose loggers get it.
        folder: The run folder; None: no file is written.
        name: Name of the table.
        table: The table; its index is left out.

    Raises:
        UserError: As of `publish_figure`.
    """
    if folder is not None:
        write_output(folder / f"{name}.csv", table.to_csv(index=False, float_format="%.6g"))
    key, step = f"test/{name}", trainer.global_step
    text = f"```\n{as_text(table)}\n```"  # in Markdown
    loggers: list[Any] = trainer.loggers
    for logger in loggers:
        if hasattr(logger, "log_table"):
            logger.log_table(
                key=key,
                columns=list(table.columns),
                data=table.to_numpy(object).tolist(),
                step=step,
            )
        elif hasattr(logger, "run_id"):
            logger.experiment.log_text(logger.run_id, text, f"{key}.md")
        elif isinstance(logger, TensorBoardLogger):
            logger.experiment.add_text(key, text, step)


def print_frame(title: str, table: "DataFrame") -> None:
    """Print a table to the console, also while a progress bar is shown there."""
    tqdm.write(f"{title}\n{as_text(table)}")


def as_text(table: "DataFrame") -> str:
    """Return the first rows of a table as they are shown on the console."""
    from pandas import DataFrame

    columns: dict[Any, Any] = {}
    for name, cells in table.head(MOST_ROWS).items():
        if cells.dtype.kind == "f":
            # A space, to be apart from the column before
            texts = [f" {text}" for text in format_column([*cells])]
            columns[f" {name}"] = ["" if text == " nan" else text for text in texts]
        else:
            columns[name] = cells
    return DataFrame(columns).to_string(index=False, na_rep="", max_colwidth=300)
