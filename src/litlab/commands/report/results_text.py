"""Figures of result files, and how they were made, in words."""

import math
import re
import statistics
from typing import Any

from litlab.util.team import typed

SUMMARIES = {"mean": statistics.mean, "median": statistics.median, "min": min, "max": max}


def figure(value: Any, form: str = "") -> str:
    """Return a value as tables show it, without a zero before the point.

    Args:
        value: A number; a list, whose values are separated by spaces; a mapping with ``median`` or ``mean``, ``min``
            and ``max``, shown as ``.89 (.88 to .91)``; a text; or None, which shows nothing.
        form: How many significant digits to show, or a format of Python (``.3f``, ``,.0f``, ``.1%``). Before it may
            stand what to make of a list: ``mean``, ``median``, ``min`` or ``max``.

    Raises:
        ValueError: If the value can't be shown so; with what is wrong.
    """
    *before, form = form.split() or [""]
    if before or form in SUMMARIES:
        word, form = (before[0], form) if before else (form, "")
        if word not in SUMMARIES:
            raise ValueError(f"there is no '{word}'; there are {', '.join(SUMMARIES)}")
        if not isinstance(value, list) or not all(isinstance(item, (int, float)) for item in value):
            raise ValueError(f"it is no list of numbers to take the {word} of")
        value = SUMMARIES[word](value)
    if value is None:
        return ""
    if isinstance(value, list):
        return " ".join(figure(item, form) for item in value)
    if isinstance(value, dict):
        middle = next((name for name in ("median", "mean") if name in value), None)
        if middle is None or not {"min", "max"} <= value.keys():
            raise ValueError(f"it is no figure but several; name one: {', '.join(map(str, value)) or 'it is empty'}")
        shown, least, most = (figure(value[name], form) for name in (middle, "min", "max"))
        return shown if least == most else f"{shown} ({least} to {most})"
    if isinstance(value, str):
        return value
    return _number(value, form)


def origin(made: dict[str, Any]) -> str:
    """Return how figures were made: the command, with which seeds, when, from which code, and on what machine.

    Args:
        made: The entries on this of a result file; only ``command`` must be there.
    """
    command, seeds, versions = made["command"], made.get("seeds"), made.get("versions") or {}
    if command is None:
        text = "a command that was not kept"
    else:
        text = f"`{command if command.startswith('python ') else typed(command)}`"
    if isinstance(seeds, list):
        seeds = f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}" if None not in seeds else None
    facts = [
        f"{seeds} seeds" if isinstance(seeds, int) else seeds,
        (made.get("date") or "")[:10],
        f"commit {_short(made['commit'])}" if made.get("commit") else "",
        f"torch {versions['torch'].partition('+')[0]}" if "torch" in versions else "",
        made.get("gpu") or made.get("cpu") or "",
        made.get("precision") or "",
        made.get("note") or "",
        f"recorded {made['recorded'].partition(',')[0]}" if made.get("recorded") else "",
    ]
    return f"{text}: {'; '.join(filter(None, facts))}"


def _short(commit: str) -> str:
    """Return the usual length of a commit's name."""
    return re.sub(r"\b([0-9a-f]{7})[0-9a-f]{33}\b", r"\1", commit).replace(" + ", " with ")


def _number(value: float, form: str) -> str:
    """Return a number in a format of Python, or with some significant digits and its thousands separated."""
    if form.isdecimal():
        value = float(f"{value:.{form}g}")
        magnitude = math.floor(math.log10(abs(value))) if value and math.isfinite(value) else int(form)
        form = f",.{max(0, int(form) - 1 - magnitude)}f"
    elif not form:
        form = ".4g" if isinstance(value, float) else ","
    text = format(value, form).replace("%", " %")
    return re.sub(r"^(-?)0\.(?=\d)", r"\1.", text)
