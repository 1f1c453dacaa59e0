"""What runs have logged and were set to: metrics by name, mean and spread over runs, curves, how
settings differ.
"""

import logging
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from litlab.runs.masking import mask
from litlab.util.metrics import metric_direction
from litlab.util.text import count_decimals, format_number


def pick_metrics(metrics: dict[str, Any]) -> dict[str, float]:
    """Return the metrics of a run by name, all of one checkpoint: that which was tested, else the
        best.

    Args:
        metrics: The content of ``metrics.json``.
    """
    # Which checkpoint the numbers are of; without a test, the best one
    test, best = metrics.get("test") or {}, metrics.get("best") or {}
    file_of_best = best.get("checkpoint")
    file = (metrics.get("test_checkpoint") if test else None) or file_of_best
    file_of_val = metrics.get("val_checkpoint") or file_of_best

    # Metrics of another epoch than that of the tested checkpoint are left out
    found = {best["monitor"]: best["value"]} if best and file == file_of_best else {}
    if file_of_val == file or None in (file, file_of_val):
        found |= metrics.get("val") or {}
    return found | test


def choose_test_metric(metrics: dict[str, Any]) -> str | None:
    """Return the test metric that belongs to the one that was monitored, else the first one; None
    without a test.
    """
    test = metrics.get("test") or {}
    # val/acc was monitored: test/acc belongs to it
    name = f"test/{_drop_stage((metrics.get('best') or {}).get('monitor', ''))}"
    return name if name in test else next(iter(test), None)


def find_direction(name: str, runs: Iterable[dict[str, Any]] = ()) -> int:
    """Return whether a higher value of a metric is better (1), a lower one (-1), or it is not known
    (0).

    Args:
        name: The metric: ``val/acc``, ``test/loss``.
        runs: The ``metrics.json`` of the runs to compare. What one of them monitored decides; else
            the name does.
    """
    # val/acc was monitored: test/acc is better in the same direction
    modes = {
        _drop_stage(run["best"]["monitor"]): run["best"]["mode"] for run in runs if run.get("best")
    }
    return {"max": 1, "min": -1, None: 0}[modes.get(_drop_stage(name), metric_direction(name))]


@dataclass(frozen=True)
class Spread:
    """What some values of a metric say about it.

    Args:
        count: How many values there are.
        mean: Their mean.
        deviation: Their standard deviation, with n - 1 in its denominator; None for one value.
        interval: The 95 % confidence interval of the mean, by Student's t; None for one value.
    """

    count: int
    mean: float
    deviation: float | None = None
    interval: tuple[float, float] | None = None


def measure_spread(values: Sequence[float]) -> Spread:
    """Return mean and spread of at least one value."""
    # Student's t, as there are few runs: for three of them it is 4.3 times the standard error
    count, mean = len(values), statistics.fmean(values)
    if count == 1:
        return Spread(count, mean)
    from scipy.special import stdtrit  # only where it is needed: `runs` starts without numpy

    deviation = statistics.stdev(values)
    half = float(stdtrit(count - 1, 0.975)) * deviation / math.sqrt(count)
    return Spread(count, mean, deviation, (mean - half, mean + half))


def measure_spreads(runs: Iterable[dict[str, Any]]) -> dict[str, Spread]:
    """Return the spread of each metric over those runs that have it.

    Args:
        runs: The content of their ``metrics.json``.
    """
    # In the order of the first run; a metric that only some of them have counts these
    found = [pick_metrics(run) for run in runs]
    return {
        name: measure_spread([row[name] for row in found if name in row])
        for name in dict.fromkeys(chain(*found))
    }


def format_spread(found: Spread) -> list[str]:
    """Return mean, standard deviation, 95 % interval and count, as tables show them."""
    places = count_decimals([found.mean])
    ends = [format_number(end, places) for end in found.interval or ()]
    mean, deviation = format_number(found.mean, places), format_number(found.deviation, places)
    return [mean, deviation, " to ".join(ends) or "-", str(found.count)]


def format_means(means: Sequence[float | None], deviations: Sequence[float | None]) -> list[str]:
    """Return means that people compare as tables show them: ``0.8870 ± 0.0021``, or the mean alone
    where there is no deviation; a dash for none.
    """
    places = count_decimals(means)
    return [
        format_number(mean, places)
        + ("" if deviation is None else f" ± {format_number(deviation, places)}")
        for mean, deviation in zip(means, deviations, strict=True)
    ]


def _drop_stage(name: str) -> str:
    """Return the name without its stage: ``acc`` of ``val/acc`` and ``test/acc``."""
    return name.rpartition("/")[2]


LONGEST = 60  # characters of a list; the edges of a table's bins have thousands
Curves = dict[str, list[tuple[int, float]]]  # by name of the metric: steps and values


def read_curves(folder: Path) -> Curves:
    """Read the scalars in the folder of a run; {} where it has no event files."""
    if not any(folder.glob("events.out.tfevents.*")):
        return {}
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    # Else TensorBoard warns of the steps that a resumed run repeats
    logging.getLogger("tensorboard").setLevel(logging.ERROR)
    events = EventAccumulator(str(folder), {"scalars": 0})  # all of them, not a sample
    events.Reload()
    names = events.Tags()["scalars"]
    return {name: [(event.step, event.value) for event in events.Scalars(name)] for name in names}


def flatten(config: Any, key: str = "") -> dict[str, Any]:
    """Flatten a config to dotted keys, as they are typed on the command line.

    A class has the key of its section, its settings are below: ``model`` is ``CifarCNN``,
    ``model.width`` 128. Callbacks and other lists of classes go by the name of the class, as their
    order has no meaning; a list that has a class twice stays as it is.

    Args:
        config: The config, or a part of it.
        key: The key of that part.
    """
    flat: dict[str, Any] = {}
    # A class: its name, and its settings below
    if _is_class(config):
        flat[key] = _shorten_class(config)
        config = config.get("init_args") or {}
    # A list of classes: by their names, where these are unique
    elif isinstance(config, list) and config and all(map(_is_class, config)):
        named = {_shorten_class(item): item for item in config}
        config = named if len(named) == len(config) else config
    if not isinstance(config, dict):
        return {key: config}
    for name, value in config.items():
        flat |= flatten(value, f"{key}.{name}" if key else str(name))
    return flat


def find_differences(settings: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return the values of the keys that are not the same everywhere, secrets masked; None where a
    key is missing.
    """
    # Compared as they are, then masked: two secrets that differ are a difference
    values = {key: [flat.get(key) for flat in settings] for key in chain(*settings)}
    return {key: mask(row, key) for key, row in values.items() if row.count(row[0]) < len(row)}


def format_value(value: Any) -> str:
    """Return the value of a setting as YAML has it, the beginning of a long list; ``-`` for null,
    or where it is missing.
    """
    if value is None:
        return "-"
    if isinstance(value, float):
        value = float(f"{value:.12g}")  # 3.7649999999999997 is 3.765
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if isinstance(value, list) and len(text) > LONGEST:
        return f"{text[:LONGEST]}... ({len(value)} values)"
    return text


def _is_class(config: Any) -> bool:
    return isinstance(config, dict) and isinstance(config.get("class_path"), str)


def _shorten_class(config: dict[str, Any]) -> str:
    return config["class_path"].rpartition(".")[2]
