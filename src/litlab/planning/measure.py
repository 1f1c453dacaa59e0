"""One training step of a layout on fake tensors: what it holds in memory and sends."""

import logging
import warnings
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
from torch.distributed.device_mesh import init_device_mesh

from litlab.callbacks import ActivationCheckpointing, Freeze
from litlab.errors import UserError, first_line
from litlab.planning.fake import as_fake, as_on_gpu, processes, without_numbers
from litlab.planning.layout import Devices, Layout
from litlab.planning.ledger import Ledger
from litlab.planning.stand_ins import Batches, OneDevice, Sharded
from litlab.planning.step import Enough, Measured, Step

# What torch (2.10 to 2.15) raises where a step needs the numbers of a fake tensor, or an operation without a fake form.
NEEDS_NUMBERS = (
    DynamicOutputShapeException,
    DataDependentOutputException,
    UnsupportedOperatorException,
    UnsupportedFakeTensorException,
)
ALSO = (".numpy() is not supported for tensor subclasses", "no fake impl registered")  # RuntimeErrors that begin so


@dataclass(frozen=True)
class Job:
    """What is planned.

    Args:
        build: Makes the LightningModule and the callbacks that belong to a step.
        trainer: Makes the Trainer, with the settings of the run and those that are given.
        data: The run's data, set up.
        batch: A training batch.
        accumulated: Batches of an optimizer step.
        gpus: Whether it is planned for GPUs.
        average: Whether the weights are averaged.
    """

    build: Callable[[], tuple[LightningModule, list[Callback]]]
    trainer: Callable[..., Trainer]
    data: LightningDataModule
    batch: Any
    accumulated: int
    gpus: bool
    average: bool


def measure(job: Job, layout: Layout, devices: Devices, updates: bool = True) -> Measured:
    """Look at one step.

    Args:
        job: What is trained.
        layout: How it is divided. Pipelines and DDP are measured like one device.
        devices: Among which.
        updates: Whether to look at the optimizer's step, too.

    Raises:
        UserError: If the layout does not go with the model, or the step can't be had without numbers.
    """
    ledger, divided = Ledger(), layout.kind == "sharded" and devices.count > 1
    log = logging.getLogger("lightning.pytorch.utilities.rank_zero")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")  # what Lightning says of a fit without validation, for each layout
            mesh = None
            if divided:
                stack.enter_context(processes(devices.count))
                shape = (devices.count // layout.tensor, layout.tensor)
                mesh = init_device_mesh("cpu", shape, mesh_dim_names=("data_parallel", "tensor_parallel"))
            mode = stack.enter_context(without_numbers())
            stack.enter_context(ledger.resizing())
            if job.gpus:
                stack.enter_context(as_on_gpu())
            stack.enter_context(ledger)
            model, callbacks = job.build()
            if layout.checkpointing and not any(
                isinstance(callback, ActivationCheckpointing) for callback in callbacks
            ):
                callbacks.append(ActivationCheckpointing())
            freezes = [rule for one in callbacks if isinstance(one, Freeze) for rule in one.rules]
            step = Step(ledger, min(job.accumulated, 2), updates, job.gpus)
            if any(rule.epochs for rule in freezes):
                step.result.no_stages = "freeze.rules: it can't unfreeze parameters; set epochs to null"
            if not divided:  # what is trained from a later epoch on needs memory then; a sharded model can't do so
                for rule in freezes:
                    rule.epochs = None if rule.epochs is None else 0
            strategy = OneDevice(step) if mesh is None else Sharded(step, layout, mesh)
            trainer = job.trainer(
                accelerator="cpu", devices=1, num_nodes=1, strategy=strategy, plugins=[LightningEnvironment()],
                callbacks=[*callbacks, step], accumulate_grad_batches=min(job.accumulated, 2),
            )  # fmt: skip
            with suppress(Enough):
                trainer.fit(model, datamodule=Batches(job.data, as_fake(job.batch, mode)))
            return step.result
    except RuntimeError as error:
        if isinstance(error, NEEDS_NUMBERS) or any(text in str(error) for text in ALSO):
            raise UserError(
                f"--plan: a training step needs a tensor's numbers ({first_line(error)}), which a plan does not have, "
                "so what the step needs is not known; --check measures it"
            ) from error
        raise
    finally:
        log.setLevel(level)
