"""Fits of an experiment in several variants and with several seeds, side by side in one table.

    python benchmarks/variants.py benchmarks/variants/cifar.yaml --seeds 0,1,2 -- --data.dataset
    folder --data.path DIR

A file of variants says what is compared, flags by name of the variant; the first one is what the
others are compared with, seed by seed. Flags after ``--`` are for every fit. Each fit is a process
of its own; the variants take turns, in the other direction each time, so that whatever else the
machine does hits all of them.

    config: configs/cifar.yaml
    metrics: [test/acc]
    flags: []                # of every fit
    variants:
      as shipped: []
      mixup: [--model.mixup=0.2]
"""

import argparse
import json
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml
from common import CONFIGS, project, save, split_flags, summarise
from rich.console import Console
from rich.progress import track
from rich.table import Table

COSTS = ("seconds", "peak_memory_gib")


def fit(
    folder: Path, spec: dict[str, Any], name: str, seed: int, flags: list[str], threads: int
) -> dict[str, float]:
    """Fit and test once, in a new folder; return the metrics that are compared, those of baselines
    too.
    """
    folder.mkdir()
    (folder / "configs").symlink_to(CONFIGS)  # as the flags name overlays
    words = [
        "--config",
        str(CONFIGS.parent / spec["config"]),
        *spec.get("flags", []),
        *flags,
        *spec["variants"][name],
    ]
    project(
        folder, "fit", *words, f"--seed_everything={seed}", "--experiment=variant", threads=threads
    )
    run = folder / "lightning_logs/variant/version_0"
    metrics = json.loads((run / "metrics.json").read_text())
    row = {key: metrics["test"][key] for key in spec["metrics"]} | {
        key: metrics[key] for key in COSTS
    }
    baselines = run / "baselines.json"
    if baselines.is_file():
        _, *others = json.loads(baselines.read_text()).items()  # the first one is the model
        row |= {
            f"{other}: {key}": values[key] for other, values in others for key in spec["metrics"]
        }
    return row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--only", nargs="+", help="variants besides the first one")
    parser.add_argument("--jobs", type=int, default=1, help="fits at a time, which share the cores")
    parser.add_argument("--name", help="of the results (default: that of the file)")
    own, flags = split_flags()
    options = parser.parse_args(own)

    # Fit all variants with each seed
    spec = yaml.safe_load(options.file.read_text())
    first, *others = spec["variants"]
    names = [first, *(name for name in others if not options.only or name in options.only)]
    seeds = [int(seed) for seed in options.seeds.split(",")]
    cases = [
        (name, seed) for turn, seed in enumerate(seeds) for name in names[:: -1 if turn % 2 else 1]
    ]
    threads = max(1, (os.cpu_count() or 1) // options.jobs)
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(options.jobs) as pool:
        cache = f"--data.cache_dir={place}/cache"

        def fit_case(case: tuple[str, int]) -> dict[str, float]:
            return fit(Path(place, f"{cases.index(case)}"), spec, *case, [cache, *flags], threads)

        start = fit_case(cases[0])  # by itself: it fills the cache
        rest = track(
            pool.map(fit_case, cases[1:]), total=len(cases) - 1, console=Console(stderr=True)
        )
        rows = dict(zip(cases, [start, *rest], strict=True))

    # Sum up, and compare with the first variant seed by seed
    results: dict[str, Any] = {}
    table = Table("", "metric", "by seed", "against the first: median (least to most)")
    for name in names:
        for key in rows[name, seeds[0]]:
            values = [round(rows[name, seed][key], 4) for seed in seeds]
            entry = results.setdefault(name, {})[key] = {"values": values, **summarise(values)}
            difference = ""
            if name != first and key in rows[first, seeds[0]]:
                against = summarise(
                    [round(rows[name, seed][key] - rows[first, seed][key], 4) for seed in seeds]
                )
                entry["against the first"] = against
                difference = f"{against['median']:+g} ({against['min']:+g} to {against['max']:+g})"
            table.add_row(name, key, " ".join(map(str, values)), difference)
    Console(stderr=True).print(table)
    save(
        options.name or options.file.stem,
        {"seeds": seeds, "jobs": options.jobs, "flags": flags, "variants": results},
    )


if __name__ == "__main__":
    main()
