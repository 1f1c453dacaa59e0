"""``python -m PACKAGE bench``: which settings make an experiment faster on this machine."""

import signal
import sys
import tempfile
from functools import partial
from pathlib import Path

from litlab.bench.changes import AS_IS, Changes, Machine, candidates, hopeless, read_allowed, read_side, title
from litlab.bench.display import Display
from litlab.bench.measurement import Trial
from litlab.bench.report import write_overlay, write_record
from litlab.bench.runner import Runner
from litlab.bench.search import Ratio, in_turns, search
from litlab.commands.numbers import amount_of
from litlab.errors import UserError
from litlab.runs.folder import ROOT
from litlab.sweep.processes import Stop, Unfinished, use_fork_server
from litlab.util.files import check_folder
from litlab.util.options import Options, answer
from litlab.util.team import typed

FOLDER = ROOT / "bench"
TURNS = 3  # of the best and the baseline, at most
RESERVED = 2  # trials: one turn
TURNS_OF_COMPARE = 5
REFUSED = ("--resume", "--ckpt_path", "--check", "--plan", "--print_config")  # flags of fit
DESCRIPTION = """\
Run an experiment for a few steps under several settings, each in a process of its own: precision, compile mode,
channels_last, a fused optimizer, activation checkpointing, threads, batch size and loader settings. All other arguments
are those of `fit`. The best are written as an overlay, lightning_logs/bench/EXPERIMENT/bench.yaml (docs/bench.md).

  %(prog)s --config configs/mine.yaml
  %(prog)s --config configs/mine.yaml --model.width 256 --minutes 20 --allow precision
  %(prog)s --config configs/mine.yaml --compare eager,compile
  %(prog)s --config configs/mine.yaml --compare baseline,threads=1,compile+channels_last,my_overlay.yaml
"""
COMPARE = "measure these alone, in turns: baseline, eager, compile, SETTING=VALUE, FILE.yaml, or some joined by +"
ALLOW = "keep these settings too, which change what is learned: precision, batch_size"


class Broken(Exception):
    """The experiment fails by a bug.

    Args:
        trial: Whose last lines say which.
    """

    def __init__(self, trial: Trial) -> None:
        super().__init__(trial.reason)
        self.trial = trial


def main(arguments: list[str]) -> int:
    """Run the verb ``bench``.

    Args:
        arguments: What follows the verb on the command line.

    Returns:
        The exit code: 0; 1 where the experiment fails by a bug, after the end of its traceback; 2 after one line on
        what is wrong; 143 or 130 if it was stopped.
    """
    return answer(_bench, arguments)


def _bench(arguments: list[str]) -> int:
    options = Options("bench", DESCRIPTION)
    options.add_argument(
        "--minutes", metavar="M", type=partial(amount_of, "minutes"), default=10.0, help="time budget (default: 10)"
    )
    options.add_argument("--compare", metavar="A,B", type=_sides, help=COMPARE)
    options.add_argument("--allow", metavar="NAMES", type=read_allowed, default=set(), help=ALLOW)
    chosen, fit = options.parse_known_args(arguments)
    for flag in REFUSED:
        if any(argument.partition("=")[0] == flag for argument in fit):
            raise UserError(f"{flag}: bench looks at a fit from its start; leave {flag} out")
    check_folder("bench", FOLDER)
    stop = Stop()
    stop.listen()
    use_fork_server()
    first: Changes = chosen.compare[0] if chosen.compare else ()
    ratios: dict[str, Ratio] = {}
    best: Changes = ()
    with tempfile.TemporaryDirectory() as folder, Display(60 * chosen.minutes) as display:
        runner = Runner(fit, 60 * chosen.minutes, Path(folder), stop, display)
        try:
            if chosen.compare:
                ratios = _compare(runner, chosen.compare)
            else:
                best, ratios = _search(runner, chosen.allow)
        except Unfinished as error:
            if error.killed:
                raise UserError("bench: the fork server was killed; there may be too little memory.") from error
        except Broken as broken:
            print(*broken.trial.tail, sep="\n", file=sys.stderr)
            return 1
    display.table(runner, first)
    if runner.facts:
        _write(runner, fit, best, ratios, compared=bool(chosen.compare), stopped=bool(stop.signum))
    if stop.signum:
        print(f"{signal.Signals(stop.signum).name}: stopped.", file=sys.stderr)
        return 128 + stop.signum
    return 0


def _compare(runner: Runner, sides: list[Changes]) -> dict[str, Ratio]:
    """Measure the sides in turns; return the ratio of each but the first."""
    ratios = in_turns(runner.measure, sides, TURNS_OF_COMPARE, lambda: runner.has_time(len(sides)))
    if runner.trials[0].measured is None:
        _fail(runner.trials[0], runner)
    return {title(side): ratio for side, ratio in ratios.items()}


def _search(runner: Runner, allowed: set[str]) -> tuple[Changes, dict[str, Ratio]]:
    """Find the best changes and confirm them; return () where nothing is faster."""
    base = runner.measure(())
    if base.measured is None:
        _fail(base, runner)
    facts = runner.facts
    hardware = facts["hardware"]
    machine = Machine(hardware["device"], facts["bfloat16"], hardware["cores"], facts["convolutions"], facts["current"])
    wanted = []
    for change in candidates(machine):
        if why := hopeless(machine, change):
            runner.skip(change, why)
        else:
            wanted.append(change)
    found = search(
        lambda changes: runner.measure(changes, reserve=RESERVED),
        base, wanted, allowed, lambda: runner.has_time(1 + RESERVED),
    )  # fmt: skip
    if not found:
        return (), {}
    ratios = in_turns(runner.measure, [(), found], TURNS, lambda: runner.has_time(2))
    best = found if found in ratios and ratios[found].is_gain else ()
    return best, {title(side): ratio for side, ratio in ratios.items()}


def _fail(trial: Trial, runner: Runner) -> None:
    """Say why nothing could be measured.

    Raises:
        UserError: If the user can put it right.
        Broken: If it is a bug.
    """
    if not trial.tail:
        raise UserError(f"--minutes: {title(trial.changes)} was {trial.reason}; give more time")
    if trial.reason.startswith("exit code"):
        raise Broken(trial)
    raise UserError(trial.reason)


def _write(
    runner: Runner, fit: list[str], best: Changes, ratios: dict[str, Ratio], compared: bool, stopped: bool
) -> None:
    """Write the files and say what is in them."""
    folder = FOLDER / runner.facts["experiment"]
    record, overlay = folder / ("compare.json" if compared else "bench.json"), folder / "bench.yaml"
    write_record(record, runner, best, ratios)
    print(f"Record: {record}")
    for name, ratio in ratios.items():
        print(f"{name}: {ratio}")
    if compared:
        return
    if best:
        write_overlay(overlay, runner, best, ratios[title(best)], fit)
        print(f"Best: {' '.join([typed('fit'), *fit, '--config', str(overlay)])}")
        return
    if stopped:
        return
    if all(trial.measured is None for trial in runner.trials[1:]):
        print("No overlay: there was no time to try anything; give more --minutes.")
        return
    overlay.unlink(missing_ok=True)  # of an earlier time
    print(f"No overlay: {'it was not faster in every turn' if ratios else 'nothing pays'}.")


def _sides(text: str) -> list[Changes]:
    sides = [read_side(side) for side in text.split(",")]
    if len(sides) < 2:
        raise UserError(f"--compare: {text} is one side; name two or more, such as {AS_IS},{text}")
    for side in sides:
        if sides.count(side) > 1:
            raise UserError(f"--compare: {title(side)} is named twice; remove one of them")
    return sides
