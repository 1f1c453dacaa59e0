"""What `fit --plan` predicts for the memory of each process, against what real runs on the CPU
take.

    python benchmarks/plan_memory.py [--only text] [-- FLAGS]

Two models of 30 and 35 million parameters under several strategies each, and one whose memory is
not in tensors; two processes (gloo) but for "one process". After every operation of the steps
behind the first one each process asks glibc how many bytes it has given out, to all threads; the
highest counts. What it had before the model was built is subtracted, and what the data takes while
it is set up, which a plan does not know.
"""

import argparse
import ctypes
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import CONFIGS, save, split_flags

QUIET = [
    "--checkpoint=null", "--early_stopping=null", "--vram=null", "--test_after_fit=false",
    "--trainer.callbacks=[]", "--trainer.limit_val_batches=0", "--trainer.limit_train_batches=4",
    "--trainer.max_epochs=1", "--trainer.enable_progress_bar=false", "--trainer.logger=false",
    "--trainer.accelerator=cpu", "--trainer.precision=32-true",
    "--trainer.enable_model_summary=false",
]  # fmt: skip
TEXT = [
    f"--config={CONFIGS}/text.yaml", "--data=TextData", "--data.dataset=csv",
    "--data.path=texts.csv", "--data.max_tokens=128", "--data.batch_size=8",
    "--model.network.embed_dim=512", "--model.network.num_layers=8", "--model.network.num_heads=8",
    "--model.network.dim_feedforward=2048", "--model.network.stem=0", "--ema=null",
]  # fmt: skip
MLP = [
    f"--config={CONFIGS}/mlp.yaml", "--data.dataset=generated", "--data.batch_size=512",
    "--data.image_size=[32,32]", "--data.mode=RGB",
    "--model.network.init_args.hidden_sizes=[3072,3072,3072,3072]",
]  # fmt: skip
CIFAR = [f"--config={CONFIGS}/cifar.yaml", "--data.dataset=generated", "--data.batch_size=512"]
DDP, FSDP2 = (["--trainer.devices=2", f"--trainer.strategy={name}"] for name in ("ddp", "fsdp2"))
TENSORS = [
    "--trainer.strategy=litlab.parallel.ShardedStrategy",
    "--trainer.strategy.tensor_parallel_size=2",
]
RUNS = {
    "text, one process": (1, [*TEXT, "--trainer.devices=1"]),
    "text, ddp": (2, [*TEXT, *DDP]),
    "text, fsdp2": (2, [*TEXT, *FSDP2]),
    "text, tensor parallel 2": (2, [*TEXT, *TENSORS, "--trainer.devices=2"]),
    "text, fsdp2 with ema": (2, [*TEXT, *FSDP2, "--ema.decay=0.99"]),
    "mlp, one process": (1, [*MLP, "--trainer.devices=1"]),
    "mlp, ddp": (2, [*MLP, *DDP]),
    "mlp, fsdp2": (2, [*MLP, *FSDP2]),
    # Most of its memory on a CPU is in oneDNN's buffers for convolutions, which are no tensors.
    "cifar, one process": (1, [*CIFAR, "--trainer.devices=1"]),
}


def main() -> None:
    if len(sys.argv) > 2 and sys.argv[1] in ("--measure", "--predict"):
        kind, target = sys.argv[1:3]
        sys.argv[1:] = sys.argv[3:]
        {"--measure": measure, "--predict": predict}[kind](Path(target))
        return
    own, flags = split_flags()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="run those whose name has this in it")
    only = parser.parse_args(own).only
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_texts(folder / "texts.csv")
        for title, (count, settings) in RUNS.items():
            if only in title:
                rows[title] = compare(folder, count, [*settings, *QUIET, *flags])
                print(title, rows[title], flush=True)
    save("plan_memory", {"mebibytes_per_process": rows})


def write_texts(path: Path) -> None:
    """Write texts that are all longer than the model reads, so that all batches have the same
    shape.
    """
    rng, words = random.Random(0), [f"word{number}" for number in range(20_000)]
    lines = [
        f"{' '.join(rng.choices(words, k=150))},{'yes' if row % 2 else 'no'}" for row in range(1000)
    ]
    path.write_text("\n".join(["text,label", *lines]) + "\n")


def compare(folder: Path, count: int, arguments: list[str]) -> dict[str, float]:
    """Return what was predicted and what was measured, in MiB, and the difference in per cent of
    the latter.
    """
    plan = folder / "plan.json"
    start(["--predict", str(plan), "fit", *arguments, f"--plan=1x{count}"], folder, [{}])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "NODE_RANK": 0, "WORLD_SIZE": count}
    ranks = [{**shared, "LOCAL_RANK": rank} for rank in range(count)] if count > 1 else [{}]
    start(["--measure", str(folder / "peak"), "fit", *arguments], folder, ranks)
    peaks = [json.loads((folder / f"peak{rank}").read_text()) for rank in range(count)]
    predicted, measured = json.loads(plan.read_text()) / 2**20, max(peaks) / 2**20
    return {
        "predicted": round(predicted, 1),
        "measured": round(measured, 1),
        "least_of_the_processes": round(min(peaks) / 2**20, 1),
        "difference_percent": round(100 * (predicted / measured - 1), 1),
    }


def start(arguments: list[str], folder: Path, ranks: list[dict[str, Any]]) -> None:
    """Run this file in so many processes.

    Raises:
        SystemExit: If one fails; with what it said.
    """
    command = [sys.executable, str(Path(__file__).resolve()), *arguments]
    processes = [
        subprocess.Popen(
            command,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                **{name: str(value) for name, value in rank.items()},
            },
        )
        for rank in ranks
    ]
    said = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise SystemExit(f"{' '.join(command)} failed:\n" + "\n".join(said))


def predict(target: Path) -> None:
    """Write what the plan of a command line says, in bytes."""
    from litlab.cli.main import run_command
    from litlab.commands.plan import plan

    plan.list_layouts = lambda *_: []
    plan.show = lambda ways, *_: target.write_text(json.dumps(ways[0].memory.total()))
    raise SystemExit(run_command("project"))


def measure(target: Path) -> None:
    """Run a command line and write the peak of its memory, in bytes."""
    from lightning.pytorch import Callback
    from torch.distributed.tensor import DTensor
    from torch.utils._python_dispatch import TorchDispatchMode

    from litlab.testing import build_experiment
    from litlab.util.team import use_package

    peak = data = baseline = steps = 0

    class Heap(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            nonlocal peak
            if any(issubclass(kind, DTensor) for kind in types):
                return NotImplemented  # it is made of others, which come here next
            result = func(*args, **(kwargs or {}))
            if steps > 1:
                peak = max(peak, in_use())
            return result

    class Steps(Callback):
        def on_train_batch_start(
            self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
        ) -> None:
            nonlocal steps
            steps += 1

    def set_aside(function: Any) -> Any:
        def call(*arguments: Any, **keywords: Any) -> Any:
            nonlocal data
            before = in_use()
            result = function(*arguments, **keywords)
            data += in_use() - before
            return result

        return call

    use_package("project")
    with Heap():
        baseline = in_use()
        model, data_module, trainer = build_experiment(*sys.argv[2:])
        trainer.callbacks.append(Steps())
        for name in ("prepare_data", "setup", "train_dataloader"):
            setattr(data_module, name, set_aside(getattr(data_module, name)))
        trainer.fit(model, data_module)
    Path(f"{target}{os.environ.get('LOCAL_RANK', 0)}").write_text(
        json.dumps(peak - baseline - data)
    )


def in_use() -> int:
    """Return the bytes that this process has from malloc, in all of its threads (mallinfo2 of glibc
    2.33 and newer).
    """
    found = ctypes.CDLL(None).mallinfo2
    found.restype = MallInfo
    now = found()
    return now.uordblks + now.hblkhd


class MallInfo(ctypes.Structure):
    """What mallinfo2 returns."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


if __name__ == "__main__":
    main()
