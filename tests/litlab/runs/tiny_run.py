"""A tiny training run as a process of its own, told what to do by a list of plans in JSON; not a
test itself.
"""

import json
import os
import signal
import sys
import time
import warnings
from pathlib import Path

import torch
from lightning.fabric.strategies.launchers import subprocess_script
from lightning.pytorch import Callback, LightningModule, seed_everything
from torch import nn

from litlab.callbacks.nan_guard import NaNGuard
from litlab.checkpointing.callback import RunCheckpoint
from litlab.checkpointing.io import AtomicCheckpointIO
from litlab.checkpointing.resume import ExactResume
from litlab.errors import UserError
from litlab.runs.signals import StopSignals
from litlab.util.team import use_package
from tests.litlab.callbacks.tiny import make_trainer


class Model(LightningModule):
    """Sends signals, or spoils its loss, as a plan says."""

    def __init__(self, plan: dict) -> None:
        super().__init__()
        self.plan = plan
        self.network = nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        act("step", self, batch_idx)
        loss = self.network(batch[0]).square().mean()
        spoil = self.plan.get("nan")
        if spoil and self.global_step == spoil["step"] and self.global_rank == spoil["rank"]:
            loss = loss + float("nan")  # its gradient stays finite
        return loss

    def validation_step(self, batch, batch_idx):
        act("sanity" if self.trainer.sanity_checking else "validation", self, batch_idx)
        self.log("val/loss", self.network(batch[0]).square().mean(), sync_dist=True)

    def test_step(self, batch, batch_idx):
        act("test", self, batch_idx)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)

    def train_dataloader(self):
        return Batches(6)

    def val_dataloader(self):
        return Batches(3)

    test_dataloader = val_dataloader


class Batches:
    """The same batch so many times; where a resumed epoch goes on does not matter."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __iter__(self):
        batch = [torch.randn(5, 4, generator=torch.Generator().manual_seed(1))]
        yield from [batch] * self.count

    def state_dict(self):  # Lightning warns of mid-epoch checkpoints with loaders that can't resume
        return {}

    def load_state_dict(self, state):
        pass


def rank() -> int:
    return int(os.environ.get("LOCAL_RANK", 0))


def act(where: str, model: Model, batch_idx: int) -> None:
    """Takes its time, and sends signals to this process at a planned moment."""
    time.sleep(model.plan.get("seconds", 0.0))
    plan = model.plan.get("signal")
    if (
        not plan
        or where != plan["in"]
        or plan.get("rank", 0) not in (rank(), "all")
        or hasattr(model, "sent")
    ):
        return
    if model.global_step == plan["step"] and batch_idx == plan.get("batch", batch_idx):
        model.sent = True
        for name in plan["names"]:
            os.kill(os.getpid(), getattr(signal, name))
            time.sleep(0.05)


class Report(Callback):
    """Prints how the run failed."""

    def on_exception(self, trainer, pl_module, exception):
        finite = all(parameter.isfinite().all() for parameter in pl_module.parameters())
        end = f"after {trainer.global_step} steps, weights {'finite' if finite else 'not finite'}"
        print(f"rank {trainer.global_rank}: {type(exception).__name__} {end}", flush=True)


def run(plan: dict) -> int:
    """One fit or test; returns the exit code of the process that it would be."""
    seed_everything(0, verbose=False)
    folder = Path(plan["folder"])
    kept = RunCheckpoint(str(folder / "checkpoints"), monitor="val/loss")
    callbacks = [ExactResume(), StopSignals(), NaNGuard(), Report(), kept]
    settings = {"max_epochs": 3, "enable_checkpointing": True, **plan.get("trainer", {})}
    trainer = make_trainer(folder, plugins=[AtomicCheckpointIO()], callbacks=callbacks, **settings)
    try:
        if plan.get("verb") == "test":
            trainer.test(Model(plan))
        else:
            trainer.fit(Model(plan))
    except UserError as error:
        print(f"rank {rank()}: error: {error}", flush=True)
        return 2
    except SystemExit as exit_:
        return exit_.code
    return 0


def main() -> int:
    use_package("auks")
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    code = 0
    for plan in json.loads(sys.argv[1]):
        code = run(plan)
        if rank() == 0:
            print(f"exit {code}", flush=True)
    return code


class Forked:
    """The rank that Lightning starts with `subprocess.Popen`, which needs not import everything
    once more.
    """

    returncode: int | None = None

    def __init__(self, command: list[str], env: dict[str, str], **_: object) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            os.environ.update(env)
            os._exit(main())

    def poll(self) -> int | None:
        pid, status = os.waitpid(self.pid, os.WNOHANG) if self.returncode is None else (0, 0)
        if pid:
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


if __name__ == "__main__":
    subprocess_script.subprocess.Popen = Forked
    sys.exit(main())
