"""Which modules and parameters of a model a setting chooses, and which are its blocks.

A pattern is a shell pattern of a dotted name, such as ``network.layer*``: ``*`` stands for
anything, dots included, and a name that is chosen stands for everything in that module, too.
"""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from litlab.errors import UserError
from litlab.util.text import nearest


def select_modules(
    model: nn.Module, patterns: str | Iterable[str], key: str
) -> dict[str, nn.Module]:
    """Find the modules to act on where they are called, each once.

    Args:
        model: What they are in; it isn't one of them.
        patterns: One or several.
        key: The setting that holds the patterns, for messages.

    Returns:
        The modules by name, in the order of the model. Of modules within each other the outer one
        counts; a ModuleList or ModuleDict, which is never called, stands for the modules in it.

    Raises:
        UserError: If a pattern chooses nothing.
    """
    modules = {name: module for name, module in model.named_modules() if name}
    return find_called(_select(model, modules, patterns, f"{key}: %r matches no module"))


def select_parameters(
    model: nn.Module, patterns: str | Iterable[str], key: str
) -> dict[str, nn.Parameter]:
    """Find parameters by their names, or those of modules that they are in, as `select_modules`
    does.
    """
    # Lightning's FSDPStrategy puts a prefix into the names of what it wraps.
    parameters = {
        name.replace("_fsdp_wrapped_module.", ""): p for name, p in model.named_parameters()
    }
    return _select(model, parameters, patterns, f"{key}: %r matches no parameter")


def find_networks(module: nn.Module) -> dict[str, nn.Module]:
    """Return the children of a LightningModule that have parameters, by name: each is called as a
    whole.

    A ModuleList or ModuleDict can't be called: it stands for the modules in it. Lists of parameters
    are not networks.
    """
    paths: dict[nn.Module, str] = {}
    for path, network in find_called(dict(module.named_children())).items():
        if [*network.parameters()] and not isinstance(network, nn.ParameterList | nn.ParameterDict):
            paths.setdefault(network, path)
    return {path: network for network, path in paths.items()}


def find_blocks(network: nn.Module) -> dict[str, nn.Module]:
    """Find the blocks of a network: what is sharded, recomputed or compiled as one.

    Returns:
        What the ``blocks`` of the network's own `ParallelPlan` choose, by name and in order; of a
        network without a plan, the modules with parameters that are directly in a ModuleList or
        Sequential.

    Raises:
        UserError: If a pattern of the plan chooses nothing.
    """
    plan = getattr(network, "parallel_plan", None)
    if plan is not None:
        return select_modules(
            network, plan.blocks, f"parallel_plan.blocks of {type(network).__name__}"
        )

    children = {
        f"{name}.{child}".lstrip("."): part
        for name, module in network.named_modules()
        if isinstance(module, nn.ModuleList | nn.Sequential)
        for child, part in module.named_children()
    }
    return {
        name: block for name, block in find_called(children).items() if list(block.parameters())
    }


def find_called(modules: dict[str, nn.Module]) -> dict[str, nn.Module]:
    """Return the modules that are called: of modules within each other the outer one, and of lists
    what is in them.
    """
    called = {}
    for name, module in modules.items():
        if any(name.startswith(f"{other}.") for other in modules):
            continue
        if (
            isinstance(module, nn.ModuleList | nn.ModuleDict)
            and type(module).forward is nn.Module.forward
        ):
            called |= find_called(
                {f"{name}.{child}": part for child, part in module.named_children()}
            )
        else:
            called[name] = module
    return called


def _select(
    model: nn.Module, parts: Mapping[str, Any], patterns: str | Iterable[str], refusal: str
) -> dict[str, Any]:
    chosen = set()
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        names = {
            name
            for name in parts
            if fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")
        }
        if not names:
            children = ", ".join(name for name, _ in model.named_children())
            names = {*parts, *(name for name, _ in model.named_modules())}
            hint = nearest(pattern, names, f"; its parts are {children}")
            raise UserError(f"{refusal % pattern} of {type(model).__name__}{hint}")
        chosen |= names
    return {name: part for name, part in parts.items() if name in chosen}
