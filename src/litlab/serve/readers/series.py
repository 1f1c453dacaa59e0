"""Series: the last rows of one, as CSV or JSON, and the times that follow."""

from typing import Any

import numpy as np

from litlab.data.series.covariates import calendar_features
from litlab.data.series.predictions import read_series, time_texts
from litlab.data.series.step import Step
from litlab.serve.body import Given
from litlab.serve.limits import SERIES_ROWS
from litlab.serve.readers.csv_rows import sent_rows
from litlab.serve.readers.reader import Arrays, Asked, Reader, check_finite


class SeriesReader(Reader):
    """Reads a series as ``predict`` does, and forecasts from its last rows."""

    def read(self, given: Given) -> Asked:
        """Turn a series into one sample; the context is the texts of the future times, and the past if it is wanted."""
        given.only("series", "past")
        facts = self.facts
        sent = sent_rows(given, "series", [facts["time_column"], *facts["targets"]], SERIES_ROWS)
        series = read_series(sent, facts, "error", "error")
        series.scaled(facts["mean"], facts["scale"])  # which refuses what is out of range
        times = series.times[-facts["context_length"] :]
        future = series.step.after(times[-1], facts["horizon"])
        arrays = {"past": series.values[None, -facts["context_length"] :]}
        if "calendar" in self.inputs:
            calendar = calendar_features(np.concatenate([times, future]), facts["covariates"])
            assert calendar is not None
            arrays["calendar"] = calendar.numpy()[None]
        past = self._block(times, {"values": arrays["past"][0]}) if given.flag("past") else None
        return Asked(arrays, (future, past))

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

    def _block(self, times: np.ndarray, values: Arrays) -> dict[str, Any]:
        """Return times as texts, and the columns of each array, (time, column), by their names."""
        step, names = Step(**self.facts["step"]), self.facts["targets"]
        columns = {key: dict(zip(names, array.T.tolist(), strict=True)) for key, array in values.items()}
        return {"times": time_texts(times, step, self.facts["utc"]), **columns}
