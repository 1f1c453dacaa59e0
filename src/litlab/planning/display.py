"""Tables of a plan."""

import shlex

from rich.markup import escape
from rich.table import Table

from litlab.planning.estimate import ALL_KINDS, USABLE, Estimate
from litlab.planning.layout import WITH, Devices, Layout
from litlab.util.device import GIB
from litlab.util.team import command
from litlab.util.text import print_table, terminal

MOMENTS = {"forward": "in the forward pass", "backward": "in the backward pass", "update": "in the optimizer's step"}


def show(own: Estimate, others: list[Estimate], devices: Devices, facts: list[tuple[str, str]]) -> None:
    """Print the plan of the config, then the other ways.

    Args:
        own: The config's own.
        others: The others.
        devices: The devices.
        facts: Further lines, name and text.
    """
    console = terminal()
    kind = "GPUs" if devices.gpus else "processes"
    console.print(f"Plan for {devices.nodes} x {devices.per_node} {kind} of {_size(devices.memory)}. Nothing is run.")
    for name, fact in [*facts, ("strategy", own.layout.name(devices))]:
        console.print(f"{name}: {fact}", markup=False)
    for table in (_memory(own), _traffic(own), _others([own, *others], devices)):
        print_table(table, console)
    if devices.count > 1:
        console.print("batches: how many different batches all devices train on in one step.")
    if devices.gpus:
        console.print(f"fits: in {USABLE:.0%} of the memory; the rest is for CUDA, NCCL and fragmentation.")


def show_command(words: list[str], way: Layout | None, devices: Devices, needed: list[str]) -> None:
    """Print the command line that trains in another way.

    Args:
        words: The command line that was planned.
        way: The other way; None where none fits.
        devices: The devices.
        needed: Further flags.
    """
    console = terminal()
    if way is None:
        console.print("None of these fits: take more devices, a smaller batch or shorter inputs.", style="bold")
        return
    overlays = [word for name in way.overlays(devices) for word in ("--config", f"{WITH}/{name}.yaml")]
    sizes = ["--trainer.devices", str(devices.per_node), "--trainer.num_nodes", str(devices.nodes)]
    line = shlex.join(command(*words, *overlays, *way.settings(), *needed, *(sizes if devices.count > 1 else [])))
    console.print(f"The first that fits: {way.name(devices)}", style="bold")
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _memory(own: Estimate) -> Table:
    table = Table(title=f"Peak memory per device, {MOMENTS[own.phase]}", title_justify="left")
    table.add_column("of")
    table.add_column("then", justify="right")
    table.add_column("at most", justify="right")
    for kind in ALL_KINDS:
        if own.highest[kind]:
            table.add_row(kind, _size(own.memory[kind]), _size(own.highest[kind]))
    table.add_row("all", _size(own.total), "", style="bold")
    if own.host:
        table.add_row("memory of the host", "", _size(own.host))
    return table


def _traffic(own: Estimate) -> Table:
    table = Table(title="Sent by each device in a step", title_justify="left")
    for title in ("how", "what", "bytes"):
        table.add_column(title, justify="right" if title == "bytes" else "left")
    for (how, what), size in sorted(own.sent.items(), key=lambda item: -item[1]):
        table.add_row(how, what, _size(size))
    table.add_row("all", "", _size(own.sent.total()), style="bold")
    return table


def _others(estimates: list[Estimate], devices: Devices) -> Table:
    table = Table(title="Ways to divide it", title_justify="left")
    for title in ("strategy", "batches", "memory", "sent", "fits", "add"):
        table.add_column(title, justify="right" if title in ("batches", "memory", "sent") else "left")
    for number, one in enumerate(estimates):
        name, fits = one.layout.name(devices), one.fits(devices)
        if one.refused:
            table.add_row(name, "-", "-", "-", "no", escape(one.refused), style="dim")
            continue
        memory = _size(one.total) + (f" + host {_size(one.host)}" if one.host else "")
        words = [*(f"{name}.yaml" for name in one.layout.overlays(devices)), *one.layout.settings()]
        flags = "(the config)" if number == 0 else " ".join(words)
        style = "bold" if number == 0 else None if fits else "dim"
        batches = str(one.layout.batches(devices))
        table.add_row(name, batches, memory, _size(one.sent.total()), "yes" if fits else "no", flags, style=style)
    return table


def _size(size: int) -> str:
    """Return bytes in GiB, or in MiB below a tenth of one."""
    if not size:
        return "0"
    return f"{size / GIB:.2f} GiB" if size >= 0.1 * GIB else f"{size / 2**20:.1f} MiB"
