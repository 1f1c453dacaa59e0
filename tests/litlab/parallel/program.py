"""Train the small Transformer with one strategy after another, in each of some processes; not a
test itself.

    python program.py FOLDER '{"NAME": {"strategy": "fsdp2"}, ...}'

writes FOLDER/NAME.json, and FOLDER/NAME.ckpt and NAME-4.ckpt after six and four steps. A step has
BATCH samples, whatever the number of processes is.
"""

import json
import os
import resource
import sys
import time
from pathlib import Path
from unittest import mock

import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import LambdaCallback

from litlab.callbacks import EMA, SWA, Freeze, FreezeRule, NaNGuard
from litlab.checkpointing.resume import ExactResume
from litlab.checkpointing.sharded import ShardedCheckpointIO, ShardWriter
from litlab.errors import UserError
from litlab.parallel import ShardedStrategy
from litlab.testing import Losses
from litlab.util.ranks import data_ranks, gather_rows
from tests.conftest import ROOT
from tests.litlab.callbacks.tiny import make_trainer
from tests.litlab.parallel.tiny import Tokens, classifier
from tests.processes import Python, ranks

BATCH, EPOCH, STEPS = 24, 3, 6  # samples of a step, steps of an epoch and of a fit
FIRST, WITHIN = 2, 4  # steps after which there is a checkpoint within the first or second epoch
WORLD, RANK = (
    int(os.environ.get(name, start)) for name, start in (("WORLD_SIZE", 1), ("LOCAL_RANK", 0))
)
AVERAGES = {"ema": lambda: [EMA(0.5)], "swa": lambda: [SWA(0.0)], None: list}


class Save(Callback):
    """Saves after four steps and the last one, beside an average.

    In parts the first file replaces one of two steps, as does a file of another name; the last
    process begins late to write it, or finds too little room.
    """

    def __init__(self, path, parts, room):
        within = path.with_name(f"{path.stem}-{WITHIN}.ckpt")
        self.paths = {**({FIRST: within} if parts else {}), WITHIN: within, STEPS: path}
        self.best, self.parts, self.room = path.with_name(f"{path.stem}-best.ckpt"), parts, room

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        step = trainer.global_step
        path = self.paths.pop(step, None)
        if path is None:
            return
        if self.parts:
            if step == WITHIN and RANK == WORLD - 1:
                self.impede()
            trainer.save_checkpoint(f"{self.best}-{step}")
        trainer.save_checkpoint(path)
        if self.parts and step == WITHIN:
            trainer.strategy.remove_checkpoint(f"{self.best}-{FIRST}")

    def impede(self) -> None:
        if self.room is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.room, resource.RLIM_INFINITY))
        write = ShardWriter.write_data
        ShardWriter.write_data = lambda *arguments: (time.sleep(0.2), write(*arguments))[1]


def train(
    folder, name, strategy="auto", fitted=True, resume=None, model=None, offload=False,
    average=None, freeze=None, validated=False, parts=False, room=None, **options
):  # fmt: skip
    """Train and test; what is not `fitted` is tested only.

    In "both" pairs of processes share layers. `freeze` has epochs by pattern. With `parts` each
    process writes its part of the checkpoint, in the background. `validated` is to validate first,
    in inference mode, as Lightning does it with NCCL; `options` are the Trainer's.
    """
    replicas = {"tp": WORLD, "both": 2}.get(strategy, 1)
    sharded = strategy in ("fsdp2", "tp", "both")
    batch = BATCH * replicas // WORLD // options.get("accumulate_grad_batches", 1)
    # All begin with the weights of the first process
    module = classifier(seed=1 + RANK, **(model or {}))
    data = Tokens(batch_size=batch)
    data.train_samples = EPOCH * BATCH
    rules = [FreezeRule(pattern, epochs) for pattern, epochs in (freeze or {}).items()]
    saving = Save(folder / f"{name}.ckpt", parts, room)
    torch.manual_seed(0)
    divided = ShardedStrategy(replicas, True, offload, parts, parts) if sharded else strategy
    losses, labels = Losses(), []
    tested = LambdaCallback(on_test_batch_end=lambda *given: labels.append(given[3][1]))
    callbacks = [losses, tested, ExactResume(), Freeze(rules), NaNGuard(), *AVERAGES[average]()]
    trainer = make_trainer(
        folder, devices=WORLD, max_epochs=STEPS // EPOCH, strategy=divided,
        callbacks=[*callbacks, saving],
        plugins=[ShardedCheckpointIO()], use_distributed_sampler=False, num_sanity_val_steps=0,
        **options,
    )  # fmt: skip
    checkpoint = None if resume is None else folder / f"{resume}.ckpt"
    if validated:
        backend = mock.Mock(wraps=torch.distributed, get_backend=lambda: "nccl")
        with mock.patch("lightning.pytorch.loops.utilities.dist", backend):
            trainer.validate(module, data, verbose=False)
    metrics, mean_losses = {}, []
    if fitted:
        trainer.fit(module, data, ckpt_path=checkpoint, weights_only=True)
        logged = trainer.callback_metrics.items()
        metrics = {key: value.item() for key, value in logged if key.startswith("val/")}
        checkpoint = None
        sums = trainer.strategy.reduce(torch.tensor(losses.values), reduce_op="sum")
        mean_losses = (sums / data_ranks(trainer)["world_size"]).tolist()
    metrics |= trainer.test(module, data, ckpt_path=checkpoint, weights_only=True, verbose=False)[0]
    metrics["samples"] = len(gather_rows(trainer, torch.cat(labels)))  # each counts once
    if trainer.is_global_zero:
        result = {"losses": mean_losses, "metrics": metrics}
        (folder / f"{name}.json").write_text(json.dumps(result))


def start(script, world, folder, *arguments) -> list[Python]:
    """Start a script in some processes, in a folder."""
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    return [
        Python(script, folder, *arguments, cwd=folder, environment={**paths, **rank})
        for rank in ranks(world)
    ]


def wait(processes, code=0) -> list[str]:
    """Return what processes have printed; it is shown where one of them fails."""
    printed = ["".join(process.communicate()) for process in processes]
    assert [process.returncode for process in processes] == [code] * len(processes), "\n".join(
        printed
    )
    return printed


def run(folder, world, cases, code=0) -> list[str]:
    return wait(start(Path(__file__), world, folder, json.dumps(cases)), code)


if __name__ == "__main__":
    try:
        for name, case in json.loads(sys.argv[2]).items():
            train(Path(sys.argv[1]), name, **case)
    except UserError as error:
        print(f"error: {error}")
        sys.exit(2)
