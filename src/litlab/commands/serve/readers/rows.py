"""Rows of a table, as CSV or JSON."""

from typing import Any

from litlab.commands.serve.body import Given
from litlab.commands.serve.limits import TABLE_ROWS
from litlab.commands.serve.readers.csv_rows import sent_rows
from litlab.commands.serve.readers.reader import Arrays, Asked, Reader, check_finite, class_answer
from litlab.commands.serve.refusal import Refusal
from litlab.data.frames import FileFormat
from litlab.data.tables.reading import read_rows
from litlab.data.tables.serving import TabularMetadata


class RowReader(Reader):
    """Reads rows as ``predict`` does; a request has one or more."""

    def read(self, given: Given) -> Asked:
        """Turn rows into a sample each."""
        given.only("rows")
        known = TabularMetadata(**self.facts)
        sent = sent_rows(given, "rows", [*known.numbers, *known.categories], TABLE_ROWS)
        frame = read_rows(sent, known, FileFormat(), "rows", "error")
        rows = given.values.get("rows")
        if isinstance(rows, list) and len(frame) < len(rows):  # an answer for each is expected
            raise Refusal(422, "rows: in one of them everything is null; give a value")
        return Asked(dict(zip(self.inputs, known.lay_out(frame), strict=True)))

    def answer(self, outputs: Arrays, asked: Asked) -> dict[str, Any]:
        """Return an answer for each row, in order: class and probabilities, or a number for each target."""
        names = self.facts["class_names"]
        if names:
            return {"rows": [class_answer(names, values) for values in outputs["probabilities"]]}
        check_finite(outputs["predicted"])
        rows = ([float(f"{value:.7g}") for value in values] for values in outputs["predicted"].tolist())
        return {"rows": [{"predicted": dict(zip(self.facts["targets"], values, strict=True))} for values in rows]}
