"""``python -m PACKAGE sweep``: search the settings of an experiment; ``status`` and ``report`` show how it stands."""

import contextlib
import dataclasses
import signal
import sys
import time
from datetime import datetime
from functools import partial
from pathlib import Path

import yaml

from litlab.commands.sweep.best import command, write_best
from litlab.commands.sweep.check import check_space
from litlab.commands.sweep.processes import Stop, Unfinished, use_fork_server
from litlab.commands.sweep.report import write_report
from litlab.commands.sweep.spec import SweepSpec, read_spec
from litlab.commands.sweep.storage import storage_errors
from litlab.commands.sweep.study import ENDED, SweepStudy, check_fingerprint, find_study, start_study
from litlab.commands.sweep.table import display, progress_table
from litlab.commands.sweep.workers import devices, run_workers, threads_of_each
from litlab.errors import UserError
from litlab.runs.folder import ROOT, write_text
from litlab.util.numbers import amount_of, count
from litlab.util.options import Options, answer
from litlab.util.team import typed
from litlab.util.text import nearest, terminal
from litlab.util.yaml import read_mapping

COPY = "sweep.yaml"  # of the sweep file, in the sweep's folder
DESCRIPTION = """\
Search the settings of an experiment, described by a sweep file (docs/sweeps.md). Trials are runs like
any other, in lightning_logs/sweeps/NAME/. Ctrl-C stops the sweep; the same command continues it.
Arguments after `--` go to every fit.

  %(prog)s --config configs/sweeps/mine.yaml --workers 2
  %(prog)s --config configs/sweeps/mine.yaml --trials 40      16 more than the file's 24
  %(prog)s --config configs/sweeps/mine.yaml -- --data.dataset folder --data.path DIR
  %(prog)s status mine         its progress (or --config FILE)
  %(prog)s report mine         an HTML report, in lightning_logs/sweeps/mine/report/
"""
VIEWS = {
    "status": "Show the progress of a sweep.",
    "report": "Write the report of a sweep as one HTML page, in lightning_logs/sweeps/NAME/report/.",
}


def main(arguments: list[str]) -> int:
    """Run the verb ``sweep``.

    Args:
        arguments: What follows the verb on the command line.

    Returns:
        The exit code: 0; 2 after one line on what is wrong; 143 or 130 if it was stopped.
    """
    views = {"status": _status, "report": _report}
    if arguments and arguments[0] in views:
        return answer(views[arguments[0]], arguments[1:])
    return answer(_sweep, arguments)


def _sweep(arguments: list[str]) -> int:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = Options("sweep", DESCRIPTION)
    options.add_argument("--config", metavar="FILE", type=Path, required=True, help="the sweep file")
    options.add_argument("--workers", metavar="N", type=count, help="trials at a time (default: one per GPU, or 1)")
    options.add_argument("--trials", metavar="N", type=count, help="number of trials, in place of the file's")
    options.add_argument(
        "--hours", metavar="H", type=partial(amount_of, "hours"), help="stop starting trials after H hours"
    )
    chosen = options.parse_args(arguments[:end])
    spec = read_spec(chosen.config, chosen.trials, chosen.hours, arguments[end + 1 :])
    study = find_study(spec)
    if study is not None:
        check_fingerprint(study)
        if study.is_finished():
            print(f"The sweep {spec.name} is finished: {spec.folder}. A larger --trials adds to it.")
            return 0
    return _run(spec, chosen.workers or max(1, len(devices())))


def _run(spec: SweepSpec, workers: int) -> int:
    """Check the space, run the workers to the end, and write what was found."""
    until = time.time() + 3600 * spec.hours if spec.hours is not None else None
    stop = Stop()
    stop.listen()
    use_fork_server(threads_of_each(workers))
    with contextlib.suppress(Unfinished), storage_errors():
        space = check_space(spec, stop)
        study = start_study(spec)  # known by what the file says, not by what the check has added
        write_text(spec.folder / COPY, _copy(spec))
        spec = dataclasses.replace(spec, space=space)
        with display(spec, study, until) as update:
            run_workers(spec, study.storage, workers, until, stop, update)
        if files := write_best(spec, study.get_trials(deepcopy=False)):
            print(f"Report: {write_report(spec, study)}")
        for file in files:
            print(f"Best: {command(spec, file)}")
        if reason := study.user_attrs.get(ENDED):
            raise UserError(reason)
    if stop.signum:
        print(f"{signal.Signals(stop.signum).name}: stopped; the same command continues.", file=sys.stderr)
        return 128 + stop.signum
    return 0


def _status(arguments: list[str]) -> int:
    spec, study = _existing("status", arguments)
    console = terminal()
    console.print(progress_table(spec, study.get_trials(deepcopy=False), datetime.now(), width=console.width))
    return 0


def _report(arguments: list[str]) -> int:
    print(write_report(*_existing("report", arguments)))
    return 0


def _existing(view: str, arguments: list[str]) -> tuple[SweepSpec, SweepStudy]:
    """Return the sweep that a user means, with its study."""
    options = Options(f"sweep {view}", VIEWS[view])
    options.add_argument("sweep", nargs="?", metavar="SWEEP", help="name of the sweep, or its folder")
    options.add_argument("--config", metavar="FILE", type=Path, help="the sweep file instead")
    chosen = options.parse_args(arguments)
    if (chosen.sweep is None) == (chosen.config is None):
        raise UserError(f"sweep {view}: give the name of a sweep, or --config FILE.")
    file = chosen.config or _copy_of(chosen.sweep)
    spec = read_spec(file)
    study = find_study(spec)
    if study is None:
        raise UserError(f"sweep {view}: {spec.name} has not been started; run {typed('sweep')} --config {file}")
    return spec, study


def _copy_of(sweep: str) -> Path:
    """Return the copy of a sweep file in the folder of the sweep."""
    for folder in (ROOT / "sweeps" / sweep, Path(sweep)):
        if (folder / COPY).is_file():
            return folder / COPY
    known = tuple(path.parent.name for path in sorted((ROOT / "sweeps").glob(f"*/{COPY}")))
    hint = nearest(sweep, known, f": there are {', '.join(known)}." if known else ": there are none yet.")
    raise UserError(f"there is no sweep '{sweep}'{hint}")


def _copy(spec: SweepSpec) -> str:
    """Return the sweep file as one that can be read from the sweep's folder."""
    content = read_mapping(spec.file)
    own = {"name": spec.name, "base": [str(path.resolve()) for path in spec.base], "trials": spec.trials}
    return yaml.safe_dump({**content, **own}, sort_keys=False)
