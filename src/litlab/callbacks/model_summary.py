"""The parts of a model with their parameters, before it is trained."""

from typing import Any

from lightning.pytorch.callbacks import ModelSummary as LightningModelSummary
from lightning.pytorch.utilities.model_summary.model_summary import get_formatted_model_size, get_human_readable_count

from litlab.util.text import print_table


class ModelSummary(LightningModelSummary):
    """Print the model's parts with their types and numbers of parameters.

    Like Lightning's ``RichModelSummary``, but FLOPs are shown only where they were counted, which takes a model with an
    ``example_input_array``: Lightning shows 0 otherwise. Numbers stay whole on a narrow terminal.

    Args:
        max_depth: How deep to go into modules of modules; -1 for all, 0 for no summary.
    """

    def __init__(self, max_depth: int = 1) -> None:
        super().__init__(max_depth=max_depth)

    @staticmethod
    def summarize(
        summary_data: list[tuple[str, list[str]]],
        total_parameters: int,
        trainable_parameters: int,
        model_size: float,
        total_training_modes: dict[str, int],
        total_flops: int,
        **_: Any,
    ) -> None:
        """Print the table (names and cells of its columns are given) and the totals; called on rank zero."""
        from rich import get_console
        from rich.table import Table
        from rich.text import Text

        columns = {name: cells for name, cells in summary_data if name.strip() and (name != "FLOPs" or total_flops)}
        table = Table()
        for name in columns:
            table.add_column(name, justify="right" if name in ("Params", "Params per Device", "FLOPs") else "left")
        for cells in zip(*columns.values(), strict=True):
            table.add_row(*map(Text, cells))
        totals = [
            f"{get_human_readable_count(total_parameters).strip()} parameters",
            f"{get_human_readable_count(trainable_parameters).strip()} of them trained",
            get_formatted_model_size(model_size).strip() + " MB",
        ]
        if total_flops:
            totals.append(f"{get_human_readable_count(total_flops).strip()} FLOPs for the example input")
        if in_eval_mode := total_training_modes["eval"]:
            totals.append(f"{in_eval_mode} modules in eval mode")
        print_table(table, get_console())
        get_console().print(", ".join(totals), highlight=False)
