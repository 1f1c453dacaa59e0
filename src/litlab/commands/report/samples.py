"""How a sample of a test batch is shown to people: an image, a text, or the values of a row."""

import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor

from litlab.commands.report.blocks import Sample
from litlab.data import ExperimentData
from litlab.data.serving import Serving
from litlab.errors import UserError

LONGEST = 96  # pixels of a side
LETTERS = 400  # of a text
COLUMNS = 10  # of a row


@dataclass(frozen=True)
class RenderedSample:
    """A sample, without what was predicted.

    Args:
        image: The content of an image file.
        kind: Its type.
        text: The text.
        row: Values by the name of their column.
    """

    image: bytes = b""
    kind: str = "png"
    text: str = ""
    row: dict[str, str] | None = None

    def captioned(self, caption: str, wrong: bool = False) -> Sample:
        """Return it with what is to be said of it."""
        return Sample(caption, self.image, self.kind, self.text, wrong)


Render = Callable[[], RenderedSample]  # put off until it is known which samples are shown


class SampleRenderer:
    """Tells what the samples of a DataModule look like, as far as it can.

    Args:
        data: The DataModule. Images need nothing of it, but its ``mean`` and ``std`` help; texts need its
            ``text`` and ``sample_index``, rows a
            ``serving()`` of the kind ``rows``.
    """

    def __init__(self, data: Any) -> None:
        self.data = data
        self.kind = ""  # images, texts or rows, as far as a batch could be shown
        self._rows: Serving | None = None
        self._asked = False

    def of_batch(self, batch: Any, number: int) -> Callable[[int], Render] | None:
        """Return what shows a sample of a batch, by its place in it; None where that is not known.

        Args:
            batch: The batch, as ``test_step`` got it.
            number: Number of the batch in the test, from 0.
        """
        if hasattr(self.data, "sample_index"):
            self.kind, data, places = "texts", self.data, self.data.sample_index("test", number)
            return lambda place: lambda: RenderedSample(text=_cut(data.text("test", int(places[place]))))
        inputs = batch[0] if isinstance(batch, (tuple, list)) and batch else batch
        if isinstance(inputs, Tensor) and inputs.ndim == 4 and inputs.shape[1] in (1, 3):
            self.kind = "images"
            return lambda place: _image(inputs[place].detach().float().cpu(), self.data)
        rows = self._serving_of_rows()
        if rows is not None and isinstance(inputs, dict):
            self.kind = "rows"
            return lambda place: _row(rows, {name: part[place : place + 1].cpu() for name, part in inputs.items()})
        return None

    def _serving_of_rows(self) -> Serving | None:
        """Return what knows the columns of a table; None for other data."""
        if not self._asked and isinstance(self.data, ExperimentData):
            try:
                serving = self.data.serving()  # of the checkpoint, which is loaded by the first batch
                self._rows = serving if serving.kind == "rows" else None
            except UserError:  # the DataModule defines none
                self._rows = None
        self._asked = True
        return self._rows


@dataclass(frozen=True)
class EvaluationContext:
    """The test of a checkpoint, whose predictions are collected.

    Args:
        trainer: The trainer that tests.
        model: The model.
        renderer: Shows samples.
        batches: Number of batches; infinity where it is unknown.
    """

    trainer: Trainer
    model: LightningModule
    renderer: SampleRenderer
    batches: float


def _image(image: Tensor, data: Any) -> Render:
    return lambda: RenderedSample(*encoded(_pixels(image, data)))


def _pixels(image: Tensor, data: Any) -> Tensor:
    """Return an image (channel, height, width) as it was before it was normalised, from 0 to 1."""
    if hasattr(data, "std"):
        mean, std = (torch.tensor(values).reshape(-1, 1, 1) for values in (data.mean, data.std))
        return (image * std + mean).clamp(0, 1)
    low, high = float(image.min()), float(image.max())
    return image if low >= 0 and high <= 1 else (image - low) / max(high - low, 1e-6)


def encoded(pixels: Tensor) -> tuple[bytes, str]:
    """Return an image as the content of a file and its type; a large one gets smaller.

    Args:
        pixels: From 0 to 1, shape (channel, height, width) with 1 or 3 channels.
    """
    from PIL import Image

    array = (pixels * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    picture = Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
    large = max(picture.size) > LONGEST
    if large:
        picture.thumbnail((LONGEST, LONGEST))
    stream = io.BytesIO()
    picture.save(stream, "JPEG" if large else "PNG", quality=85)
    return stream.getvalue(), "jpeg" if large else "png"


def _row(serving: Serving, inputs: dict[str, Tensor]) -> Render:
    def show() -> RenderedSample:
        facts, row = serving.facts(), {}
        for spec, values in zip(serving.inputs, serving.raw(inputs), strict=True):
            if spec.name == "categories":
                for (name, known), place in zip(facts["categories"].items(), values[0].tolist(), strict=True):
                    row[name] = known[place - 1] if place else "-"
            else:
                row |= {name: number(value) for name, value in zip(facts[spec.name], values[0].tolist(), strict=True)}
        return RenderedSample(row=row)

    return show


def number(value: float) -> str:
    """Return a number for people; a dash for a missing one."""
    return "-" if math.isnan(value) else f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def row_table(rows: list[tuple[dict[str, str], dict[str, str]]]) -> tuple[list[str], list[list[str]]]:
    """Return header and cells of a table of rows.

    Args:
        rows: For each what is to be said of it, and its values, of which the first columns are shown.
    """
    said, values = list(rows[0][0]), list(rows[0][1])[:COLUMNS]
    return [*said, *values], [[*about.values(), *(row.get(name, "-") for name in values)] for about, row in rows]


def _cut(text: str) -> str:
    return text if len(text) <= LETTERS else f"{text[: LETTERS - 1]}…"
