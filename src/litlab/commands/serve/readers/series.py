"""Series: the last rows of one, as CSV or JSON, and the times that follow."""

from typing import Any

import numpy as np

from litlab.commands.serve.body import Given
from litlab.commands.serve.limits import SERIES_ROWS
from litlab.commands.serve.readers.csv_rows import sent_rows
from litlab.commands.serve.readers.reader import Arrays, Asked, Reader, check_finite
from litlab.data.frames import FileFormat
from litlab.data.series.regular import read_last_rows
from litlab.data.series.serving import make_calendar


class SeriesReader(Reader):
    """Reads one series as ``predict`` does, and forecasts from its last rows."""

    def read(self, given: Given) -> Asked:
        """Turn a series into one sample; the context is the future times, and the past if it is wanted."""
        given.only("series", "past")
        facts, rows = self.facts, self.facts["context_length"]
        sent = sent_rows(given, "series", [facts["time_column"], *facts["targets"]], SERIES_ROWS)
        series = read_last_rows(sent, facts, setting="series", form=FileFormat())
        arrays = {"past": series.table.values[None, :rows]}
        if "calendar" in self.inputs:
            arrays["calendar"] = make_calendar(series.times, facts["covariates"]).numpy()[None]
        times = series.times.astype(str).tolist()
        past = self._block(times[:rows], {"values": series.table.values[:rows]}) if given.flag("past") else None
        return Asked(arrays, (times[rows:], past))

    def answer(self, outputs: Arrays, asked: Asked) -> dict[str, Any]:
        """Return times, forecast and interval of each column; the ends are null where the run has no interval."""
        future, past = asked.context
        named = {name: outputs[name][0] for name in ("forecast", "lower", "upper")}
        check_finite(named["forecast"])
        ends = {name: None for name in ("lower", "upper") if np.isnan(named[name]).all()}
        for name in ("lower", "upper"):
            if name not in ends:
                check_finite(named[name])
        found = self._block(future, {name: values for name, values in named.items() if name not in ends}) | ends
        return found if past is None else {**found, "past": past}

    def _block(self, times: list[str], values: Arrays) -> dict[str, Any]:
        """Return times, and the columns of each array, (time, column), by their names."""
        names = self.facts["targets"]
        columns = {key: dict(zip(names, array.T.tolist(), strict=True)) for key, array in values.items()}
        return {"times": times, **columns}
