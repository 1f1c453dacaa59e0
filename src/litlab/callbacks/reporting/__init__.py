"""What callbacks that report on a test are made of: protocols for data and models, samples, figures and tables."""

from typing import TYPE_CHECKING

from litlab.util.lazy import export_lazily

if TYPE_CHECKING:
    from litlab.callbacks.reporting.figures import publish_figure
    from litlab.callbacks.reporting.folders import run_folder
    from litlab.callbacks.reporting.protocols import (
        ClassNames,
        Described,
        HasBaselines,
        HasBatchLoss,
        HasCoverage,
        ImageFacts,
        Labelled,
        MaybeGenerated,
        SeriesFacts,
        TextFacts,
        class_names,
        facts,
    )
    from litlab.callbacks.reporting.samples import from_test_step, gather_rows, spread
    from litlab.callbacks.reporting.tables import markdown_table, publish_table

__all__ = [
    "ClassNames",
    "Described",
    "HasBaselines",
    "HasBatchLoss",
    "HasCoverage",
    "ImageFacts",
    "Labelled",
    "MaybeGenerated",
    "SeriesFacts",
    "TextFacts",
    "class_names",
    "facts",
    "from_test_step",
    "gather_rows",
    "markdown_table",
    "publish_figure",
    "publish_table",
    "run_folder",
    "spread",
]

__getattr__ = export_lazily(__name__)
