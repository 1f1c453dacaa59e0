"""Which settings a bench tries, and how they are typed after ``--compare``."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import yaml

from litlab.errors import UserError
from litlab.util.text import nearest

# By short name: the setting of fit. Any other setting is named in full.
SETTINGS = {
    "precision": "trainer.precision",
    "compile": "compile.mode",
    "channels_last": "channels_last",
    "activation_checkpointing": "activation_checkpointing",
    "fused": "model.optimizer.fused",
    "threads": "threads",
    "batch_size": "data.batch_size",
    "num_workers": "data.num_workers",
}
LEARNS = ("precision", "batch_size")  # change what is learned, not only how fast
WITH_VALUE = {
    "eager": "compile=null",
    "compile": "compile=default",
    "channels_last": "channels_last=true",
    "fused": "fused=true",
    "activation_checkpointing": "activation_checkpointing={}",
    "bf16": "precision=bf16-mixed",
    "fp16": "precision=16-mixed",
    "fp32": "precision=32-true",
}
BASELINE = "baseline"  # the experiment as its config has it


class Change(NamedTuple):
    """A setting with a value, or an overlay.

    Args:
        name: Short or full name of the setting, or the path of an overlay.
        value: The value as YAML; empty for an overlay.
    """

    name: str
    value: str = ""

    def __str__(self) -> str:
        text = f"{self.name}={self.value}" if self.value else self.name
        return next((word for word, meaning in WITH_VALUE.items() if meaning == text), text)

    @property
    def key(self) -> str:
        """The setting's full name."""
        return SETTINGS.get(self.name, self.name)

    @property
    def flag(self) -> str:
        """What is added to the command line of ``fit``."""
        return f"--{self.key}={self.value}" if self.value else f"--config={self.name}"


Side = tuple[Change, ...]  # changes that are tried together; () is the baseline


def title(side: Side) -> str:
    """Return the name of a side, as it is typed."""
    return "+".join(map(str, side)) or BASELINE


def read_sides(text: str) -> list[Side]:
    """Read ``--compare``: sides separated by commas, each of changes joined by ``+``.

    Raises:
        UserError: If there is one side only, or a name that is not known.
    """
    sides = []
    for words in text.split(","):
        parts = [word.strip() for word in words.split("+")]
        sides.append(tuple(_read_change(part) for part in parts if part != BASELINE))
    sides = list(dict.fromkeys(sides))
    if len(sides) < 2:
        raise UserError(f"--compare: {text} is one side; name two or more, such as {BASELINE},{text}")
    return sides


def _read_change(text: str) -> Change:
    name, _, value = WITH_VALUE.get(text, text).partition("=")
    if not value and not name.endswith((".yaml", ".yml")):
        known = (BASELINE, *WITH_VALUE)
        hint = nearest(name, known, f"; choose from {', '.join(known)}, or write SETTING=VALUE or FILE.yaml")
        raise UserError(f"--compare: {name} has no value{hint}")
    return Change(name, value)


def read_allowed(text: str) -> list[str]:
    """Read ``--allow``: settings that change what is learned, separated by commas.

    Raises:
        UserError: If one is not such a setting.
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in LEARNS:
            raise UserError(f"--allow: {name} is not {' or '.join(LEARNS)}{nearest(name, LEARNS, '; leave it out')}")
    return names


@dataclass(frozen=True)
class Facts:
    """What the first trial has found of the experiment and the machine.

    Args:
        experiment: Name of the experiment.
        device: Type of the device: ``cpu``, ``cuda`` or ``mps``.
        bfloat16: Whether it has units for bfloat16.
        cores: Cores of the machine.
        convolutions: Whether the model has two-dimensional convolutions.
        current: The experiment's own value of each setting that it has, by short name.
        run_samples: Training samples of the whole run, those of all epochs; inf if it has no end.
        hardware: As the provenance of a run has it.
    """

    experiment: str
    device: str
    bfloat16: bool
    cores: int
    convolutions: bool
    current: dict[str, Any]
    run_samples: float
    hardware: dict[str, Any]

    @property
    def heading(self) -> str:
        """What is measured, where."""
        name = self.hardware["device_name"] or f"{self.hardware['cpu']}, {self.cores} cores"
        return f"{self.experiment}: one process on {self.device}, {name}"


def list_candidates(facts: Facts, allowed: list[str]) -> list[Change]:
    """Return the changes to try, the most promising first, without those that are in place or can't pay.

    Args:
        facts: What is known.
        allowed: Settings to try although they change what is learned.
    """
    order = _on_cpu(facts) if facts.device == "cpu" else _on_accelerator(facts)
    candidates = []
    for name, value in dict.fromkeys((*order, *_batch_sizes(facts))):
        is_open = name in facts.current and (name not in LEARNS or name in allowed)
        if is_open and facts.current[name] != value:
            candidates.append(Change(name, yaml.safe_dump(value).partition("\n")[0]))
    return candidates


def _on_cpu(facts: Facts) -> Iterator[tuple[str, Any]]:
    if facts.bfloat16:  # without units for it, it is many times slower
        yield "precision", "bf16-mixed"
    for number in (facts.cores, facts.cores // 2, 1):
        yield "threads", max(1, number)
    yield "fused", True
    if facts.convolutions:
        yield "channels_last", True
    yield "compile", "default"
    if facts.cores > 1:
        yield "num_workers", 1


def _on_accelerator(facts: Facts) -> Iterator[tuple[str, Any]]:
    yield "precision", "bf16-mixed" if facts.bfloat16 else "16-mixed"
    yield "compile", "default"
    if facts.convolutions:
        yield "channels_last", True
    yield "fused", True
    for number in (2, 4):
        if number < facts.cores:
            yield "num_workers", number
    if facts.device == "cuda":
        yield "compile", "reduce-overhead"
        yield "compile", "max-autotune"


def _batch_sizes(facts: Facts) -> Iterator[tuple[str, Any]]:
    size = facts.current.get("batch_size")
    if size:
        yield "batch_size", 2 * size
        yield "batch_size", max(1, size // 2)
