"""What is printed of a plan."""

import shlex

from rich.markup import escape
from rich.table import Table

from litlab.commands.plan.estimate import Devices, Estimate, Layout
from litlab.util.device import GIB
from litlab.util.team import command
from litlab.util.text import print_table


def show(ways: list[Estimate], devices: Devices, words: list[str]) -> None:
    """Print what a config needs, and each other way; if it does not fit, the command line of the first that does.

    Args:
        ways: The config's own, then the others.
        devices: The devices.
        words: The command line that was planned.
    """
    own = ways[0]
    held = [[kind, _size(size)] for kind, size in [*own.memory.items(), ("all", own.memory.total())]]
    _print(f"Peak memory per device, in the {own.phase}", ["of", "bytes"], held)
    rows = [_row(way, devices) for way in ways]
    _print("Ways to divide it", ["strategy", "batches", "memory", "sent", "fits", "add"], rows)
    print(
        "The first is the config's. batches: different ones that all devices train on in a step; sent: by each device"
    )

    fitting = [way.layout for way in ways if way.fits(devices)]
    if not fitting:
        print("None of these fits: take more devices, a smaller batch or shorter inputs.")
    elif not own.fits(devices):
        sizes = [f"--trainer.devices={devices.per_node}", f"--trainer.num_nodes={devices.nodes}"]
        print(f"The first that fits: {_name(fitting[0], devices)}")
        print(shlex.join(command(*words, *fitting[0].flags(devices), *sizes)))


def _row(way: Estimate, devices: Devices) -> list[str]:
    name = _name(way.layout, devices)
    if way.refused:
        return [name, "-", "-", "-", "no", way.refused]
    batches = 1 if way.layout.kind == "pipeline" else devices.count // way.layout.tensor
    memory = _size(way.memory.total()) + (f" + host {_size(way.host)}" if way.host else "")
    fits = "yes" if way.fits(devices) else "no"
    return [name, str(batches), memory, _size(way.sent), fits, " ".join(way.layout.flags(devices))]


def _name(layout: Layout, devices: Devices) -> str:
    name = ", ".join(layout.overlays(devices)) or "one device"
    return name.replace("tensor_parallel", f"tensor parallel {layout.tensor}").replace("_", " ")


def _print(title: str, columns: list[str], rows: list[list[str]]) -> None:
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*map(escape, row))
    print_table(table)


def _size(size: float) -> str:
    """Return bytes in GiB, or in MiB below a tenth of one."""
    return f"{size / GIB:.2f} GiB" if size >= 0.1 * GIB else f"{size / 2**20:.1f} MiB"
