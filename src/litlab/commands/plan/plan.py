"""``fit --plan``: what a run needs of each of many devices, found out on this machine without running it.

One training step is measured on tensors without numbers, and each way to divide it is arithmetic on that.
"""

import re
import shlex
from typing import Any

from lightning.pytorch import LightningDataModule

from litlab.callbacks.batches import describe
from litlab.cli.argv import take_flag
from litlab.cli.sections import SECTIONS, section_callbacks
from litlab.commands.plan.estimate import Devices, Estimate, estimate, layout_of, list_layouts
from litlab.commands.plan.measure import measure
from litlab.data.module import ExperimentData
from litlab.errors import UserError
from litlab.runs.table import show_table
from litlab.util.device import GIB
from litlab.util.team import command as command_line


def plan_command(command: Any) -> None:
    config, settings = command.config, command.config.trainer
    devices = read_devices(config.plan, config.plan_memory)
    data = command.build_data()
    batch = training_batch(data)
    command.fill_from_data(data)

    # Of the callbacks those that change what a step keeps
    layout = layout_of(settings.strategy)
    for name in ("logger", "plugins", "profiler"):  # they may start something
        settings[name] = None
    built = command.build("trainer", *SECTIONS, "channels_last", "threads")
    callbacks = [*section_callbacks(built), *(built.trainer.callbacks or [])]
    callbacks = [callback for callback in callbacks if getattr(callback, "part_of_step", False)]
    is_gpu = settings.accelerator != "cpu"
    precision = "bf16-mixed" if settings.precision == "auto" and is_gpu else settings.precision

    step = measure(lambda: command.build_model(trained=True), callbacks, batch, precision, is_gpu)
    layouts = dict.fromkeys([layout, *list_layouts(devices, step)])
    estimates = [estimate(layout, step, devices, settings.accumulate_grad_batches) for layout in layouts]
    print(f"Plan for {config.plan} devices of {devices.memory / GIB:.3g} GiB. Nothing is run.")
    print(f"model: {config.model.class_path}, {precision}")
    print(f"batch: {describe(batch)} on each device")
    show(estimates, devices, take_flag("--plan_memory", take_flag("--plan", command.typed)[1])[1])


def read_devices(text: str, gib: float) -> Devices:
    """Return the devices of a plan, such as 2x8: nodes x devices of each."""
    sizes = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)
    if sizes is None:
        raise UserError(f"--plan: {text!r} is not valid; give nodes x devices of each, such as 1x8 or 16x8")
    nodes, per_node = map(int, sizes.groups())
    return Devices(nodes, per_node, gib * GIB)


def training_batch(data: LightningDataModule) -> Any:
    data.prepare_data()
    data.setup("fit")
    batch = next(iter(data.train_dataloader()))
    batch = data.on_after_batch_transfer(data.on_before_batch_transfer(batch, 0), 0)
    return data.widest(batch) if isinstance(data, ExperimentData) else batch


def show(estimates: list[Estimate], devices: Devices, words: list[str]) -> None:
    """Print what a config needs, and each other way; if it does not fit, the command line of the first that does."""
    memory = estimates[0].memory
    rows = [(kind, f"{size / GIB:.3g}") for kind, size in [*memory.items(), ("all", memory.total())]]
    show_table(("of", "GiB"), rows, "Peak memory per device")
    usable = 0.9 * devices.memory  # CUDA, NCCL and cuDNN keep some, and pieces get lost
    fitting = [each for each in estimates if each.memory.total() <= usable]
    rows = []
    for each in estimates:
        sizes = (f"{size / GIB:.3g}" for size in (each.memory.total(), each.sent))
        flags = " ".join(each.layout.flags(devices))
        rows.append((each.layout.title, *sizes, "yes" if each in fitting else "no", flags))
    show_table(("strategy", "memory, GiB", "sent, GiB", "fits", "add"), rows, "The config's way, and others")

    if not fitting:
        print("None of these fits: take more devices, a smaller batch or shorter inputs.")
    elif estimates[0] not in fitting:
        sizes = [f"--trainer.devices={devices.per_node}", f"--trainer.num_nodes={devices.nodes}"]
        print(f"The first that fits: {fitting[0].layout.title}")
        print(shlex.join(command_line(*words, *fitting[0].layout.flags(devices), *sizes)))
