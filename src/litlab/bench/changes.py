"""What may be changed in an experiment to make it faster, and the order in which it is tried."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from litlab.errors import UserError
from litlab.util.text import nearest


@dataclass(frozen=True)
class Setting:
    """A setting of the command line.

    Args:
        flag: Its flag, without dashes.
        learns: Whether it changes what is learned, not only how fast.
    """

    flag: str
    learns: bool = False


SETTINGS = {
    "precision": Setting("trainer.precision", learns=True),
    "compile": Setting("compile.mode"),
    "channels_last": Setting("channels_last"),
    "activation_checkpointing": Setting("activation_checkpointing"),
    "fused": Setting("model.optimizer.fused"),
    "threads": Setting("threads"),
    "batch_size": Setting("data.batch_size", learns=True),
    "num_workers": Setting("data.num_workers"),
    "prefetch_factor": Setting("data.prefetch_factor"),
    "pin_memory": Setting("data.pin_memory"),
}
LEARNS = tuple(name for name, setting in SETTINGS.items() if setting.learns)
SHORT = {  # names that say the value, too
    "eager": "compile=null",
    "compile": "compile=default",
    "channels_last": "channels_last=true",
    "fused": "fused=true",
    "activation_checkpointing": "activation_checkpointing={}",
    "bf16": "precision=bf16-mixed",
    "fp16": "precision=16-mixed",
    "fp32": "precision=32-true",
}
AS_IS = "baseline"  # the experiment as its config has it


@dataclass(frozen=True)
class Change:
    """A setting with a value, or an overlay.

    Args:
        name: A key of `SETTINGS`, or the path of an overlay.
        value: The value as YAML; empty for an overlay.
    """

    name: str
    value: str = ""

    def __str__(self) -> str:
        """Return how it is typed after ``--compare``."""
        text = f"{self.name}={self.value}" if self.value else self.name
        return next((short for short, long in SHORT.items() if long == text), text)

    @property
    def flag(self) -> str:
        """What is added to the command line of ``fit``."""
        return f"--{SETTINGS[self.name].flag}={self.value}" if self.value else f"--config={self.name}"

    @property
    def learns(self) -> bool:
        """Whether it may change what is learned; nothing is known of an overlay."""
        return self.name in LEARNS

    @property
    def setting(self) -> tuple[str, Any]:
        """Key and value in an overlay."""
        return SETTINGS[self.name].flag, yaml.safe_load(self.value)


Changes = tuple[Change, ...]


def title(changes: Changes) -> str:
    """Return the name of some changes together."""
    return "+".join(map(str, changes)) or AS_IS


def read_side(text: str) -> Changes:
    """Read a side of ``--compare``: ``compile``, ``threads=1``, an overlay's path, or several joined by ``+``.

    Raises:
        UserError: If there is no such setting.
    """
    return tuple(_read_change(part.strip()) for part in text.split("+") if part.strip() != AS_IS)


def _read_change(text: str) -> Change:
    name, _, value = SHORT.get(text, text).partition("=")
    if name.endswith((".yaml", ".yml")):
        return Change(name)
    if name not in SETTINGS:
        known = (AS_IS, *dict.fromkeys((*SHORT, *SETTINGS)))
        hint = nearest(name, known, f"; choose from {', '.join(known)}, or name an overlay (FILE.yaml)")
        raise UserError(f"--compare: there is no setting '{name}'{hint}")
    if not value:
        raise UserError(f"--compare: {name} has no value; write {name}=VALUE")
    try:
        yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise UserError(f"--compare: {name}={value} is not valid; write it as in YAML") from error
    return Change(name, value)


def read_allowed(text: str) -> set[str]:
    """Read ``--allow``: settings that change what is learned, separated by commas.

    Raises:
        UserError: If one is not such a setting.
    """
    allowed = {name.strip() for name in text.split(",") if name.strip()}
    for name in sorted(allowed - set(LEARNS)):
        if name in SETTINGS:
            raise UserError(f"--allow: {name} does not change what is learned; leave it out, it is always allowed")
        hint = nearest(name, LEARNS, f"; choose from {', '.join(LEARNS)}")
        raise UserError(f"--allow: there is no setting '{name}'{hint}")
    return allowed


@dataclass(frozen=True)
class Machine:
    """What the order of the changes depends on, as a trial of the experiment as it is has found it.

    Args:
        device: Type of the device: ``cpu``, ``cuda`` or ``mps``.
        bfloat16: Whether it has units for bfloat16.
        cores: Cores that the process may use.
        convolutions: Whether the model has two-dimensional convolutions.
        current: Name of a setting -> its value in the experiment, as YAML.
    """

    device: str
    bfloat16: bool
    cores: int
    convolutions: bool
    current: dict[str, str]


def candidates(machine: Machine) -> list[Change]:
    """Return the changes to try on a machine, the most promising first, without those that are in place already."""
    order = _on_cpu(machine) if machine.device == "cpu" else _on_accelerator(machine)
    found = [Change(name, value) for name, value in order]
    return [change for change in dict.fromkeys(found) if machine.current.get(change.name) != change.value]


def hopeless(machine: Machine, change: Change) -> str:
    """Return why a change is not worth its time on a machine; empty if it is."""
    if change.name == "precision" and change.value == "bf16-mixed" and not machine.bfloat16:
        return f"this {machine.device.upper()} has no units for bfloat16: it would be many times slower"
    if change.name == "channels_last" and not machine.convolutions:
        return "the model has no two-dimensional convolution"
    if change.name == "fused" and "fused" not in machine.current:
        return "the optimizer has no fused form"
    return ""


def _on_accelerator(machine: Machine) -> Iterator[tuple[str, str]]:
    yield "precision", "bf16-mixed"
    if not machine.bfloat16:
        yield "precision", "16-mixed"
    yield "compile", "default"
    yield "channels_last", "true"
    yield "fused", "true"
    yield from _loader(machine)
    if machine.device == "cuda":
        yield "compile", "reduce-overhead"
        yield "pin_memory", "false"
    yield from _batches(machine)
    yield "activation_checkpointing", "{}"
    if machine.device == "cuda":
        yield "compile", "max-autotune"


def _on_cpu(machine: Machine) -> Iterator[tuple[str, str]]:
    yield "precision", "bf16-mixed"
    threads = int(machine.current["threads"])
    for number in (machine.cores, max(1, threads // 2), 1):
        yield "threads", str(number)
    yield "fused", "true"
    yield "channels_last", "true"
    yield "compile", "default"
    yield from _batches(machine)
    yield from _loader(machine)
    yield "activation_checkpointing", "{}"


def _loader(machine: Machine) -> Iterator[tuple[str, str]]:
    for number in (2, 4) if machine.cores > 2 else (1,):
        if number < machine.cores:
            yield "num_workers", str(number)


def _batches(machine: Machine) -> Iterator[tuple[str, str]]:
    size = machine.current.get("batch_size", "null")
    if size.isdecimal():
        yield "batch_size", str(2 * int(size))
        yield "batch_size", str(max(1, int(size) // 2))
