"""What techniques that change what is learned do to accuracy: an experiment with each of them alone, and without.

    python benchmarks/technique_accuracy.py cifar --seeds 3 -- --data.dataset folder --data.path DIR [FLAG ...]
    python benchmarks/technique_accuracy.py text --seeds 3 -- --data.dataset csv --data.path FILE [FLAG ...]

Each fit is a process of its own on one thread, and two run at a time. Differences are taken between runs of the same
seed. Flags after ``--`` are for every fit, so that it can be made small. With --only, the other rows of an earlier
result stay, so give it the same flags.
"""

import argparse
import json
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from common import CONFIGS, earlier, project, save, split_flags, summary
from rich.console import Console
from rich.progress import track
from rich.table import Table

SHIPPED = "as shipped"
# Names of overlays, and flags.
TECHNIQUES: dict[str, dict[str, list[str]]] = {
    "cifar": {
        SHIPPED: [],
        "without label smoothing": ["--model.label_smoothing=0"],
        "label_smoothing": ["label_smoothing"],
        "mixup": ["mixup"],
        "cutmix": ["cutmix"],
        "ema": ["ema"],
        "swa": ["swa"],
        "clip": ["clip"],
        "clip_value": ["clip_value"],
        "agc": ["agc"],
        "muon": ["muon"],
        "one_cycle": ["one_cycle"],
        "warm_restarts": ["warm_restarts"],
        "plateau": ["plateau"],
        "accumulate_schedule": ["accumulate_schedule"],
        "without flip_tta": ["--model.flip_tta=false"],
        "tta": ["tta"],
    },
    "text": {
        SHIPPED: [],
        "without label smoothing": ["--model.label_smoothing=0"],
        "label_smoothing": ["label_smoothing"],
        "without clipping": ["--trainer.gradient_clip_val=null"],
        "clip_value": ["clip_value"],
        "agc": ["agc", "--trainer.gradient_clip_val=null"],
        "without ema": ["--ema=null"],
        "swa": ["swa", "--ema=null"],
        "muon": ["muon"],
        "adamw8bit": ["adamw8bit"],
        "one_cycle": ["one_cycle"],
        "warm_restarts": ["warm_restarts"],
        "accumulate_schedule": ["accumulate_schedule"],
    },
}


def accuracy(folder: Path, experiment: str, seed: int, technique: list[str], flags: list[str]) -> float:
    """Fit once; return the test accuracy."""
    files = [f"--config={CONFIGS}/with/{name}.yaml" for name in technique if not name.startswith("--")]
    own = [flag for flag in technique if flag.startswith("--")]
    config = f"--config={CONFIGS}/{experiment}.yaml"
    project(folder, "fit", config, *files, *flags, *own, f"--seed_everything={seed}", "--trainer.accelerator=cpu")
    metrics = json.loads((folder / f"lightning_logs/{experiment}/version_0/metrics.json").read_text())
    return round(metrics["test"]["test/acc"], 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", choices=TECHNIQUES)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="+", help="techniques besides the config as shipped")
    own, flags = split_flags()
    options = parser.parse_args(own)
    techniques = TECHNIQUES[options.experiment]
    names = [name for name in techniques if not options.only or name in {SHIPPED, *options.only}]
    cases = [(name, seed) for seed in range(options.seeds) for name in names]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(max_workers=2) as pool:

        def fit(case: tuple[str, int]) -> float:
            name, seed = case
            own = Path(folder, f"{name} {seed}")
            own.mkdir()
            cache = f"--data.cache_dir={folder}/cache"
            return accuracy(own, options.experiment, seed, techniques[name], [cache, *flags])

        first = fit(cases[0])  # by itself: it fills the cache
        rest = track(pool.map(fit, cases[1:]), total=len(cases) - 1, console=Console(stderr=True))
        found = dict(zip(cases, [first, *rest], strict=True))
    rows = {name: [found[name, seed] for seed in range(options.seeds)] for name in names}
    differences = {
        name: summary([round(one - other, 4) for one, other in zip(values, rows[SHIPPED], strict=True)])
        for name, values in rows.items()
    }
    table = Table("", "test accuracy", "against as shipped: median (least to most)", title=options.experiment)
    for name, values in rows.items():
        row = differences[name]
        table.add_row(name, " ".join(map(str, values)), f"{row['median']:+} ({row['min']:+} to {row['max']:+})")
    Console(stderr=True).print(table)
    results = {name: {"test/acc": values, "against as shipped": differences[name]} for name, values in rows.items()}
    name = f"technique_accuracy_{options.experiment}"
    save(name, {"flags": flags, **(earlier(name, techniques) if options.only else {}), **results})


if __name__ == "__main__":
    main()
