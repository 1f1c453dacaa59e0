"""``python -m PACKAGE report``: a page about one run or several, for people who were not there."""

import shlex
import sys
from pathlib import Path

from litlab.errors import UserError
from litlab.runs.find import RUN_HELP, all_runs, find_run
from litlab.runs.folder import ROOT, RunFolder, write_text
from litlab.util import team
from litlab.util.options import Options
from litlab.util.text import some

DESCRIPTION = """\
Write a page about a run: its results beside those of its baselines, curves, settings, cost, code, and how
to repeat it. It is one HTML file that needs no network. The best checkpoint is tested once more for what
no file of the run has: confusions, calibration, mistakes, forecasts.
Several runs are shown side by side; runs that differ only in their seed, also as mean and spread.

  %(prog)s mine/version_3
  %(prog)s mine/version_3 mine/version_4 --output both.html
  %(prog)s mine/seeds_0                all seeds of a group
"""


def main(arguments: list[str]) -> int:
    options = Options("report", DESCRIPTION)
    options.add_argument("run", nargs="+", metavar="RUN", help=f"{RUN_HELP}, or a group of seeds")
    options.add_argument("--output", metavar="FILE", type=Path, help="file to write (default: in the run's folder)")
    options.add_argument("--no-evaluate", action="store_true", help="make the page from the run's files alone")
    options.add_argument(
        "--allow_modules", metavar="M,M", default="", help="modules that the run's config may name, too"
    )
    chosen = options.parse_args(arguments)

    from litlab.commands.report.evaluate import evaluate
    from litlab.commands.report.page import build_page, read_facts

    # What the files of the runs say.
    runs = find_runs(chosen.run)
    facts = [read_facts(run) for run in runs]
    generated = some([each.run.name for each in facts if each.generated])
    if generated:
        print(f"warning: {generated}: on GENERATED data; it says nothing about the real data", file=sys.stderr)

    # What the checkpoint of a single run shows.
    sections, problem = [], ""
    if len(runs) == 1 and not chosen.no_evaluate and facts[0].status != "running":
        try:
            sections = evaluate(runs[0], facts[0].generated, chosen.allow_modules)
        except UserError as error:  # the page is made of the files
            problem = f"The checkpoint can't be evaluated here: {error}"
            print(f"note: {problem}", file=sys.stderr)

    # The page.
    output = chosen.output or default_output(runs, chosen.run)
    command = shlex.join(team.command("report", *arguments))
    write_text(output, build_page(facts, sections, problem, command))
    print(output)
    return 0


def find_runs(texts: list[str]) -> list[RunFolder]:
    runs: list[RunFolder] = []
    for text in texts:
        run = find_run(text, groups=True)
        runs += reversed(all_runs(run.path)) if run.is_group() else [run]
    return runs


def default_output(runs: list[RunFolder], names: list[str]) -> Path:
    if len(runs) == 1:
        return runs[0].path / "report" / "index.html"
    name = "_".join(name.replace("/", "-") for name in names)
    return ROOT / "reports" / f"{name[:120]}.html"
