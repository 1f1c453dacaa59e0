"""From what was sent to a model's inputs, and from its outputs to an answer: a reader for each kind
of model.

Inputs are read as ``predict`` reads them.
"""

import base64
import io
import unicodedata
import warnings
from collections.abc import Mapping, Sequence
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
    """The last rows of a series, as CSV or a list of objects."""

    field = "series"

    def example(self) -> Fields:
        import pandas as pd

        facts = self.facts
        times = pd.date_range("2000-01-01", periods=facts["context_length"], freq=facts["freq"])
        waves = np.sin(np.arange(len(times)))[:, None] * facts["scale"] + facts["mean"]
        rows = pd.DataFrame(waves, columns=facts["targets"]).assign(
            **{facts["time_column"]: times.astype(str)}
        )
        return {self.field: rows.to_dict("records")}

    def read(self, fields: Fields) -> Sample:
        """Turn a series into one sample; the context is what an answer repeats, and the times that
        follow.
        """
        from litlab.data.files import FileFormat
        from litlab.data.series.regular import read_last_rows
        from litlab.data.series.serving import make_calendar

        facts: dict[str, Any] = self.facts | {"series_column": None}
        rows = facts["context_length"]
        columns = [facts["time_column"], *facts["targets"]]
        sent = lay_out("series", self.take(fields), columns, MOST_SERIES_ROWS)
        series = read_last_rows(sent, facts, setting="series", form=FileFormat())
        values = series.table.to_numpy()[:rows]
        inputs = [values[None]]
        if facts["covariates"]:
            inputs.append(make_calendar(series.times, facts["covariates"]).numpy()[None])
        times = series.times.astype(str).tolist()
        past = {"times": times[:rows], "values": self._name_columns(values)}
        return Sample(inputs, {"times": times[rows:], "past": past})

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
        return dict(zip(self.facts["targets"], values.T.tolist(), strict=True))


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


def lay_out(name: str, value: Any, columns: Sequence[str], most: int) -> Any:
    """Return rows as `litlab.data.files.read_cells` takes them: the bytes of a CSV file, or a
    frame.

    Of the objects in a list only the columns are kept.
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
    return pd.DataFrame(value, columns=list(columns), dtype=object)


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
