"""``python -m PACKAGE bench``: which settings make an experiment faster on this machine."""

import signal
import sys
import tempfile
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from subprocess import TimeoutExpired

import yaml

from litlab.cli.argv import Flags
from litlab.commands.bench.compare import Trial, Trials, choose_best, explain, search, take_turns
from litlab.commands.bench.settings import LEARNS, Facts, Side, list_candidates, read_sides, title
from litlab.errors import UserError
from litlab.runs.children import explain_failure, run_child
from litlab.runs.folder import ROOT, read_json
from litlab.runs.masking import mask_command
from litlab.runs.provenance import tell_time
from litlab.runs.table import show_table
from litlab.util.files import check_replaceable, write_output
from litlab.util.options import Options, amount_of
from litlab.util.team import package, typed
from litlab.util.text import count_decimals, format_number
from litlab.util.yaml import Loader, dump_config

FOLDER = ROOT / "bench"
TURNS = 5  # of --compare, at most
REFUSED = ("--resume", "--ckpt_path", "--check", "--plan", "--seeds", "--folds", "--print_config")
DESCRIPTION = """\
Run an experiment for a few steps with several settings, each in its own process: compile mode,
channels_last, a fused optimizer and loader workers; with --allow also precision and batch size. All
other arguments are those of `fit`. The best settings are written as an overlay,
lightning_logs/bench/EXPERIMENT/bench.yaml (docs/bench.md).

  %(prog)s --config configs/mine.yaml
  %(prog)s --config configs/mine.yaml --minutes 20 --allow precision
  %(prog)s --config configs/mine.yaml --compare eager,compile
"""
COMPARE = (
    "measure only these, alternately: baseline, eager, compile, SETTING=VALUE, FILE.yaml, or "
    "several joined by +"
)
ALLOW = "also try this setting, which changes what is learned"
COLUMNS = ("change", "samples/s", "quartiles", "times", "start-up", "")


class Stopped(Exception):
    """The time is over, or a signal has come."""


class Bench:
    """Runs trials within a budget of seconds; `folder` is for logs and the compiler's cache."""

    def __init__(self, flags: list[str], seconds: float, folder: Path) -> None:
        self.facts: Facts | None = None
        self.signum = 0
        self._flags = flags
        self._end = time.monotonic() + seconds
        self._steps = 0  # the first trial chooses how many: all see the same batches
        self._result, self._log = folder / "trial.json", folder / "trial.log"

    def measure(self, side: Side) -> Trial:
        """Run a trial, and print what it has come to."""
        # The baseline must work; a change that fails is a result.
        left = self._end - time.monotonic()
        if left <= 0:
            raise Stopped
        reason = self._run(side, left)
        if reason and self.facts is None:
            raise UserError(reason)
        trial = Trial(reason=reason)
        if not reason:
            content = read_json(self._result)
            trial = Trial(**content["trial"])
            self.facts = self.facts or Facts(**content["facts"])
            self._steps = content["steps"]
        says = reason or f"{format_number(trial.rate)} samples/s"
        print(f"{title(side)}: {says}", flush=True)
        return trial

    def _run(self, side: Side, limit: float) -> str:
        """Run a trial, which leaves a file; return why it failed, empty if it did not."""
        # In a process of its own: a setting can't be taken back in one that has compiled with it.
        self._result.unlink(missing_ok=True)
        flags = [*self._flags, *(change.flag for change in side)]
        arguments = [package(), str(self._result), str(self._steps), *flags]
        try:
            code = run_child(
                "litlab.commands.bench.trial", *arguments, log=self._log, seconds=limit
            )
        except TimeoutExpired:
            if self.facts:
                raise Stopped from None
            return f"--minutes: not done within {limit:.0f} s; give more time"
        if code > 128:
            self.signum = code - 128
            raise Stopped
        return explain_failure(code, self._log) if code else ""


def main(arguments: list[str]) -> int:
    options = Options("bench", DESCRIPTION)
    minutes = partial(amount_of, "minutes")
    options.add_argument(
        "--minutes", metavar="M", type=minutes, default=10.0, help="time budget (default: 10)"
    )
    options.add_argument("--compare", metavar="A,B", type=read_sides, help=COMPARE)
    options.add_argument("--allow", action="append", choices=LEARNS, default=[], help=ALLOW)
    chosen, flags = options.parse_known_args(arguments)
    if Flags(flags).has(*REFUSED):
        raise UserError(f"bench: it doesn't work with {', '.join(REFUSED)}; leave them out")

    # Trials, until all are done or the time is over
    trials: Trials = {}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(flags, 60 * chosen.minutes, Path(folder))
        with suppress(Stopped):
            if chosen.compare:
                take_turns(chosen.compare, TURNS, trials, bench.measure)
            else:
                trials[()] = bench.measure(())
                assert bench.facts is not None
                check_replaceable(choose_overlay(bench.facts))
                search(list_candidates(bench.facts, chosen.allow), trials, bench.measure)

    # What was measured by then
    if bench.facts is not None:
        show_trials(trials, bench.facts)
        if not chosen.compare and not bench.signum:
            write_overlay(trials, choose_best(trials, bench.facts.run_samples), bench.facts, flags)
    if bench.signum:
        print(f"{signal.Signals(bench.signum).name}: stopped", file=sys.stderr)
        return 128 + bench.signum
    return 0


def show_trials(trials: Trials, facts: Facts) -> None:
    first = next(iter(trials.values()))
    rows = []
    places = count_decimals(trial.rate for trial in trials.values() if trial.rates)
    for side, trial in trials.items():
        cells = [""] * 4
        if trial.rates:
            cells = [
                format_number(trial.rate, places),
                " to ".join(format_number(rate, places) for rate in trial.quartiles),
                f"{trial.rate / first.rate:.2f}",
                f"{trial.startup:.1f} s",
            ]
        rows.append(
            [
                title(side),
                *cells,
                "" if trial is first else explain(trial, first, facts.run_samples),
            ]
        )
    show_table(COLUMNS, rows, facts.heading)


def choose_overlay(facts: Facts) -> Path:
    return FOLDER / facts.experiment / "bench.yaml"


def write_overlay(trials: Trials, best: Side, facts: Facts, flags: list[str]) -> None:
    """Write the best changes as an overlay for ``fit``, or remove that of an earlier time, and say
    so.
    """
    file = choose_overlay(facts)
    if not best:
        check_replaceable(file)
        file.unlink(missing_ok=True)
        print("No overlay: of what was measured twice, nothing pays")
        return
    fit = typed("fit", *mask_command(flags), "--config", str(file))
    times = f"{trials[best].rate / trials[()].rate:.3g} times as many samples per second"
    comment = f"# {facts.heading}: {times}, {tell_time()}\n# {fit}\n"
    settings = {change.key: yaml.load(change.value, Loader) for change in best}
    write_output(file, comment + dump_config(settings))
    print(f"Best: {fit}")
