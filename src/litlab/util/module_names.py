"""Modules by patterns of their names."""

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from torch import nn

from litlab.errors import UserError
from litlab.util.nearest import nearest


def modules_named(model: nn.Module, patterns: Iterable[str], key: str) -> dict[str, nn.Module]:
    """Find the modules that some patterns choose.

    Args:
        model: What they are in; it isn't one of them.
        patterns: Names, dotted from the model; ``*`` stands for anything, dots included.
        key: The setting that holds the patterns, for messages.

    Returns:
        The modules by name, in the order of the model.

    Raises:
        UserError: If nothing has such a name.
    """
    known = {name: module for name, module in model.named_modules() if name}
    chosen: set[str] = set()
    for pattern in patterns:
        fitting = {name for name in known if fnmatchcase(name, pattern)}
        if not fitting:
            what = "no module fits" if "*" in pattern else "there is no module"
            hint = nearest(pattern, known, f"; choose from {', '.join(dict(model.named_children()))}")
            raise UserError(f"{key}: {what} {pattern!r} in model {type(model).__name__}{hint}")
        chosen |= fitting
    return {name: module for name, module in known.items() if name in chosen}


def outermost(modules: dict[str, nn.Module]) -> dict[str, nn.Module]:
    """Leave out modules that are inside another, and take the parts of a ModuleList or ModuleDict, which isn't called.

    Args:
        modules: Some modules of a model, by name.
    """
    roots = {
        name: module for name, module in modules.items() if not any(name.startswith(f"{other}.") for other in modules)
    }
    return dict(part for name, module in roots.items() for part in _called(name, module))


def _called(name: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    if isinstance(module, nn.ModuleList | nn.ModuleDict):
        for child_name, child in module.named_children():
            yield from _called(f"{name}.{child_name}", child)
    else:
        yield name, module
