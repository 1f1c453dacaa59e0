"""What several processes gain on the cores of this machine: strong and weak scaling of each strategy, on the CPU.

    python benchmarks/scaling.py [--repeats 3] [--batches 6] [-- FLAGS]

configs/text.yaml with four blocks of 256 numbers, on texts of one length that are made up. Each process has one thread
and one core; "2 threads" is one process with two. Strong: a step has 32 texts in all. Weak: 32 for each process. The
throughput is that of the epochs after the first one, as the run logs it; repeats alternate. On GPUs the figures are
others: a CPU computes slowly for what its processes send through the memory that they share.
"""

import argparse
import random
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from common import CONFIGS, project, save, split_flags, summary
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

WORDS, TEXTS, BATCH = 200, 640, 32
EPOCHS = 3
BASE = [
    f"--config={CONFIGS}/text.yaml", "--data.dataset=csv", "--data.path=texts.csv", "--data.max_tokens=64",
    "--model.embed_dim=256", "--model.num_layers=4", "--model.dim_feedforward=1024", "--model.num_heads=4",
    "--model.stem=0", "--ema=null", "--checkpoint=null", "--early_stopping=null", "--test_after_fit=false",
    "--trainer.accelerator=cpu", "--trainer.precision=32-true", "--trainer.limit_val_batches=0",
    f"--trainer.max_epochs={EPOCHS}", "--trainer.enable_progress_bar=false", "--trainer.callbacks=[]",
]  # fmt: skip
TWO = "--trainer.devices=2"
TENSORS = ["--trainer.strategy=litlab.parallel.ShardedStrategy", "--trainer.strategy.tensor_parallel_size=2"]
CASES: dict[str, tuple[int, int, list[str]]] = {  # threads, texts per step and process that reads its own, flags
    "one process": (1, BATCH, ["--trainer.devices=1"]),
    "one process, 2 threads": (2, BATCH, ["--trainer.devices=1"]),
    "ddp, strong": (1, BATCH // 2, [TWO, "--trainer.strategy=ddp"]),
    "ddp, weak": (1, BATCH, [TWO, "--trainer.strategy=ddp"]),
    "fsdp2, strong": (1, BATCH // 2, [TWO, "--trainer.strategy=fsdp2"]),
    "fsdp2, weak": (1, BATCH, [TWO, "--trainer.strategy=fsdp2"]),
    "tensor parallel, strong": (1, BATCH, [TWO, *TENSORS]),
    "pipeline, strong": (1, BATCH, [TWO, "--trainer.strategy=pipeline"]),
}


def main() -> None:
    """Run all cases in turn, as often as asked for."""
    own, flags = split_flags()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--batches", type=int, default=6, help="steps of an epoch")
    chosen = parser.parse_args(own)
    found: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_texts(folder / "texts.csv")
        for repeat in range(chosen.repeats):
            for case, (threads, batch, settings) in CASES.items():
                experiment = f"{case.replace(', ', '_').replace(' ', '_')}_{repeat}"
                few = [f"--data.batch_size={batch}", f"--trainer.limit_train_batches={chosen.batches}"]
                project(folder, "fit", *BASE, *settings, *few, f"--experiment={experiment}", *flags, threads=threads)
                found[case] += throughput(folder / "lightning_logs" / experiment / "version_0")
                print(f"{repeat} {case}: {found[case][-1]:.1f} texts/s", file=sys.stderr)
    rows: dict[str, Any] = {case: {"texts_per_second": summary(values)} for case, values in found.items()}
    alone = rows["one process"]["texts_per_second"]["median"]
    for row in rows.values():
        row["ratio_to_one_process"] = round(row["texts_per_second"]["median"] / alone, 2)
    save("scaling", {"cases": rows, "processes": 2, "repeats": chosen.repeats})


def write_texts(path: Path) -> None:
    """Write texts of as many words each, of two classes."""
    draw = random.Random(0)
    lines = [f"{number % 2},{' '.join(f'w{draw.randrange(WORDS)}' for _ in range(64))}" for number in range(TEXTS)]
    path.write_text("\n".join(["label,text", *lines]) + "\n")


def throughput(run: Path) -> list[float]:
    """Return the texts per second of each epoch after the first."""
    curves = EventAccumulator(str(run)).Reload()
    return [point.value for point in curves.Scalars("time/samples_per_second")][1:]


if __name__ == "__main__":
    main()
