"""The model compared with methods that need little training or none."""

import json
import math
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from lightning.pytorch import Callback, LightningModule, Trainer

from litlab.callbacks.reporting.folders import run_folder
from litlab.callbacks.reporting.loggers import log_table
from litlab.callbacks.reporting.protocols import HasBaselines
from litlab.callbacks.reporting.tables import markdown_table
from litlab.util.metrics import metric_direction
from litlab.util.text import print_table

if TYPE_CHECKING:
    from rich.table import Table

PATIENCE = 2.0  # seconds after which the reader is told what takes so long


class Baselines(Callback):
    """Compare the model's test metrics with those of the data module's baselines.

    After a test, if the data module has ``baselines()``: it is called on the first rank and returns the metrics of each
    baseline on the test split, ``{"seasonal naive": {"test/mse": 0.6, ...}, ...}``. A table on the console has the
    model in its first row and the best value of each column in bold. The loggers get ``baseline/<name>/<metric>`` and
    the table, the run folder ``baselines.json``.

    A test of a part of the split (``trainer.limit_test_batches``, ``trainer.fast_dev_run``) can't be compared and is
    left out.
    """

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Compute on the first rank, print, log and save; the other ranks wait."""
        data = getattr(trainer, "datamodule", None)
        if not isinstance(data, HasBaselines) or trainer.fast_dev_run:  # pyright: ignore[reportAttributeAccessIssue]
            return
        folder = run_folder(trainer)  # on every rank, like the barrier
        if trainer.is_global_zero:
            self._compare(trainer, type(pl_module).__name__, data, folder)
        trainer.strategy.barrier("baselines")

    def _compare(self, trainer: Trainer, name: str, data: HasBaselines, folder: Path | None) -> None:
        from rich import get_console

        limit = trainer.limit_test_batches  # pyright: ignore[reportAttributeAccessIssue]
        if isinstance(limit, int) or limit != 1.0:  # 1.0 is all of them, 1 is one batch
            get_console().print(
                "Baselines: left out, as trainer.limit_test_batches leaves out a part of the test split."
            )
            return
        notice = threading.Timer(PATIENCE, get_console().print, ["Computing the baselines ..."], {"highlight": False})
        notice.start()
        try:
            baselines = data.baselines()
        finally:
            notice.cancel()
            notice.join()  # it may be printing
        metrics = list(dict.fromkeys(metric for values in baselines.values() for metric in values))
        logged = trainer.callback_metrics
        rows = {name: {metric: float(logged[metric]) for metric in metrics if metric in logged}, **baselines}
        get_console().print("Test: the model beside its baselines")
        print_table(comparison(rows), get_console())
        for logger in trainer.loggers:
            for baseline, values in baselines.items():
                scalars = {f"baseline/{baseline}/{_short(metric)}": value for metric, value in values.items()}
                logger.log_metrics(scalars, step=trainer.global_step)
        header = ["model", *map(_short, metrics)]
        cells = [[name, *(values.get(metric, math.nan) for metric in metrics)] for name, values in rows.items()]
        log_table(trainer, "test/baselines", header, cells, markdown_table(header, cells))
        if folder is not None:
            (folder / "baselines.json").write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


def comparison(rows: dict[str, dict[str, float]]) -> "Table":
    """Return a table of metrics, the best value of each column in bold.

    Whether a higher or a lower value is better depends on the words in a metric's name (``test/mae_units`` is an
    ``mae``). No value of an unknown metric is bold.

    Args:
        rows: The metrics of each row, by name; a row may lack some.
    """
    from rich.table import Table
    from rich.text import Text

    metrics = list(dict.fromkeys(metric for values in rows.values() for metric in values))
    best: dict[str, float] = {}
    for metric in metrics:
        values = [values[metric] for values in rows.values() if metric in values and not math.isnan(values[metric])]
        if values and (better := metric_direction(metric)):
            best[metric] = max(values) if better == "max" else min(values)
    table = Table()
    table.add_column()
    for metric in metrics:
        table.add_column(_short(metric), justify="right")
    for name, values in rows.items():
        cells = [Text(name)]  # not a string: brackets in a name are not markup
        for metric in metrics:
            value = values.get(metric)
            style = "bold" if value is not None and value == best.get(metric) else ""
            cells.append(Text("" if value is None else f"{value:#.4g}".rstrip("."), style))
        table.add_row(*cells)
    return table


def _short(metric: str) -> str:
    return metric.removeprefix("test/")
