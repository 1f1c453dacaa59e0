"""``fit --plan``: what a run needs of each of many devices, found out on this machine without running it.

One training step is measured on tensors without numbers, and each way to divide it is arithmetic on that.
"""

import re
from dataclasses import replace
from functools import cache
from typing import Any

import psutil
import torch
from lightning.pytorch import LightningDataModule

from litlab.callbacks.activation_checkpointing import ActivationCheckpointing
from litlab.callbacks.batches import describe
from litlab.cli.argv import take_flag
from litlab.cli.sections import SECTIONS, section_callbacks
from litlab.commands.plan.display import show
from litlab.commands.plan.estimate import Devices, Estimate, estimate, layout_of, list_others
from litlab.commands.plan.measure import Ledger, measure
from litlab.data.module import ExperimentData
from litlab.errors import UserError
from litlab.util.device import GIB

GPU_GIB = 80.0


def plan_command(command: Any) -> None:
    """Print the plan of a command line of ``fit``.

    Args:
        command: The `litlab.cli.config.Command`.

    Raises:
        UserError: If the run can't be planned.
    """
    config = command.config
    if config.resume or config.check or config.ckpt_path:
        raise UserError("--plan: it looks at a fit from its start; leave --resume, --ckpt_path and --check out")
    devices = find_devices(config.plan, config.plan_memory, config.trainer.accelerator)
    settings, batches = config.trainer, config.trainer.accumulate_grad_batches
    layout = layout_of(settings.strategy)
    data = command.build_data()
    batch = training_batch(data)
    command.fill_from_data(data)

    # Of the callbacks those that change what a step keeps.
    for name in ("logger", "plugins", "profiler"):  # they may start something
        settings[name] = None
    built = command.build("trainer", *SECTIONS, "channels_last", "threads")
    callbacks = [*section_callbacks(built), *(built.trainer.callbacks or [])]
    callbacks = [callback for callback in callbacks if getattr(callback, "part_of_step", False)]
    layout = replace(layout, checkpointing=any(isinstance(one, ActivationCheckpointing) for one in callbacks))
    precision = "bf16-mixed" if settings.precision == "auto" and devices.is_gpu else settings.precision

    @cache
    def measure_step(checkpointing: bool) -> Ledger:
        more = [ActivationCheckpointing()] if checkpointing and not layout.checkpointing else []
        return measure(
            lambda: command.build_model(trained=True), [*callbacks, *more], batch, devices.is_gpu,
            precision=precision, max_epochs=settings.max_epochs, gradient_clip_val=settings.gradient_clip_val,
            gradient_clip_algorithm=settings.gradient_clip_algorithm, accumulate_grad_batches=min(batches, 2),
        )  # fmt: skip

    ways = [estimate(layout, measure_step(layout.checkpointing), devices, batches)]
    is_divisible = any(use.is_divided for use in measure_step(layout.checkpointing).alive)
    for way in list_others(layout, devices, is_divisible):
        try:
            ways.append(estimate(way, measure_step(way.checkpointing), devices, batches))
        except UserError as error:
            ways.append(Estimate(way, refused=str(error)))

    kind = "GPUs" if devices.is_gpu else "processes"
    print(f"Plan for {devices.nodes} x {devices.per_node} {kind} of {devices.memory / GIB:.3g} GiB. Nothing is run.")
    print(f"model: {config.model.class_path}, {precision}")
    print(f"batch: {describe(batch)} on each device")
    show(ways, devices, take_flag("--plan_memory", take_flag("--plan", command.typed)[1])[1])


def find_devices(text: str, gib: float | None, accelerator: str) -> Devices:
    """Return the devices of a plan.

    Args:
        text: Nodes x devices of each, such as 2x8.
        gib: Memory of a device; None: that of this machine's GPU, or 80; or each process's share of this machine.
        accelerator: The Trainer's.

    Raises:
        UserError: If the text is not of this form.
    """
    sizes = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)
    if sizes is None:
        raise UserError(f"--plan: {text!r} is not valid; give nodes x devices of each, such as 1x8 or 16x8")
    nodes, per_node = map(int, sizes.groups())
    memory = (gib or GPU_GIB) * GIB
    if gib is None and accelerator == "cpu":
        memory = psutil.virtual_memory().total / per_node
    elif gib is None and torch.cuda.is_available():
        memory = torch.cuda.get_device_properties(0).total_memory
    return Devices(nodes, per_node, memory, accelerator != "cpu")


def training_batch(data: LightningDataModule) -> Any:
    """Return a batch as the model gets it, as large as batches get. Generated data stands in for a missing download.

    Args:
        data: The run's DataModule.
    """
    if not isinstance(data, ExperimentData):
        data.prepare_data()
        data.setup("fit")
        batch = next(iter(data.train_dataloader()))
        return data.on_after_batch_transfer(data.on_before_batch_transfer(batch, 0), 0)
    if data.public is not None and data.dataset is None:
        folder = data.cache_folder()
        data.generated = folder is None or not folder.is_dir()
    return data.widest(next(data.batches("train")))
