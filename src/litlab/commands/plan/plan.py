"""``fit --plan``: what a run needs of each of many devices, found out on this machine without
running it.

One training step is measured on tensors without numbers, and each way to divide it is arithmetic on
that.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lightning.pytorch import LightningDataModule

from litlab.cli.argv import Flags
from litlab.cli.sections import SECTIONS
from litlab.commands.plan.measure import Step, measure
from litlab.data.module import ExperimentData
from litlab.errors import UserError
from litlab.runs.table import show_table
from litlab.util.device import GIB
from litlab.util.steps import describe_batch
from litlab.util.team import typed

PARAMETERS, GRADIENTS, OPTIMIZER, AVERAGE = (
    "parameters",
    "gradients",
    "optimizer state",
    "buffers, averages",
)
ACTIVATIONS, WEIGHTS, BUCKETS = "activations, temporary", "copies of weights", "DDP's buckets"


@dataclass(frozen=True)
class Devices:
    """Nodes, devices of each, and the bytes of a device."""

    nodes: int
    per_node: int
    memory: float

    @property
    def count(self) -> int:
        return self.nodes * self.per_node


@dataclass(frozen=True)
class Layout:
    """One way: devices share the batches alone (ddp), or all of the training's state (fsdp2)."""

    kind: str = "ddp"
    tensor: int = 1  # devices that share each layer, with fsdp2

    @property
    def title(self) -> str:
        return self.kind if self.tensor == 1 else f"{self.kind}, tensor parallel {self.tensor}"

    def flags(self, devices: Devices) -> list[str]:
        if devices.count == 1:
            return []
        if self.kind == "ddp":
            return ["--trainer.strategy=ddp"]
        sizes = (
            [f"--trainer.strategy.tensor_parallel_size={self.tensor}"] if self.tensor > 1 else []
        )
        return [f"--config=configs/with/{self.kind}.yaml", *sizes]


def layout_of(strategy: Any) -> Layout:
    """Return the way of a config by its ``trainer.strategy``, a name or a class path with its
    arguments.
    """
    name, settings = strategy, {}
    if not isinstance(strategy, str):
        name, settings = strategy["class_path"].rpartition(".")[2], strategy.get("init_args") or {}
    kinds = {"auto": "ddp", "ddp": "ddp", "fsdp": "fsdp2", "sharded": "fsdp2"}
    for start, kind in kinds.items():
        if name.lower().startswith(start):
            return Layout(kind, settings.get("tensor_parallel_size", 1))
    raise UserError(f"trainer.strategy: --plan does not know {name}; it knows ddp, fsdp and fsdp2")


def list_layouts(devices: Devices, step: Step) -> Iterator[Layout]:
    """Yield the ways that a network and the devices allow, the simplest first."""
    yield Layout()
    if devices.count > 1:
        sizes = [size for size in (2, 4, 8) if step.rows and devices.per_node % size == 0]
        yield from (Layout("fsdp2", tensor) for tensor in (1, *sizes))


@dataclass
class Estimate:
    """Memory and traffic of one device in a step, in bytes."""

    layout: Layout  # of what
    # By kind, in the forward and backward pass or in the optimizer's step, whichever needs more
    memory: Counter[str]
    sent: float  # to other devices


def estimate(layout: Layout, step: Step, devices: Devices, batches: int = 1) -> Estimate:
    """Return what a layout needs, with so many batches to a step."""
    shards = devices.count // layout.tensor if layout.kind == "fsdp2" else 1
    memory = _divide(step, layout.tensor, shards)
    gradients = memory[GRADIENTS] * shards

    # Traffic
    sent = 0.0
    if layout.kind == "ddp" and devices.count > 1:
        memory[BUCKETS] = gradients
        sent = _ring(gradients, devices.count)
    if layout.tensor > 1:
        output = step.between // 2 if step.casts else step.between
        sent = _ring(2 * step.rows * output, layout.tensor) * batches
    if shards > 1:
        # Weights are gathered block by block, the next one early; those outside of the blocks for
        # the whole pass.
        sizes = _list_sizes(step, layout.tensor)
        outside, *inside = (size // 2 if step.casts else size for size in sizes)
        memory[WEIGHTS] = outside + sum(sorted(inside)[-2:])
        # All-gather twice, reduce-scatter once: each is half of what a sum sends.
        sent += _ring(outside + 2 * sum(inside) + gradients, shards) / 2 * batches

    # The optimizer's step, or both passes
    update = Counter(memory)
    update[ACTIVATIONS], update[WEIGHTS] = (
        int(step.update * memory[PARAMETERS] / sum(step.parameters)),
        0,
    )
    if batches == 1:
        memory[GRADIENTS] = 0  # they come when activations go
    return Estimate(layout, max(memory, update, key=Counter.total), sent)


def _divide(step: Step, tensor: int, shards: int) -> Counter[str]:
    """Return bytes by kind, in the forward and backward pass, of one of the devices."""
    parameters = sum(_list_sizes(step, tensor))
    share = parameters / shards / sum(step.parameters)
    # What a layer gets is whole, before and after a norm; what is between two layers is divided.
    divided = max(0, sum(step.stored.values()) - 2 * step.rows * step.between)
    activations = step.passes - step.casts - divided * (tensor - 1) // tensor
    return Counter({
        PARAMETERS: parameters // shards, GRADIENTS: int(step.gradients * share),
        OPTIMIZER: int(step.states * share), AVERAGE: int(step.average * share),
        WEIGHTS: int(step.casts * share), ACTIVATIONS: activations,
    })  # fmt: skip


def _list_sizes(step: Step, tensor: int) -> list[int]:
    """Return the bytes of the parameters outside of the blocks, and of each block, on a device."""
    return [
        size - divided * (tensor - 1) // tensor
        for size, divided in zip(step.parameters, step.divided, strict=True)
    ]


def _ring(size: float, ranks: int) -> float:
    return 2 * size * (ranks - 1) / ranks


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
    built = command.build("trainer", *SECTIONS, "channels_last")
    callbacks = [*(built[name] for name in SECTIONS), *(built.trainer.callbacks or [])]
    callbacks = [callback for callback in callbacks if getattr(callback, "part_of_step", False)]
    is_gpu = settings.accelerator != "cpu"
    precision = "bf16-mixed" if settings.precision == "auto" and is_gpu else settings.precision

    step = measure(
        lambda: command.build_model(load_pretrained=False), callbacks, batch, precision, is_gpu
    )
    layouts = dict.fromkeys([layout, *list_layouts(devices, step)])
    estimates = [
        estimate(layout, step, devices, settings.accumulate_grad_batches) for layout in layouts
    ]
    print(f"Plan for {config.plan} devices of {devices.memory / GIB:.3g} GiB. Nothing is run.")
    print(f"model: {config.model.class_path}, {precision}")
    print(f"batch: {describe_batch(batch)} on each device")
    show(estimates, devices, Flags(command.line.pinned).drop("--plan", "--plan_memory"))


def read_devices(text: str, gib: float) -> Devices:
    """Return the devices of a plan, such as 2x8: nodes x devices of each."""
    sizes = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)
    if sizes is None:
        raise UserError(
            f"--plan: {text!r} is not valid; give nodes x devices per node, such as 1x8 or 16x8"
        )
    nodes, per_node = map(int, sizes.groups())
    return Devices(nodes, per_node, gib * GIB)


def training_batch(data: LightningDataModule) -> Any:
    data.prepare_data()
    data.setup("fit")
    batch = next(iter(data.train_dataloader()))
    batch = data.on_after_batch_transfer(data.on_before_batch_transfer(batch, 0), 0)
    return data.widest(batch) if isinstance(data, ExperimentData) else batch


def show(estimates: list[Estimate], devices: Devices, words: list[str]) -> None:
    """Print what a config needs, and each other way; if it does not fit, the command line of the
    first that does.
    """
    memory = estimates[0].memory
    rows = [
        (kind, f"{size / GIB:.3g}") for kind, size in [*memory.items(), ("all", memory.total())]
    ]
    show_table(("of", "GiB"), rows, "Peak memory per device")
    usable = 0.9 * devices.memory  # CUDA, NCCL and cuDNN keep some, and pieces get lost
    fitting = [estimate for estimate in estimates if estimate.memory.total() <= usable]
    rows = []
    for estimate in estimates:
        sizes = (f"{size / GIB:.3g}" for size in (estimate.memory.total(), estimate.sent))
        flags = " ".join(estimate.layout.flags(devices))
        rows.append((estimate.layout.title, *sizes, "yes" if estimate in fitting else "no", flags))
    show_table(
        ("strategy", "memory, GiB", "sent, GiB", "fits", "add"),
        rows,
        "The config's way, and others",
    )

    if not fitting:
        print("None of these fits: take more devices, a smaller batch or shorter inputs.")
    elif estimates[0] not in fitting:
        sizes = [f"--trainer.devices={devices.per_node}", f"--trainer.num_nodes={devices.nodes}"]
        print(f"The first that fits: {fitting[0].layout.title}")
        print(typed(*words, *fitting[0].layout.flags(devices), *sizes))
