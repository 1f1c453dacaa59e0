"""Parameters by patterns of their names."""

from collections import Counter
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from itertools import accumulate, chain, takewhile

from torch import nn

from litlab.errors import UserError
from litlab.util.text import nearest


def named_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return all parameters by their names, without what FSDP adds to them."""
    return {name.replace("_fsdp_wrapped_module.", ""): parameter for name, parameter in module.named_parameters()}


def matches(name: str, patterns: str | Iterable[str]) -> bool:
    """Return whether a name matches one of some patterns, or lies in a module that does.

    Args:
        name: Such as ``network.layer1.0.weight``.
        patterns: One or several. ``*`` stands for anything, dots included; ``network.layer1`` also matches everything
            in that module.
    """
    patterns = [patterns] if isinstance(patterns, str) else patterns
    return any(fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*") for pattern in patterns)


def match_rules(names: Iterable[str], rules: Iterable[str | Sequence[str]], key: str) -> dict[str, int]:
    """Find for each name the first of some rules that matches it.

    Args:
        names: Names of parameters.
        rules: The patterns of each rule.
        key: The setting that holds the rules, for messages.

    Returns:
        Number of the rule, for the names that one matches.

    Raises:
        UserError: If a pattern matches nothing, or nothing that an earlier rule has left.
    """
    found: dict[str, int] = {}
    for number, rule in enumerate(rules):
        for pattern in [rule] if isinstance(rule, str) else rule:
            if not any(matches(name, pattern) for name in names):
                modules = chain.from_iterable(accumulate(name.split("."), "{}.{}".format) for name in names)
                known = nearest(pattern.removesuffix(".*"), modules, f"; there are {summarise(names)}")
                raise UserError(f"{key}[{number}]: '{pattern}' matches no parameter of the model{known}")
        left = [name for name in names if name not in found and matches(name, rule)]
        if not left:
            raise UserError(f"{key}[{number}]: earlier rules match all of {rule}; put it before them, or remove it")
        found |= dict.fromkeys(left, number)
    return found


def summarise(names: Iterable[str]) -> str:
    """Return names in short: how many there are in each part of the network."""
    words = [name.split(".") for name in names]
    shared = len(list(takewhile(lambda level: len(set(level)) == 1, zip(*words, strict=False))))
    counts = Counter(".".join(name[: max(2, shared)]) for name in words)
    return ", ".join(part if count == 1 else f"{part} ({count})" for part, count in counts.items())
