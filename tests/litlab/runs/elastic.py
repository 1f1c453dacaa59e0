"""An agent of torchrun whose workers are forked, and the callback that kills one of them; not a test itself.

The workers of ``torchrun`` itself would each import torch and Lightning. All else is torch's: agents, rendezvous, store
and restarts.
"""

import os
import runpy
import signal
import sys
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch.distributed.launcher.api import LaunchConfig, elastic_launch


class KillOnce(Callback):
    """Kills the rank that ``KILL`` names with epoch and batch, such as ``1 0 5``, once: it leaves a file."""

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        here = f"{trainer.global_rank} {trainer.current_epoch} {batch_idx}"
        if os.environ.get("KILL") == here and not (killed := Path("killed")).exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def work(*arguments: str) -> None:
    """Become ``python -m auks ARGUMENTS``."""
    sys.argv = ["auks", *arguments]
    runpy.run_module("auks", run_name="__main__", alter_sys=True)


def agent(nodes: int, endpoint: str, arguments: list[str]) -> None:
    """What ``torchrun --nnodes NODES --rdzv_endpoint ENDPOINT -m auks ARGUMENTS`` does."""
    config = LaunchConfig(
        min_nodes=nodes, max_nodes=nodes, nproc_per_node=1, rdzv_backend="c10d", rdzv_endpoint=endpoint, run_id="fit",
        max_restarts=3, monitor_interval=0.1, start_method="fork",
    )  # fmt: skip
    elastic_launch(config, work)(*arguments)


if __name__ == "__main__":
    agent(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
