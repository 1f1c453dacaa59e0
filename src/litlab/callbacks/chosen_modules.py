"""The modules of a model that patterns of their names choose."""

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from torch import nn

from litlab.errors import UserError
from litlab.util.text import nearest


def matching_modules(model: nn.Module, patterns: Iterable[str], key: str) -> dict[str, nn.Module]:
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


def called_modules(modules: dict[str, nn.Module]) -> dict[str, nn.Module]:
    """Find what to act on so that each module is reached once, where it is called.

    Args:
        modules: Some modules of a model, by name.

    Returns:
        Those that are in no other of them, by name; in place of a ModuleList or ModuleDict, which is never called, the
        modules in it.
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
