"""What torch.compile did in a run: how long it took, what came from its cache, what was compiled again and why."""

import logging
import re
from collections import Counter
from pathlib import Path
from typing import Any

import torch._dynamo.utils as dynamo
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn

KEPT = 4096  # records that PyTorch keeps until they are read; its default of 64 is too few for many parts
# Training, validation and test differ in these, and so do the phases of `freeze`: each gets code of its own, once.
EXPECTED = re.compile(r"GLOBAL_STATE changed|grad_mode|requires_grad|dispatch key set|\btraining\b|inference")
SIZES = re.compile(r"size mismatch|stride mismatch|\.size\(|shape|len\(")
NEAR = 2  # compilations left before the limit
LIMIT_HIT = re.compile(r"hit config\.(\w+) \((\d+)\)\s+function: '(.*?)' \((.*?)\)\s+last reason: (.*)")


class Compilations(logging.Handler):
    """Read the records that PyTorch keeps of each compilation; costs nothing while nothing is compiled.

    Called `look` after an epoch, it adds up the new records and says what was compiled again, and why. That PyTorch has
    given up on a function, it says at once, as a handler of PyTorch's log.

    Args:
        dynamic: What ``compile.dynamic`` is, for advice.
    """

    def __init__(self, dynamic: bool | None) -> None:
        super().__init__(logging.WARNING)
        self.seconds = 0.0
        self.recompilations = 0
        self.limited: list[str] = []  # functions that PyTorch has given up on
        self._graphs: Counter[str] = Counter()  # what inductor counted in this run
        self._left_out: Counter[str] = Counter()
        self._dynamic = dynamic
        self._last: Any = None  # record that was read last
        self._counting = False
        self._limit = 0  # PyTorch's own
        self._causes: dict[str, Counter[str]] = {}  # by function
        self._near: dict[str, int] = {}  # how often it was compiled, of functions near the limit
        self._said: set[str] = set()

    def start(self, unlike: int = 1) -> None:
        """Count from here on.

        Args:
            unlike: How many unlike modules share one function: the limit of compilations of a function is as many times
                higher, until `stop`.
        """
        self._counting = True
        self.leave_out()
        self._limit = dynamo.config.recompile_limit
        dynamo.config.recompile_limit = unlike * self._limit
        if dynamo.get_compilation_metrics():
            self._last = dynamo.get_compilation_metrics()[-1]
        dynamo.set_compilation_metrics_limit(KEPT)
        logging.getLogger("torch._dynamo").addHandler(self)

    def leave_out(self) -> None:
        """Leave out of cold and warm what was compiled since the last `look`, such as the trial of the compiler."""
        self._left_out = Counter(dynamo.counters["inductor"]) - self._graphs

    def stop(self) -> None:
        """Read what is left, and stop counting."""
        if not self._counting:
            return
        self.look()
        self._counting = False
        dynamo.config.recompile_limit = self._limit
        logging.getLogger("torch._dynamo").removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Say in plain words that PyTorch's limit is reached, which it logs as a warning."""
        if found := LIMIT_HIT.search(record.getMessage()):
            key, limit, name, where, cause = found.groups()
            where = _function(name, *where.rsplit(":", 1))
            self.limited.append(where)
            cause = _first_cause(cause)
            rank_zero_warn(
                f"compile: LIMIT REACHED. {where} was compiled {limit} times; other inputs run "
                f"uncompiled from now on. Last cause: {cause}. {self._advice(cause)} "
                f"(limit: torch._dynamo.config.{key})"
            )

    def look(self, say: bool = False) -> None:
        """Add up the new records.

        Args:
            say: Whether to say what was compiled again; it is said once for each function, and once more when the limit
                is near.
        """
        if not self._counting:
            return
        self._graphs = Counter(dynamo.counters["inductor"]) - self._left_out
        records = dynamo.get_compilation_metrics()
        known = next((number for number, record in enumerate(records) if record is self._last), -1)
        for record in records[known + 1 :]:
            self._last = record
            self.seconds += (record.duration_us or 0) / 1e6
            cause = _first_cause(record.recompile_reason or "")
            if not record.has_guarded_code or not cause or EXPECTED.search(cause):
                continue
            self.recompilations += 1
            where = _function(record.co_name or "", record.co_filename or "", record.co_firstlineno or 0)
            self._causes.setdefault(where, Counter())[cause] += 1
            if (record.cache_size or 0) + 1 >= dynamo.config.recompile_limit - NEAR:
                self._near[where] = (record.cache_size or 0) + 1
        if say:
            self._say()

    def _say(self) -> None:
        for where, times in self._near.items():
            if f"{where} near" not in self._said and where not in self.limited:
                self._said |= {where, f"{where} near"}
                cause = next(reversed(self._causes[where]))
                rank_zero_warn(
                    f"compile: {where} has been compiled {times} times; after {dynamo.config.recompile_limit} it runs "
                    f"uncompiled. Last cause: {cause}. {self._advice(cause)}"
                )
        new = [where for where in self._causes if where not in self._said]
        if new:
            self._said |= {*new}
            others = f"; {len(new) - 1} more with it" if len(new) > 1 else ""
            rank_zero_info(f"compile: {new[0]} was compiled again{others}. Cause: {next(iter(self._causes[new[0]]))}.")

    def _advice(self, cause: str) -> str:
        if not SIZES.search(cause):
            return "Set compile.graph_breaks: true to see every cause."
        if self._dynamic is False:
            return "Set compile.dynamic: null or true, or keep the sizes of the inputs the same."
        return (
            "Something in it needs fixed sizes, as the gradient of a convolution does: keep the sizes of the inputs "
            "the same, or name the other parts in compile.children."
        )

    def report(self) -> str:
        """Return the seconds, whether the code came from the cache, and the recompilations: ``31.2 s cold``."""
        text = f"{self.seconds:.1f} s"
        cached = self._graphs["fxgraph_cache_hit"]
        compiled = self._graphs["fxgraph_cache_miss"] + self._graphs["fxgraph_cache_bypass"]
        if compiled and cached:
            text += f", {cached} of {cached + compiled} graphs from the cache"
        elif compiled or cached:
            text += " cold" if compiled else " warm"
        if self.recompilations:
            text += f", {self.recompilations} recompilation{'s' if self.recompilations > 1 else ''}"
        if self.limited:
            text += f"; LIMIT REACHED, {', '.join(dict.fromkeys(self.limited))} ran uncompiled"
        return text


def _first_cause(text: str) -> str:
    """Return the guard that failed, without PyTorch's number before it and the line of code behind it."""
    return re.sub(r"^\d+/\d+: ", "", text.strip().split("\n")[0]).split("  #")[0].strip()


def _function(name: str, file: str, line: int | str) -> str:
    """Return where a function is, as seen from the working directory if it is inside."""
    if Path(file).name in ("external_utils.py", "compile_parts.py"):  # what PyTorch's own modules are called through
        return "a module of PyTorch's own"
    return f"{name} ({file.removeprefix(f'{Path.cwd()}/')}:{line})"
