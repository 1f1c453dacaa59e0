"""Quantization-aware training against quantizing afterwards: the test accuracy of a CIFAR run as int8.

    python benchmarks/qat.py RUN --seeds 3 -- --data.dataset folder --data.path DIR [FLAG ...]

RUN is quantized as it is; after two more epochs, at a tenth of the rates, without rounding; and after two with it
(configs/with/qat.yaml). Flags after ``--`` are for every fit. Each seed is one of the further epochs.
"""

import argparse
import json
import tempfile
from pathlib import Path

from common import CONFIGS, project, save, split_flags, summary
from rich.console import Console
from rich.progress import track

SIDES = {"float32 fine-tuning": ["--trainer.callbacks=[]"], "QAT": []}


def accuracies(folder: Path, run: Path | str, output: str) -> dict[str, float]:
    """Export a run as int8; return the test accuracy of the run and of the export."""
    where = folder / output
    wanted = ["--format", "onnx", "--quantize", "int8-static", "--compare", "eager", "--output", str(where)]
    project(folder, "export", "--run", run, *wanted)
    metrics = json.loads((where / "manifest.json").read_text())["metrics"]
    return {"float32": round(metrics["run"]["test/acc"], 4), "int8": round(metrics["exported"]["test/acc"], 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of the run")
    parser.add_argument("--seeds", type=int, default=3)
    own, flags = split_flags()
    options = parser.parse_args(own)
    run = options.run.resolve()
    configs = [f"--config={CONFIGS}/cifar.yaml", f"--config={CONFIGS}/with/qat.yaml"]
    cases = [(side, seed) for seed in range(options.seeds) for side in SIDES]
    found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cache = f"--data.cache_dir={folder}/cache"
        before = accuracies(folder, run, "before")
        for number, (side, seed) in enumerate(track(cases, console=Console(stderr=True))):
            given = [*configs, *SIDES[side], *flags, cache, f"--seed_everything={seed}", f"--init_from={run}"]
            project(folder, "fit", *given, f"--experiment=case{number}", "--test_after_fit=false")
            fitted = folder / f"lightning_logs/case{number}/version_0"
            found[side].append(accuracies(folder, fitted, f"exported{number}"))
    rows = {side: {kind: [one[kind] for one in values] for kind in values[0]} for side, values in found.items()}
    gained = [
        round(qat - other, 4) for qat, other in zip(rows["QAT"]["int8"], rows[next(iter(SIDES))]["int8"], strict=True)
    ]
    save("qat", {"flags": flags, "as it is": before, **rows, "int8 with QAT against without": summary(gained)})


if __name__ == "__main__":
    main()
