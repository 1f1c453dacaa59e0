"""Draw what StepProfiler left in a run folder: the timeline of a step, and the shares of its parts.

    python benchmarks/draw_profile.py timeline lightning_logs/cifar/version_0/fit-profile.trace.json step.png --step 2
    python benchmarks/draw_profile.py shares shares.png before=RUN/fit-profile.json after=RUN/fit-profile.json

docs/profiling.md has such pictures. https://ui.perfetto.dev shows the same trace with all its details.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

from litlab.callbacks.profiler import FETCH, METHODS, PARTS, method_of

KINDS = {  # of operations: words of their names, the first that fits
    "convolution": ("conv",),
    "matrix product": ("mm", "linear", "matmul", "dot"),
    "recurrent layer": ("rnn", "lstm"),
    "normalisation": ("norm",),
    "pooling": ("pool",),
    "activation": ("gelu", "relu", "silu", "threshold", "softmax", "sigmoid", "tanh"),
    "random numbers, dropout": ("bernoulli", "dropout", "rand", "uniform", "normal_"),
    "arithmetic by element": ("add", "mul", "div", "sub", "sqrt", "lerp", "pow", "where", "exp"),
    "copies, zeros": ("copy", "clone", "contiguous", "zero", "fill", "memcpy", "memset", "cat", "index"),
}
REST = "other operations"
KIND_COLORS = (
    "#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377", "#ff99c8", "#444444", "#8d99ae", "#cccccc",
)  # fmt: skip
PART_COLORS = ("#d62728", "#ff9896", "#f4a261", "#1f77b4", "#2ca02c", "#9467bd", "#bbbbbb")
Bars = list[tuple[float, float]]  # (start, length) in milliseconds


def kind_of(name: str) -> str:
    """Return the kind of an operation or kernel, for its colour."""
    return next((kind for kind, words in KINDS.items() if any(word in name.lower() for word in words)), REST)


def step_events(events: list[dict[str, Any]], step: int) -> list[dict[str, Any]]:
    """Return what a trace has of one step, from the fetch of its batch to the next.

    Args:
        events: ``traceEvents`` of a trace.
        step: Its number, from 1.

    Raises:
        SystemExit: If the trace has fewer steps.
    """
    timed = [event for event in events if event.get("ph") == "X" and event.get("cat") != "Trace"]
    fetches = sorted(event["ts"] for event in timed if method_of(event["name"]) == FETCH)
    if not 1 <= step <= len(fetches):
        raise SystemExit(f"--step {step}: the trace has {len(fetches)} steps")
    begin = fetches[step - 1]
    end = fetches[step] if step < len(fetches) else max(event["ts"] + event["dur"] for event in timed)
    inside = [event for event in timed if begin <= event["ts"] < end]
    return [{**event, "ts": (event["ts"] - begin) / 1000, "dur": event["dur"] / 1000} for event in inside]


def lanes(events: list[dict[str, Any]]) -> dict[str, dict[str, Bars]]:
    """Return the bars of each lane by kind: the parts of the step, then each thread and each stream of a device."""
    found: dict[str, list[tuple[float, float, str]]] = {"part of the step": []}
    places: dict[tuple[Any, ...], str] = {}
    for event in events:
        name, cat, bar = event["name"], event["cat"], (event["ts"], event["ts"] + event["dur"])
        if cat == "user_annotation" and (part := METHODS.get(method_of(name))) is not None:
            found["part of the step"].append((*bar, part))
        if cat in ("cpu_op", "kernel", "gpu_memcpy", "gpu_memset"):
            what = "thread" if cat == "cpu_op" else "device stream"
            place = what, event["pid"], event["tid"]
            lane = places.setdefault(place, f"{what} {sum(known[0] == what for known in places) + 1}")
            found.setdefault(lane, []).append((*bar, kind_of(name)))
    return {lane: innermost(bars) for lane, bars in found.items()}


def innermost(nested: list[tuple[float, float, str]]) -> dict[str, Bars]:
    """Cut bars that lie within each other, so that each moment is that of the innermost.

    Args:
        nested: (start, end, kind) of each.
    """
    cut: dict[str, Bars] = defaultdict(list)
    around: list[tuple[float, str]] = []  # (end, kind) of those that are not over
    since = 0.0

    def until(moment: float) -> None:
        nonlocal since
        if around and moment > since:
            cut[around[-1][1]].append((since, moment - since))
        since = max(since, moment)

    for start, end, kind in sorted(nested, key=lambda bar: (bar[0], -bar[1])):
        while around and around[-1][0] <= start:
            until(around[-1][0])
            around.pop()
        until(start)
        since = start
        around.append((min(end, around[-1][0]) if around else end, kind))
    while around:
        until(around[-1][0])
        around.pop()
    return dict(cut)


def draw_timeline(trace: Path, step: int, picture: Path) -> None:
    """Draw one step: its parts, and the operations of each thread and stream."""
    drawn = lanes(step_events(json.loads(trace.read_text())["traceEvents"], step))
    colors = dict(zip(PARTS, PART_COLORS, strict=True)) | dict(zip([*KINDS, REST], KIND_COLORS, strict=True))
    figure, axes = pyplot.subplots(figsize=(10, 1.6 + 0.6 * len(drawn)), layout="constrained")
    for row, bars in enumerate(drawn.values()):
        for kind, spans in bars.items():
            axes.broken_barh(spans, (row - 0.4, 0.8), color=colors[kind], linewidth=0)
    axes.set_yticks(range(len(drawn)), list(drawn))
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds from the fetch of the batch")
    wide = axes.get_xlim()[1] / 300
    used = {
        kind for bars in drawn.values() for kind, spans in bars.items() if sum(length for _, length in spans) > wide
    }
    for names, place in ((PARTS, "outside upper center"), ([*KINDS, REST], "outside lower center")):
        shown = [name for name in names if name in used]
        handles = [pyplot.Rectangle((0, 0), 1, 1, color=colors[name]) for name in shown]
        figure.legend(handles, shown, loc=place, ncols=5, frameon=False)
    save(figure, axes, picture)


def draw_shares(profiles: dict[str, Path], picture: Path) -> None:
    """Draw the parts of a step of each profile as one bar, in milliseconds.

    Args:
        profiles: ``fit-profile.json`` by the name of its bar.
        picture: File to write.
    """
    found = {name: json.loads(path.read_text())["parts"] for name, path in profiles.items()}
    figure, axes = pyplot.subplots(figsize=(10, 1.6 + 0.55 * len(found)), layout="constrained")
    left = dict.fromkeys(found, 0.0)
    longest = max(sum(parts.values()) for parts in found.values())
    for part, color in zip(PARTS, PART_COLORS, strict=True):
        widths = [parts.get(part, 0.0) for parts in found.values()]
        if max(widths) < longest / 200:  # too thin to see
            continue
        axes.barh(list(found), widths, left=list(left.values()), color=color, label=part)
        for name, width in zip(found, widths, strict=True):
            share = width / sum(found[name].values())
            if width > longest / 20:
                axes.text(left[name] + width / 2, name, f"{share:.0%}", ha="center", va="center", fontsize=9)
            left[name] += width
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds per step")
    figure.legend(loc="outside upper center", ncols=5, frameon=False)
    save(figure, axes, picture)


def save(figure: Any, axes: Axes, picture: Path) -> None:
    """Write a picture without the lines around it."""
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.savefig(picture, dpi=100)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    timeline = commands.add_parser("timeline")
    timeline.add_argument("trace", type=Path)
    timeline.add_argument("picture", type=Path)
    timeline.add_argument("--step", type=int, default=1, help="number of the recorded step, from 1")
    shares = commands.add_parser("shares")
    shares.add_argument("picture", type=Path)
    shares.add_argument("profiles", nargs="+", metavar="NAME=FILE", help="name of a bar, and its fit-profile.json")
    arguments = parser.parse_args()
    if arguments.command == "timeline":
        draw_timeline(arguments.trace, arguments.step, arguments.picture)
        return
    named = [profile.partition("=") for profile in arguments.profiles]
    draw_shares({name: Path(file) for name, _, file in named}, arguments.picture)


if __name__ == "__main__":
    main()
