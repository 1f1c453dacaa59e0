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
from lightning.pytorch import Callback, seed_everything

from litlab.callbacks.nan_guard import NaNGuard
from litlab.checkpointing.callback import RunCheckpoint
from litlab.checkpointing.io import AtomicCheckpointIO
from litlab.checkpointing.resume import ExactResume
from litlab.errors import UserError
from litlab.runs.signals import StopSignals
from litlab.util.team import use_package
from tests.litlab.callbacks.tiny import Tiny, TinyData, make_trainer


class Model(Tiny):
    """Sends signals, or spoils its loss, as a plan says."""

    def __init__(self, plan: dict) -> None:
        super().__init__()
        self.plan = plan

    def training_step(self, batch, batch_idx):
        act("step", self, batch_idx)
        loss = super().training_step(batch, batch_idx)
        spoil = self.plan.get("nan")
        if spoil and self.global_step == spoil["step"] and self.global_rank == spoil["rank"]:
            loss = loss + float("nan")  # its gradient stays finite
        return loss

    def validation_step(self, batch, batch_idx):
        act("sanity" if self.trainer.sanity_checking else "validation", self, batch_idx)

    def test_step(self, batch, batch_idx):
        act("test", self, batch_idx)


def rank() -> int:
    return int(os.environ.get("LOCAL_RANK", 0))


def act(where: str, model: Model, batch_idx: int) -> None:
    """Takes its time, and sends signals to this process at a planned moment."""
    time.sleep(model.plan.get("seconds", 0.0))
    plan = model.plan.get("signal", {})
    moment = {"in": where, "step": model.global_step, "batch": batch_idx}
    if plan.get("rank", 0) in (rank(), "all") and plan == plan | moment:
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
    kept = RunCheckpoint(str(folder / "checkpoints"))
    callbacks = [ExactResume(), StopSignals(), NaNGuard(), Report(), kept]
    settings = {
        "max_epochs": 3, "limit_val_batches": 3, "enable_checkpointing": True,
        "use_distributed_sampler": False, **plan.get("trainer", {}),
    }  # fmt: skip
    trainer = make_trainer(folder, plugins=[AtomicCheckpointIO()], callbacks=callbacks, **settings)
    try:
        # Six batches of each stage
        getattr(trainer, plan.get("verb", "fit"))(Model(plan), TinyData(24))
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
