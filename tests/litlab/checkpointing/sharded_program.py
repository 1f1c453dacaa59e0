"""Train the small Transformer with sharded checkpoints, in each of some processes; not a test itself.

    python sharded_program.py FOLDER '{"NAME": {"tensor": 2, "steps": 6, "resume": "OTHER.ckpt", ...}, ...}'

writes FOLDER/NAME.ckpt with its shards, FOLDER/NAME.whole.pt with what each tensor of it is, gathered by torch, and
FOLDER/NAME.json with the losses. A step has as many samples, whatever the number of processes is.
"""

import json
import os
import resource
import sys
import time
from pathlib import Path

import torch
from lightning.pytorch import Callback, Trainer
from torch.distributed.tensor import DTensor

from litlab.callbacks import EMA
from litlab.checkpointing import sharded
from litlab.checkpointing.resume import ExactResume
from litlab.checkpointing.sharded import ShardedCheckpointIO
from litlab.errors import UserError
from litlab.parallel import ShardedStrategy
from tests.litlab.parallel.tiny import Losses, Tokens, classifier

BATCH, EPOCH = 24, 4  # samples of a step, steps of an epoch


class Save(Callback):
    """Save after some steps, into a file that each save replaces; after the last one of an epoch, when that ends.

    From the second save on the last process sleeps before it writes, or finds too little room. There may be a second
    file, of whose names the newest is kept.
    """

    def __init__(self, steps: list[int], path: Path, slow: float, room: int | None, best: bool) -> None:
        self.steps, self.path, self.slow, self.room, self.best = steps, path, slow, room, best

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.global_step in self.steps and trainer.global_step % EPOCH:
            self.save(trainer)

    def on_train_epoch_end(self, trainer, pl_module):
        if trainer.global_step in self.steps and trainer.global_step % EPOCH == 0:
            self.save(trainer)

    def save(self, trainer):
        is_first = trainer.global_step == self.steps[0]
        if not is_first and trainer.global_rank == trainer.world_size - 1:
            if self.room:
                resource.setrlimit(resource.RLIMIT_FSIZE, (self.room, resource.RLIM_INFINITY))
            if self.slow:
                write = sharded.ShardWriter.write_data
                sharded.ShardWriter.write_data = lambda *arguments: (time.sleep(self.slow), write(*arguments))[1]
        trainer.save_checkpoint(self.path)
        if self.best:
            trainer.save_checkpoint(self.path.with_name(f"best-{trainer.global_step}.ckpt"))
            if not is_first:
                trainer.strategy.remove_checkpoint(self.path.with_name(f"best-{self.steps[0]}.ckpt"))


def gather(state: dict) -> dict[str, torch.Tensor]:
    return {name: value.full_tensor() if isinstance(value, DTensor) else value for name, value in state.items()}


def run(folder: Path, name: str, world: int, tensor: int = 1, steps: int = 6, resume: str | None = None,
        asynchronous: bool = False, save: list[int] | None = None, slow: float = 0, room: int | None = None,
        best: bool = False) -> None:  # fmt: skip
    strategy = ShardedStrategy(tensor, save_distributed_checkpoint=True, async_checkpoint=asynchronous)
    losses = Losses()
    saving = Save(save or [steps], folder / f"{name}.ckpt", slow, room, best)
    until = {"max_steps": steps} if steps % EPOCH else {"max_epochs": steps // EPOCH}
    torch.manual_seed(0)
    trainer = Trainer(
        accelerator="cpu", devices=world, strategy=strategy, **until, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, limit_val_batches=0, use_distributed_sampler=False,
        callbacks=[losses, ExactResume(), EMA(0.5), saving], plugins=[ShardedCheckpointIO()],
    )  # fmt: skip
    module, data = classifier(size=18, heads=2), Tokens(batch_size=BATCH * tensor // world)
    trainer.fit(module, data, ckpt_path=resume and str(folder / resume), weights_only=True)
    gathered = {"state_dict": gather(module.state_dict())}
    states = trainer.optimizers[0].state_dict()["state"]
    gathered["state"] = {number: gather(state) for number, state in states.items()}
    if trainer.is_global_zero:
        torch.save(gathered, folder / f"{name}.whole.pt")
        (folder / f"{name}.json").write_text(json.dumps(losses.values))


if __name__ == "__main__":
    world = int(os.environ.get("WORLD_SIZE", 1))
    try:
        for name, case in json.loads(sys.argv[2]).items():
            run(Path(sys.argv[1]), name, world, **case)
    except UserError as error:
        print(f"error: {error}")
        sys.exit(2)
