"""``python -m PACKAGE report``: a page about one run or several, for people who were not there."""

import sys
from pathlib import Path

from litlab.runs.find import RUN_HELP, find_run, list_runs
from litlab.runs.folder import ROOT, RunFolder
from litlab.util import team
from litlab.util.files import check_replaceable, write_output
from litlab.util.options import Options
from litlab.util.text import some

DESCRIPTION = """\
Write a page about a run: its results beside those of its baselines, the pictures and tables in its
folder (such as confusions, calibration, mistakes, forecasts), curves, settings, cost, code, and how
to repeat it. It is one HTML file that needs no network, made from the files of the run; no code of
the run is executed. Several runs are shown side by side, and runs that differ only in their seed
also with mean and spread.

  %(prog)s mine/version_3
  %(prog)s mine/version_3 mine/version_4 --output both.html
  %(prog)s mine/seeds_0                all runs of a group of seeds
"""


def main(arguments: list[str]) -> int:
    options = Options("report", DESCRIPTION)
    options.add_argument("run", nargs="+", metavar="RUN", help=f"{RUN_HELP}, or a group of seeds")
    options.add_argument(
        "--output", metavar="FILE", type=Path, help="file to write (default: in the run's folder)"
    )
    chosen = options.parse_args(arguments)

    from litlab.commands.report.page import build_page, read_facts

    # Where it goes, before the work; in the folder of a run no link is followed.
    runs = find_runs(chosen.run)
    output = chosen.output or default_output(runs, chosen.run)
    check_replaceable(output, None if chosen.output else output.parents[1])
    facts = [read_facts(run) for run in runs]
    generated = some(
        [run_facts.run.name for run_facts in facts if run_facts.record["generated_data"]]
    )
    if generated:
        print(
            f"warning: {generated}: on GENERATED data; it says nothing about the real data",
            file=sys.stderr,
        )
    write_output(output, build_page(facts, team.typed("report", *arguments)))
    print(output)
    return 0


def find_runs(texts: list[str]) -> list[RunFolder]:
    runs: list[RunFolder] = []
    for text in texts:
        run = find_run(text, groups=True)
        runs += reversed(list_runs(run.path)) if run.is_group() else [run]
    return runs


def default_output(runs: list[RunFolder], names: list[str]) -> Path:
    if len(runs) == 1:
        return runs[0].path / "report" / "index.html"
    name = "_".join(name.replace("/", "-") for name in names)
    return ROOT / "reports" / f"{name[:120]}.html"
