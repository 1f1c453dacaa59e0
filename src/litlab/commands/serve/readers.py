"""From what was sent to a model's inputs, and from its outputs to an answer: a reader for each kind
of model.

Inputs are read as ``predict`` reads them.
"""

import base64
import io
import unicodedata
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from litlab.errors import UserError

MOST_PIXELS = 40_000_000
MOST_SERIES_ROWS = 50_000
MOST_TABLE_ROWS = 1_000

# What was sent: values of JSON, texts and files (bytes) of a form, by their names
Fields = Mapping[str, Any]
Outputs = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Sample:
    """A request, read."""

    # The model's inputs in the order of its manifest; the first axis is the batch
    inputs: list[np.ndarray]
    context: Any = None  # what the answer needs besides the outputs


class Reader:
    """Reads requests for one model: ``read`` makes a `Sample` of what was sent, ``answer`` turns
        outputs into JSON.

    They raise a `UserError`: the one for a request that can't be used, the other for a number that
    is NaN or infinite. ``example`` is a request that is made up. `files` are texts of what belongs
    to the model, by their names.
    """

    field: ClassVar[str]  # what is sent is called so

    def __init__(self, manifest: Mapping[str, Any], files: Mapping[str, str]) -> None:
        self.facts: dict[str, Any] = manifest["facts"]

    def stack(self, samples: Sequence[Sample]) -> list[np.ndarray]:
        return [
            np.concatenate(arrays)
            for arrays in zip(*(sample.inputs for sample in samples), strict=True)
        ]

    def take(self, fields: Fields) -> Any:
        """Return what is to be read: the field of the model's kind, or the file of a form."""
        for name in fields:
            if name not in (self.field, "file"):
                raise UserError(
                    f"{name[:40]!r}: there is no such field; send {self.field!r} in JSON or a form"
                )
        value = fields.get(self.field, fields.get("file"))
        if value is None:
            raise UserError(
                f"there is no {self.field}; send it as {self.field!r}, or as the file "
                "'file' of a form"
            )
        return value

    def answer_rows(self, outputs: Outputs) -> list[dict[str, Any]]:
        """Return the answer to each sample, of data with a target."""
        from litlab.data.target import load_target

        target = load_target(self.facts["target"])
        rows = next(iter(outputs.values()))
        check_finite(rows)
        return [target.answer(row) for row in rows]


class ImageReader(Reader):
    """Image files of any size, as files of a form or in base64."""

    field = "image"

    def __init__(self, manifest: Mapping[str, Any], files: Mapping[str, str]) -> None:
        from PIL import Image

        from litlab.data.images.decode import ImageMetadata

        super().__init__(manifest, files)
        state = {name: fact for name, fact in self.facts.items() if name != "class_names"}
        self.form = ImageMetadata.load(state)
        Image.MAX_IMAGE_PIXELS = MOST_PIXELS // 2  # twice as many are refused

    def example(self) -> Fields:
        from PIL import Image

        _, height, width = self.form.image_shape
        slope = np.linspace(0, 255, height * width, dtype=np.uint8).reshape(height, width)
        stream = io.BytesIO()
        Image.fromarray(slope).save(stream, "PNG")
        return {self.field: stream.getvalue()}

    def read(self, fields: Fields) -> Sample:
        from litlab.data.images.decode import decode

        content = self.take(fields)
        if not isinstance(content, bytes):
            try:
                # Of data:image/png;base64,...
                content = base64.b64decode(content.rpartition(",")[2], validate=True)
            except (AttributeError, ValueError):
                raise UserError("image: it is not base64; encode the file's bytes") from None
        with warnings.catch_warnings(action="ignore"):
            image = decode(content, self.form)
        if isinstance(image, str):
            raise UserError(f"image: it can't be read ({image}); send another file")
        return Sample([image[None]])

    def answer(self, outputs: Outputs, context: Any) -> dict[str, Any]:
        (output,) = next(iter(outputs.values()))
        check_finite(output)
        return self.form.target.answer(output)


class TextReader(Reader):
    """Texts, of which long ones are cut."""

    field = "text"

    def __init__(self, manifest: Mapping[str, Any], files: Mapping[str, str]) -> None:
        from tokenizers import Tokenizer

        super().__init__(manifest, files)
        self.longest = manifest["limits"]["time"]
        self.tokenizer: Tokenizer = Tokenizer.from_str(files["tokenizer.json"])

    def example(self) -> Fields:
        return {self.field: "a text of a few words"}

    def read(self, fields: Fields) -> Sample:
        """Turn a text into one sample; the context is the number of its tokens."""
        import torch

        from litlab.data.text.tokenizer import UNKNOWN, cut_text

        text = self.take(fields)
        if isinstance(text, str):
            text = text.encode()  # fails on halves of characters
        if not isinstance(text, bytes) or not text.strip():
            raise UserError("text: it is empty, or no text; send one")
        plain = unicodedata.normalize("NFC", text.decode("utf-8-sig")).strip()
        encoding = self.tokenizer.encode(plain)
        ids = torch.tensor(encoding.ids or [UNKNOWN])  # a text of nothing but <br /> has no tokens
        context = {"tokens": len(ids), "tokens_read": min(len(ids), self.longest)}
        return Sample([cut_text(ids, self.longest, self.facts["both_ends"]).numpy()[None]], context)

    def stack(self, samples: Sequence[Sample]) -> list[np.ndarray]:
        """Join texts, padded to the longest."""
        import torch
        from torch.nn.utils.rnn import pad_sequence

        texts = [torch.from_numpy(sample.inputs[0][0]) for sample in samples]
        return [pad_sequence(texts, batch_first=True, padding_value=self.facts["padding"]).numpy()]

    def answer(self, outputs: Outputs, context: dict[str, int]) -> dict[str, Any]:
        return self.answer_rows(outputs)[0] | context


class SeriesReader(Reader):
    """The last rows of a series, as CSV or a list of objects; and where columns are known of the
    future, those that follow, without targets.
    """

    field = "series"

    def __init__(self, manifest: Mapping[str, Any], files: Mapping[str, str]) -> None:
        from litlab.data.series.serving import SeriesMetadata

        super().__init__(manifest, files)
        self.known = SeriesMetadata.load(self.facts)

    def example(self) -> Fields:
        import pandas as pd

        known, count = self.known, self.known.context_length
        zone = next(column.zone for column in known.columns if column.kind == "time")
        options: Any = {"freq": known.freq, "tz": zone and "UTC"}
        times = pd.date_range("2000-01-01", periods=count + known.horizon, **options)
        written = times.strftime(known.form.time_format) if known.form.time_format else times
        waves = np.sin(np.arange(count))[:, None] * known.scale + known.mean
        rows = pd.DataFrame(waves, columns=known.targets, dtype=object).reindex(range(len(times)))
        told = {name: mean for name, (mean, _) in known.numbers.items()}
        told |= {name: texts[0] for name, texts in known.categories.items()}
        rows = rows.astype(object).where(rows.notna(), None)
        rows = rows.assign(**told, **{known.time_column: written.astype(str)})
        return {self.field: rows.to_dict("records")}

    def read(self, fields: Fields) -> Sample:
        """Turn a series into one sample; the context is what an answer repeats, and the times that
        follow.
        """
        from litlab.data.files import read_cells
        from litlab.data.series.regular import read_last_rows

        known, count, sent = self.known, self.known.context_length, self.take(fields)
        # A series needs no name, but where that is a covariate
        name = known.series_column
        also: Any = {name} - {*known.covariates, None}
        columns = [column.name for column in known.columns if column.name not in also]
        cells = read_cells(
            lay_out("series", sent, columns, MOST_SERIES_ROWS, also), known.form, setting="series"
        )
        is_named = name in cells
        if name and not is_named:
            cells[name] = "the series"
        series = read_last_rows(cells, known, "series")
        names = series.table.index.unique(0)
        if len(names) > 1:
            raise UserError(f"series: there are {len(names)} of them; send one at a time")

        rows, *told = (part.numpy() for part in known.lay_out(series.table))
        values = rows[:count]
        inputs = [part[None] for part in (values, *told)]
        times = series.times.astype(str).tolist()
        past = {"times": times[:count], "values": self._name_columns(values)}
        repeated = {name: names[0]} if is_named else {}
        return Sample(inputs, {**repeated, "times": times[count:], "past": past})

    def answer(self, outputs: Outputs, context: dict[str, Any]) -> dict[str, Any]:
        """Return times, past and forecast; the ends of the interval are null where the run has
        none.
        """
        check_finite(outputs["forecast"])
        answer = dict(context)
        for name, values in outputs.items():
            answer[name] = self._name_columns(values[0]) if np.isfinite(values).all() else None
        return answer

    def _name_columns(self, values: np.ndarray) -> dict[str, list[float]]:
        return dict(zip(self.known.targets, values.T.tolist(), strict=True))


class RowReader(Reader):
    """One row of a table or more, as CSV or a list of objects."""

    field = "rows"

    def example(self) -> Fields:
        numbers = dict(zip(self.facts["numbers"], self.facts["mean"], strict=True))
        categories = {name: texts[0] for name, texts in self.facts["categories"].items()}
        return {self.field: [numbers | categories]}

    def read(self, fields: Fields) -> Sample:
        from litlab.data.files import read_cells
        from litlab.data.tables.serving import TabularMetadata

        known = TabularMetadata.load(self.facts)
        names = [column.name for column in known.columns]
        sent = lay_out("rows", self.take(fields), names, MOST_TABLE_ROWS)
        frame = known.read(read_cells(sent, known.form, setting="rows"), "rows")
        if not isinstance(sent, bytes) and len(frame) < len(sent):  # each is to get an answer
            raise UserError("rows: in one of them everything is null; give a value")
        return Sample(list(known.lay_out(frame)))

    def answer(self, outputs: Outputs, context: Any) -> dict[str, Any]:
        return {"rows": self.answer_rows(outputs)}


def choose_reader(manifest: Mapping[str, Any], files: Mapping[str, str]) -> Any:
    readers = {
        "images": ImageReader,
        "texts": TextReader,
        "series": SeriesReader,
        "rows": RowReader,
    }
    if manifest["kind"] not in readers:
        raise UserError(
            f"serve: it takes models of {', '.join(readers)}; this one is of {manifest['kind']}"
        )
    return readers[manifest["kind"]](manifest, files)


def lay_out(
    name: str, value: Any, columns: Sequence[str], most: int, also: Iterable[str] = ()
) -> Any:
    """Return rows as `litlab.data.files.read_cells` takes them: the bytes of a CSV file, or a
    frame.

    Of the objects in a list only the columns are kept, and of `also` what the first one has.
    """
    import pandas as pd

    if isinstance(value, str):
        value = value.encode()
    if not value or not isinstance(value, bytes | list):
        raise UserError(
            f"{name}: it must be a list of objects, one for each row, or the text of a CSV file"
        )
    count = len(value) if isinstance(value, list) else len(value.splitlines()) - 1
    if count > most:
        raise UserError(f"{name}: it has {count:,} rows; send at most {most:,}")
    if isinstance(value, bytes):
        return value
    for number, row in enumerate(value):
        place = f"{name}[{number}]"
        if not isinstance(row, dict):
            raise UserError(f"{place}: it must be an object, such as {{...}}")
        for column in columns:
            if column not in row:
                raise UserError(
                    f"{place}: it has no {column!r}; null stands for a value that is missing"
                )
    # 3 stays 3, where others are missing, too
    columns = [*columns, *(column for column in also if column in value[0])]
    return pd.DataFrame(value, columns=columns, dtype=object)


def answer_class(names: Sequence[str], probabilities: np.ndarray) -> dict[str, Any]:
    check_finite(probabilities)
    rounded = [round(float(value), 6) for value in probabilities]  # as in a file of predictions
    best = int(probabilities.argmax())
    return {
        "class": names[best],
        "probability": rounded[best],
        "probabilities": dict(zip(names, rounded, strict=True)),
    }


def check_finite(values: np.ndarray) -> None:
    if not np.isfinite(values).all():
        raise UserError(
            "the model's answer is not a finite number; are the values like those of the training?"
        )
