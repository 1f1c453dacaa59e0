"""Which modules and parameters of a model a setting chooses, and which are its blocks.

A pattern is a shell pattern of a dotted name, such as ``network.layer*``: ``*`` stands for anything, dots included, and
a name that is chosen stands for everything in that module, too.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from torch import nn

from litlab.errors import UserError
from litlab.util.text import nearest


def matches(name: str, patterns: str | Iterable[str]) -> bool:
    """Return whether one of some patterns chooses a dotted name, or a module that it lies in."""
    patterns = [patterns] if isinstance(patterns, str) else patterns
    return any(fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*") for pattern in patterns)


def select_modules(model: nn.Module, patterns: str | Iterable[str], key: str) -> dict[str, nn.Module]:
    """Find the modules to act on where they are called, each once.

    Args:
        model: What they are in; it isn't one of them.
        patterns: One or several.
        key: The setting that holds the patterns, for messages.

    Returns:
        The modules by name, in the order of the model. Of modules within each other the outer one counts; a ModuleList
        or ModuleDict, which is never called, stands for the modules in it.

    Raises:
        UserError: If a pattern chooses nothing.
    """
    modules = {name: module for name, module in model.named_modules() if name}
    names = _select_names(model, modules, patterns, key, "module")
    return find_called({name: modules[name] for name in names})


def select_parameters(model: nn.Module, patterns: str | Iterable[str], key: str) -> dict[str, nn.Parameter]:
    """Find parameters by their names, or those of modules that they are in.

    Args:
        model: What they are in.
        patterns: One or several.
        key: The setting that holds the patterns, for messages.

    Returns:
        The parameters by name, in the order of the model.

    Raises:
        UserError: If a pattern chooses nothing.
    """
    # Lightning's FSDPStrategy puts a prefix into the names of what it wraps.
    parameters = {name.replace("_fsdp_wrapped_module.", ""): p for name, p in model.named_parameters()}
    names = _select_names(model, parameters, patterns, key, "parameter")
    return {name: parameters[name] for name in names}


def find_blocks(network: nn.Module) -> dict[str, nn.Module]:
    """Find the blocks of a network: what is sharded, recomputed or compiled as one.

    Returns:
        What the ``blocks`` of the network's own `ParallelPlan` choose, by name and in order; of a network without a
        plan, the modules with parameters that are directly in a ModuleList or Sequential.

    Raises:
        UserError: If a pattern of the plan chooses nothing.
    """
    plan = getattr(network, "parallel_plan", None)
    if plan is not None:
        return select_modules(network, plan.blocks, f"parallel_plan.blocks of {type(network).__name__}")

    children = {}
    for name, module in network.named_modules():
        if isinstance(module, nn.ModuleList | nn.Sequential):
            children |= {f"{name}.{child}".lstrip("."): part for child, part in module.named_children()}
    blocks = find_called(children)
    return {name: block for name, block in blocks.items() if any(True for _ in block.parameters())}


def is_callable(module: nn.Module) -> bool:
    """Return whether a module has a forward pass: a plain ModuleList or ModuleDict has none."""
    return not isinstance(module, nn.ModuleList | nn.ModuleDict) or type(module).forward is not nn.Module.forward


def _select_names(
    model: nn.Module, names: Iterable[str], patterns: str | Iterable[str], key: str, kind: str
) -> list[str]:
    patterns = [patterns] if isinstance(patterns, str) else list(patterns)
    for pattern in patterns:
        if not any(matches(name, pattern) for name in names):
            parts = [name for name, _ in model.named_children()]
            known = {*names, *(name for name, _ in model.named_modules())}
            hint = nearest(pattern, known, f"; its parts are {', '.join(parts)}")
            raise UserError(f"{key}: {pattern!r} matches no {kind} of {type(model).__name__}{hint}")
    return [name for name in names if matches(name, patterns)]


def find_called(modules: dict[str, nn.Module]) -> dict[str, nn.Module]:
    """Return the outermost of some modules; a ModuleList or ModuleDict stands for the modules in it."""
    called = {}
    for name, module in modules.items():
        if any(name.startswith(f"{other}.") for other in modules):
            continue
        if is_callable(module):
            called[name] = module
        else:
            called |= find_called({f"{name}.{child}": part for child, part in module.named_children()})
    return called
