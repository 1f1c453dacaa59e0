"""Validation accuracy by seconds of training, and test accuracy, of runs that are done; one for each seed, say.

    python -m project fit --config configs/cifar.yaml --seed_everything 1 --data.dataset folder --data.path DIR
    python benchmarks/accuracy_over_time.py lightning_logs/cifar/version_0 lightning_logs/cifar/version_1 ...

Seconds of training are without validation; minutes are those of the whole fit, with validation.
"""

import argparse
import json
from itertools import accumulate
from pathlib import Path
from typing import Any

from common import save, summary
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from litlab.runs.folder import RunFolder


def curve(run: RunFolder) -> dict[str, Any]:
    """Return what a run has reached, and when."""
    events = EventAccumulator(str(run.path))
    events.Reload()
    seconds = accumulate(event.value for event in events.Scalars("time/epoch_seconds"))
    accuracy = [event.value for event in events.Scalars("val/acc")]
    metrics, provenance = (json.loads(path.read_text()) for path in (run.metrics, run.provenance))
    return {
        **{name: provenance[name] for name in ("started", "commit", "seed")},
        "training_seconds, val/acc": [[round(s, 1), round(a, 4)] for s, a in zip(seconds, accuracy, strict=True)],
        "minutes": round(metrics["seconds"] / 60, 2),
        "test/acc": round(metrics["test"]["test/acc"], 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folder")
    runs = [curve(RunFolder(path)) for path in parser.parse_args().runs]
    save("accuracy_over_time", {"test/acc": summary([run["test/acc"] for run in runs]), "runs": runs})


if __name__ == "__main__":
    main()
