"""The report of a sweep: pictures and one HTML page."""

import io
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from optuna import Study

from litlab.errors import UserError
from litlab.runs.folder import write_bytes
from litlab.sweep.figures import draw_curves, draw_history, draw_pareto
from litlab.sweep.importance import importances
from litlab.sweep.page import report_page
from litlab.sweep.results import completed
from litlab.sweep.setting_figures import draw_importances, draw_parallel, draw_slices

if TYPE_CHECKING:
    from litlab.sweep.spec import SweepSpec


def write_report(spec: "SweepSpec", study: Study) -> Path:
    """Write pictures and the page of a sweep to ``report/`` in its folder, in place of an earlier report.

    Args:
        spec: The sweep.
        study: Its trials.

    Returns:
        The page, ``report.html``.

    Raises:
        UserError: If no trial was completed, or the files can't be written.
    """
    trials = study.get_trials(deepcopy=False)
    if not completed(trials):
        raise UserError(f"sweep {spec.name}: no trial was completed yet, there is nothing to report.")
    shares, remark = importances(spec, trials)
    figures = {
        "history": draw_history(spec, trials),
        "pareto": draw_pareto(spec, trials) if len(spec.metrics) > 1 else None,
        "importances": draw_importances(shares, remark),
        "parallel": draw_parallel(spec, trials),
        "slices": draw_slices(spec, trials),
        "curves": draw_curves(spec, trials),
    }
    pictures: dict[str, bytes] = {}
    for name, figure in figures.items():
        if figure is not None:
            buffer = io.BytesIO()
            figure.savefig(buffer, format="png")
            pictures[name] = buffer.getvalue()
    page = report_page(spec, trials, pictures, datetime.now())
    folder = spec.folder / "report"
    for name, picture in pictures.items():
        write_bytes(folder / f"{name}.png", picture)
    write_bytes(folder / "report.html", page.encode())
    return folder / "report.html"
