"""Ways to divide a training among devices."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from litlab.errors import UserError

WITH = "configs/with"
SIZES = re.compile(r"([1-9]\d*)x([1-9]\d*)")


@dataclass(frozen=True)
class Devices:
    """How many there are, of how many bytes each."""

    nodes: int
    per_node: int
    memory: int
    gpus: bool  # or processes on a CPU

    @property
    def count(self) -> int:
        """All of them."""
        return self.nodes * self.per_node


def parse(text: str) -> tuple[int, int]:
    """Return the nodes and the devices of each that ``--plan`` names.

    Raises:
        UserError: If it is not of the form 2x8.
    """
    found = SIZES.fullmatch(text.strip().lower())
    if found is None:
        raise UserError(f"--plan: {text!r} is not valid; give nodes x devices of each, such as 1x8 or 16x8")
    return int(found[1]), int(found[2])


@dataclass(frozen=True)
class Layout:
    """One way.

    Args:
        kind: What devices share: ddp, the batches alone; sharded, weights as well (FSDP2); pipeline, the blocks.
        tensor: Devices that share each layer.
        reshard: Whether FSDP2 frees weights between forward and backward pass.
        checkpointing: Whether activations within blocks are computed again.
        offload: Whether weights, gradients and optimizer state are in host memory.
        microbatches: Parts of a batch that a pipeline has under way at once.
    """

    kind: Literal["ddp", "sharded", "pipeline"]
    tensor: int = 1
    reshard: bool = True
    checkpointing: bool = False
    offload: bool = False
    microbatches: int = 4

    def name(self, devices: Devices) -> str:
        """Return it in words."""
        if self.kind == "sharded":
            fsdp = ["fsdp2"] if devices.count > self.tensor or self.tensor == 1 else []
            words = [*fsdp, *([f"tensor parallel {self.tensor}"] if self.tensor > 1 else [])]
            words += ["offload"] * self.offload + ["weights kept"] * (not self.reshard)
        else:
            words = ["one device" if devices.count == 1 else f"{self.kind}"]
        return " + ".join([*words, *["activation checkpointing"] * self.checkpointing])

    def batches(self, devices: Devices) -> int:
        """Return how many batches the devices train on at once."""
        return 1 if self.kind == "pipeline" else devices.count // self.tensor

    def overlays(self, devices: Devices) -> list[str]:
        """Return the names of the overlays in `WITH` that make one of `others`, apart from `settings`."""
        names = []
        if self.tensor > 1:
            names.append("fsdp2_tensor_parallel" if devices.count > self.tensor else "tensor_parallel")
        elif self.kind == "sharded":
            names.append("offload" if self.offload else "fsdp2")
        elif devices.count > 1:
            names.append(self.kind)
        return [*names, *["activation_checkpointing"] * self.checkpointing]

    def settings(self) -> list[str]:
        """Return the flags beside the overlays, but those of devices and nodes."""
        return ["--trainer.strategy.tensor_parallel_size", str(self.tensor)] if self.tensor > 2 else []  # they say 2


def of_strategy(strategy: Any, devices: Devices) -> Layout:
    """Return the way of a config's strategy.

    Args:
        strategy: ``trainer.strategy`` of the config: a name, or a class path with its arguments.
        devices: The devices.

    Raises:
        UserError: If a plan does not know the strategy, or it does not fit the devices.
    """
    given = {} if isinstance(strategy, str) else dict(strategy.get("init_args") or {})
    name = strategy if isinstance(strategy, str) else strategy["class_path"].rpartition(".")[2]
    plain = name.lower().removesuffix("strategy")
    if plain in ("auto", "singledevice") or plain.startswith("ddp"):
        return Layout("ddp")
    if plain == "pipeline":
        return Layout("pipeline", microbatches=given.get("microbatches", 4))
    if plain in ("fsdp", "fsdp_cpu_offload", "fsdp2", "sharded"):
        offload = bool(given.get("cpu_offload")) or plain.endswith("offload")
        tensor, reshard = given.get("tensor_parallel_size", 1), given.get("reshard_after_forward", True)
        layout = Layout("sharded", tensor, reshard, offload=offload)
        if layout.tensor < 1 or devices.count % layout.tensor:
            raise UserError(
                f"trainer.strategy: tensor_parallel_size is {layout.tensor}, which does not divide {devices.count} "
                "devices; change it, or --plan"
            )
        return layout
    raise UserError(f"trainer.strategy: --plan does not know {name}; it knows ddp, fsdp, fsdp2 and pipeline")


def others(own: Layout, devices: Devices, divisible: bool) -> Iterator[Layout]:
    """Yield the ways to compare one with, the simplest first.

    Args:
        own: The config's own.
        devices: The devices.
        divisible: Whether the network says which of its layers can be divided.
    """
    plain = [Layout("ddp")]
    if devices.count > 1:
        plain.append(Layout("sharded"))
        sizes = (2**power for power in range(1, devices.per_node.bit_length()))
        plain += [Layout("sharded", size) for size in sizes if divisible and devices.per_node % size == 0]
        plain += [Layout("pipeline"), Layout("sharded", offload=True)]
    for layout in plain:
        for checkpointing in [False, True] if not own.checkpointing else [True]:
            if (one := replace(layout, checkpointing=checkpointing)) != own:
                yield one
