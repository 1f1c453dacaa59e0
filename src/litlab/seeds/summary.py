"""The metrics of a group of seeds: a table for people, and ``seeds.json``."""

from litlab.runs.folder import read_json, write_json
from litlab.runs.seed_group import SeedGroup
from litlab.util.spread import cells, spreads
from litlab.util.text import terminal


def write_summary(group: SeedGroup) -> None:
    """Write the metrics of the seeds that are finished into the group's file, and show them as a table.

    Args:
        group: The group; at least one of its seeds was started.
    """
    from rich.table import Table
    from rich.text import Text

    from litlab.util.tables import Fitted

    finished = {seed: run for seed, run in group.runs().items() if run.state().get("status") == "finished"}
    metrics = [read_json(run.metrics) for run in finished.values()]
    found = spreads(metrics)
    content = group.content()
    kept = {name: {**vars(spread), "interval": spread.interval} for name, spread in found.items()}
    write_json(group.file, {**content, "metrics": kept})

    console = terminal()
    console.print(f"\n{group.name}: {len(finished)} of {len(content['seeds'])} seeds", style="bold", markup=False)
    if not found:
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("metric", "mean", "deviation", "95 % interval", "seeds"):
        table.add_column(name, justify="left" if name == "metric" else "right")
    for name, spread in found.items():
        table.add_row(Text(name), *cells(spread))
    console.print(Fitted(table))
    if any(run.get("generated_data") for run in metrics):
        console.print("These are metrics on generated data: they say nothing about the real data.", style="bold red")
    console.print(f"Also in {group.file}", markup=False)
