"""Rows of a table, as CSV or JSON."""

from typing import Any

import numpy as np

from litlab.data.bad_rows import settle
from litlab.data.tables.encoding import standardised
from litlab.data.tables.reading import number_column, read_cells
from litlab.serve.body import Given
from litlab.serve.limits import TABLE_ROWS
from litlab.serve.readers.csv_rows import sent_rows
from litlab.serve.readers.reader import Arrays, Asked, Reader, check_finite, class_answer

_NEEDED = "the model needs it"


class RowReader(Reader):
    """Reads rows as ``predict`` does; a request has one or more."""

    def read(self, given: Given) -> Asked:
        """Turn rows into a sample each."""
        given.only("rows")
        numbers, categories = self.facts["numbers"], self.facts["categories"]
        cells = read_cells(sent_rows(given, "rows", [*numbers, *categories], TABLE_ROWS), "rows", "error")
        arrays: Arrays = {}
        columns = []
        for name, mean, std in zip(numbers, self.facts["mean"], self.facts["std"], strict=True):
            cells.column(name, _NEEDED)
            columns.append(number_column(cells, name, "the model needs numbers"))
            standardised(columns[-1], name, mean, std, cells.path)
        codes = []
        for name, known in categories.items():
            place = {text: number for number, text in enumerate(known, 1)}
            codes.append([place.get(text, 0) for text in cells.column(name, _NEEDED)])
        settle((cells.bad, len(cells.rows) - len(cells.bad)))
        if numbers:
            arrays["numbers"] = np.stack(columns, axis=1)
        if categories:
            arrays["categories"] = np.array(codes, dtype=np.int64).T
        return Asked(arrays)

    def answer(self, outputs: Arrays, asked: Asked) -> dict[str, Any]:
        """Return an answer for each row, in order: class and probabilities, or a number for each target."""
        if "class_names" in self.facts:
            names = self.facts["class_names"]
            return {"rows": [class_answer(names, values) for values in outputs["probabilities"]]}
        check_finite(outputs["predicted"])
        rows = ([float(f"{value:.7g}") for value in values] for values in outputs["predicted"].tolist())
        return {"rows": [{"predicted": dict(zip(self.facts["targets"], values, strict=True))} for values in rows]}
