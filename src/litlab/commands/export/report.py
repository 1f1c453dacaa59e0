"""What ``export`` prints at its end."""

from pathlib import Path
from typing import Any

from litlab.commands.export.pages import speed_rows
from litlab.util.text import print_table, terminal


def print_report(manifest: dict[str, Any], folder: Path) -> None:
    """Print parity, metrics, size and speed of an export.

    Args:
        manifest: Its manifest.
        folder: Where it is.
    """
    from rich.table import Table

    console, parity = terminal(), manifest["parity"]["run"]
    if manifest["format"] == "torchscript":
        console.print(
            f"TorchScript ({manifest['how']}): PyTorch keeps it working, but no longer develops it; prefer onnx or pt2."
        )
    equal = "" if parity["equal_classes"] is None else f", {parity['equal_classes']:.2%} equal classes"
    console.print(
        f"Compared with the run on {parity['samples']:,} samples: largest difference {parity['difference']:.2g}, mean "
        f"{parity['mean_difference']:.2g}{equal}."
    )
    if manifest["metrics"]["run"]:
        table = Table("test metric", "run", "exported")
        for name, value in manifest["metrics"]["run"].items():
            table.add_row(name, f"{value:.4f}", f"{manifest['metrics']['exported'].get(name, float('nan')):.4f}")
        print_table(table, console)
    table = Table(f"ms on {manifest['threads']} threads: median (p95)", "1 sample", "32 samples")
    for row in speed_rows(manifest):
        table.add_row(*row)
    print_table(table, console)
    console.print(f"{manifest['size_bytes'] / 2**20:.2f} MiB, loaded in {manifest['load_seconds']:.2f} s.")
    console.print(f"Exported: {folder}", soft_wrap=True)
