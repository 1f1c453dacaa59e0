"""Which settings a bench tries, and how they are typed after ``--compare``."""

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from litlab.errors import UserError

# By short name: the setting of fit. Any other setting has its own name.
SETTINGS = {
    "precision": "trainer.precision",
    "compile": "compile.mode",
    "fused": "model.optimizer.fused",
    "batch_size": "data.batch_size",
    "num_workers": "data.num_workers",
}
LEARNS = ("precision", "batch_size")  # change what is learned, not only how fast
WITH_VALUE = {
    "eager": "compile=null",
    "compile": "compile=default",
    "channels_last": "channels_last=true",
    "fused": "fused=true",
}
BASELINE = "baseline"  # the experiment as its config has it


class Change(NamedTuple):
    """A setting with a value, or an overlay."""

    name: str  # short or full name of the setting, or the path of an overlay
    value: str = ""  # the value as YAML; empty for an overlay

    def __str__(self) -> str:
        return f"{self.name}={self.value}" if self.value else self.name

    @property
    def key(self) -> str:
        return SETTINGS.get(self.name, self.name)

    @property
    def flag(self) -> str:
        return f"--{self.key}={self.value}" if self.value else f"--config={self.name}"


Side = tuple[Change, ...]  # changes that are tried together; () is the baseline


def title(side: Side) -> str:
    return "+".join(map(str, side)) or BASELINE


def read_sides(text: str) -> list[Side]:
    """Read ``--compare``: sides separated by commas, each of changes joined by ``+``."""
    sides = []
    for words in text.split(","):
        parts = [word.strip() for word in words.split("+")]
        sides.append(tuple(_read_change(word) for word in parts if word != BASELINE))
    return list(dict.fromkeys(sides))


def _read_change(text: str) -> Change:
    name, _, value = WITH_VALUE.get(text, text).partition("=")
    if not value and not name.endswith((".yaml", ".yml")):
        choices = ", ".join([BASELINE, *WITH_VALUE])
        raise UserError(
            f"--compare: {name} has no value; write SETTING=VALUE, FILE.yaml, or one of {choices}"
        )
    return Change(name, value)


@dataclass(frozen=True)
class Facts:
    """What the first trial has found of the experiment and the machine."""

    experiment: str  # name of the experiment
    bfloat16: bool  # whether the device has units for bfloat16
    convolutions: bool  # whether the model has two-dimensional convolutions
    current: dict[str, Any]  # the experiment's own value of each setting that it has, by short name
    # Training samples of the whole run, those of all epochs; inf if it has no end
    run_samples: float
    hardware: dict[str, Any]  # as the provenance of a run has it

    @property
    def heading(self) -> str:
        name = (
            self.hardware["device_name"]
            or f"{self.hardware['cpu']}, {self.hardware['cores']} cores"
        )
        return f"{self.experiment}: one process on {self.hardware['device']}, {name}"


def list_candidates(facts: Facts, allowed: list[str]) -> list[Change]:
    """Return the changes to try, the most promising first, without those that are in place or can't
    pay.

    Of what changes what is learned only the settings in `allowed` are among them.
    """
    cores, size = facts.hardware["cores"], facts.current.get("batch_size") or 0
    kind = facts.hardware["device"]
    is_cpu, is_cuda = kind == "cpu", kind == "cuda"
    order: list[tuple[str, Any, bool]] = [
        # On a CPU without units for bfloat16 it is many times slower.
        ("precision", "bf16-mixed" if facts.bfloat16 else "16-mixed", facts.bfloat16 or not is_cpu),
        ("fused", True, True),
        ("channels_last", True, facts.convolutions),
        ("compile", "default", True),
        ("num_workers", min(1 if is_cpu else 2, cores - 1), True),
        ("num_workers", min(4, cores - 1), not is_cpu),
        ("batch_size", 2 * size, size > 0),
        ("compile", "reduce-overhead", is_cuda),
        ("compile", "max-autotune", is_cuda),
    ]
    candidates = [
        Change(name, json.dumps(value).strip('"'))
        for name, value, can_pay in order
        if can_pay
        and (name not in LEARNS or name in allowed)
        and name in facts.current
        and facts.current[name] != value
    ]
    return list(dict.fromkeys(candidates))
