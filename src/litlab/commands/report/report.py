"""``python -m PACKAGE report``: a page about one run or several, for people who were not there."""

import shlex
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from litlab.errors import UserError
from litlab.runs.find import RUN_HELP
from litlab.runs.folder import write_text
from litlab.util import team
from litlab.util.options import Options, answer
from litlab.util.text import some

if TYPE_CHECKING:
    from litlab.commands.report.blocks import Evaluation
    from litlab.commands.report.facts import Facts

DESCRIPTION = """\
Write a page about a run: what it is, its results beside those of its baselines, curves, data, settings,
cost, code, and how to repeat it. It is one HTML file that needs no network. The best checkpoint is
tested once more for what no file of the run has: calibration, mistakes, samples.
Several runs are shown side by side; runs that differ only in their seed, also as mean and spread.

  %(prog)s mine/version_3
  %(prog)s mine --card                 also a model card, in Markdown
  %(prog)s mine/version_3 mine/version_4 --output both.html
  %(prog)s mine/seeds_0                all seeds of a group
"""


def main(arguments: list[str]) -> int:
    """Run the command ``report`` and return its exit code: 0, or 2 after one line on what is wrong."""
    return answer(_report, arguments)


def _report(arguments: list[str]) -> int:
    options = Options("report", DESCRIPTION)
    options.add_argument("run", nargs="+", metavar="RUN", help=f"{RUN_HELP}, or a group of seeds")
    options.add_argument("--output", metavar="FILE", type=Path, help="file to write (default: in the run's folder)")
    options.add_argument("--card", action="store_true", help="also write a model card, card.md, beside the page")
    options.add_argument("--no-evaluate", action="store_true", help="make the page from the run's files alone")
    options.add_argument(
        "--allow_modules", metavar="M,M", default="", help="modules that the run's config may name, too"
    )
    chosen = options.parse_args(arguments)

    from litlab.commands.report.chosen import chosen_runs
    from litlab.commands.report.facts import read_facts
    from litlab.commands.report.render import html
    from litlab.util.files import check_folder

    found = chosen_runs(chosen.run)
    if chosen.card and len(found.runs) > 1:
        raise UserError("--card: a model card is about one run; name one.")
    output: Path = chosen.output or found.page
    if output.is_dir():
        raise UserError(f"--output: {output} is a folder; name a file in it.")
    check_folder("--output", output.parent)
    command, made = shlex.join(team.command("report", *arguments)), f"{datetime.now():%Y-%m-%d %H:%M}"
    facts = [read_facts(run) for run in found.runs]
    if generated := some([each.run.name for each in facts if each.generated]):
        print(f"warning: {generated}: on GENERATED data; it says nothing about the real data", file=sys.stderr)
    if len(facts) > 1:
        from litlab.commands.report.several import report_on_several

        write_text(output, html(report_on_several(found.title, facts), command, made))
        print(output)
        return 0
    from litlab.commands.report.single import report_on

    evaluation, why_not = _evaluated(facts[0], chosen.no_evaluate, chosen.allow_modules)
    report = report_on(facts[0], evaluation, why_not)
    write_text(output, html(report, command, made))
    print(output)
    if chosen.card:
        from litlab.commands.report.card import write_card

        print(write_card(facts[0], report, evaluation, output.parent, command, made))
    return 0


def _evaluated(facts: "Facts", no_evaluate: bool, modules: str) -> "tuple[Evaluation | None, str]":
    """Return what the checkpoint of a run shows, or why it was not evaluated."""
    if no_evaluate:
        return None, "the checkpoint was not evaluated (--no-evaluate)."
    if facts.status.startswith("running"):
        return None, "the run is still running, so its checkpoint was not evaluated."
    from litlab.commands.report.evaluate import evaluate

    try:
        return evaluate(facts.run, facts.generated, modules), ""
    except UserError as error:  # the page is made of the files
        why_not = f"the checkpoint can't be evaluated here: {error}"
        print(f"note: {why_not}", file=sys.stderr)
        return None, why_not
