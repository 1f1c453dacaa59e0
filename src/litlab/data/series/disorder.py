"""Rows of a table whose times don't make a series: twice there, out of order, off the step."""

from bisect import bisect_left

import numpy as np

from litlab.data.series.reading import Table
from litlab.data.series.step import Step
from litlab.errors import UserError


def note_disorder(table: Table) -> Table:
    """Note the rows to take out so that the others are in order of time, each once: as few as possible.

    Returns:
        The rows that are left.

    Raises:
        UserError: Most rows would have to go.
    """
    times = table.times.astype(np.int64)
    if (np.diff(times) > 0).all():
        return table
    kept = _ascending(times.tolist())
    if 2 * len(kept) < len(times):
        first = int(np.argmax(np.diff(times) <= 0)) + 1
        raise UserError(
            f"{table.path}: most rows are not in order of time, first line {table.lines[first]}: "
            f"{time_text(table.times[first])} after {time_text(table.times[first - 1])}; sort them by time, and give "
            f"one series per file"
        )
    known = {int(times[place]): place for place in kept}
    for place in sorted(set(range(len(times))).difference(kept)):
        line = table.lines[place]
        here = time_text(table.times[place])
        if (twin := known.get(int(times[place]))) is not None:
            clocks = "" if table.utc else " (where the clocks went back, add UTC offsets)"
            table.bad.add(line, f"{here} occurs twice, also in line {table.lines[twin]}{clocks}")
        else:
            following = bisect_left(kept, place)
            behind = following > 0 and times[place] < times[kept[following - 1]]
            other, where = (kept[following - 1], "after") if behind else (kept[following], "before")
            table.bad.add(line, f"{here} comes {where} {time_text(table.times[other])}: sort the rows by time")
    return table.good()


def note_off_step(table: Table, step: Step) -> Table:
    """Note the rows whose times most others can't be reached from in whole steps; return those that are left."""
    fitting = step.fitting(table.times)
    for place in np.flatnonzero(~fitting).tolist():
        table.bad.add(table.lines[place], f"{time_text(table.times[place])} is off the step of {step}")
    return table if fitting.all() else table.good()


def note_open_ends(table: Table) -> Table:
    """Note the rows at the beginning and the end that lack a value: there is nothing to interpolate from.

    Returns:
        The rows that are left.
    """
    missing = np.isnan(table.values)
    whole = np.flatnonzero(~missing.any(1))
    if not len(whole):
        return table
    first, last = int(whole[0]), int(whole[-1])
    for place in (*range(first), *range(last + 1, len(table.lines))):
        column = table.names[int(np.argmax(missing[place]))]
        end = "start" if place < first else "end"
        problem = f"column {column!r} is empty at the {end} of the series, where it can't be interpolated"
        table.bad.add(table.lines[place], problem)
    return table if first == 0 and last == len(table.lines) - 1 else table.good()


def time_text(time: np.datetime64) -> str:
    """Return a time as messages show it."""
    return str(time).replace("T", " ")


def _ascending(values: list[int]) -> list[int]:
    """Places of a longest strictly ascending part (patience sorting, Fredman 1975)."""
    tops: list[int] = []  # the smallest last value of an ascending part of each length
    places: list[int] = []
    before: list[int] = []
    for place, value in enumerate(values):
        length = bisect_left(tops, value)
        before.append(places[length - 1] if length else -1)
        if length == len(tops):
            tops.append(value)
            places.append(place)
        elif tops[length] != value:  # of two alike, the first stays
            tops[length], places[length] = value, place
    found, place = [], places[-1]
    while place >= 0:
        found.append(place)
        place = before[place]
    return found[::-1]
