"""Tables of a plan."""

import shlex
from collections.abc import Iterable

from rich.markup import escape
from rich.table import Table

from litlab.planning.estimate import USABLE, Estimate
from litlab.planning.layout import Devices
from litlab.util.device import GIB
from litlab.util.team import command
from litlab.util.text import print_table, terminal


def show(ways: list[Estimate], devices: Devices, facts: dict[str, str], words: list[str]) -> None:
    """Print the plan of a config, the other ways, and if it does not fit, the command line of the first that does.

    Args:
        ways: The config's own, then the others.
        devices: The devices.
        facts: Further lines, by their names.
        words: The command line that was planned.
    """
    own = ways[0]
    console = terminal()
    kind = "GPUs" if devices.is_gpu else "processes"
    console.print(f"Plan for {devices.nodes} x {devices.per_node} {kind} of {_size(devices.memory)}. Nothing is run.")
    for name, fact in {**facts, "strategy": own.layout.name(devices)}.items():
        console.print(f"{name}: {fact}", markup=False)

    held = [(kind, _size(size)) for kind, size in own.memory[own.phase].items()]
    sent = [(how, what, _size(size)) for (how, what), size in own.sent.items()]
    _print(f"Peak memory per device, in the {own.phase}", ["of", "bytes"], [*held, ("all", _size(own.total))])
    _print("Sent by each device in a step", ["how", "what", "bytes"], [*sent, ("all", "", _size(own.sent.total()))])
    columns = ["strategy", "batches", "memory", "sent", "fits", "add"]
    _print("Ways to divide it", columns, [_row(way, devices, way is own) for way in ways])
    console.print("batches: how many different batches all devices train on in one step.")
    if devices.is_gpu:
        console.print(f"fits: in {USABLE:.0%} of the memory; the rest is for CUDA, NCCL and fragmentation.")
    if own.fits(devices):
        return

    layout = next((way.layout for way in ways if way.fits(devices)), None)
    if layout is None:
        console.print("None of these fits: take more devices, a smaller batch or shorter inputs.")
        return
    overlays = [f"--config=configs/with/{name}.yaml" for name in layout.overlays(devices)]
    sizes = [f"--trainer.devices={devices.per_node}", f"--trainer.num_nodes={devices.nodes}"]
    console.print(f"The first that fits: {layout.name(devices)}", markup=False)
    line = shlex.join(command(*words, *overlays, *layout.settings(), *sizes))
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _row(way: Estimate, devices: Devices, is_own: bool) -> list[str]:
    name = way.layout.name(devices)
    if way.refused:
        return [name, "-", "-", "-", "no", way.refused]
    batches = 1 if way.layout.kind == "pipeline" else devices.count // way.layout.tensor
    memory = _size(way.total) + (f" + host {_size(way.host)}" if way.host else "")
    overlays = [f"{name}.yaml" for name in way.layout.overlays(devices)]
    add = "(the config)" if is_own else " ".join([*overlays, *way.layout.settings()])
    return [name, str(batches), memory, _size(way.sent.total()), "yes" if way.fits(devices) else "no", add]


def _print(title: str, columns: list[str], rows: Iterable[Iterable[str]]) -> None:
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*map(escape, row))
    print_table(table)


def _size(size: float) -> str:
    """Return bytes in GiB, or in MiB below a tenth of one."""
    return f"{size / GIB:.2f} GiB" if size >= 0.1 * GIB else f"{size / 2**20:.1f} MiB"
