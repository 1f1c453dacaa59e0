"""``python -m PACKAGE sweep``: search the settings of an experiment.

Several workers are several processes of this command, which share the study.
"""

import argparse
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

import optuna
import psutil
import torch
from filelock import FileLock
from optuna.storages import fail_stale_trials
from optuna.trial import TrialState

from litlab.commands.sweep.report import (
    check_files,
    describe_trial,
    list_complete,
    list_rows,
    write_best,
    write_report,
)
from litlab.commands.sweep.spec import SAMPLERS, Spec, build_part, check_space, read_spec
from litlab.commands.sweep.study import allow_experimental, list_counted, open_study, queue_again
from litlab.commands.sweep.trial import Stopped, TrialFailed, run_trial
from litlab.errors import UserError
from litlab.runs.children import run_children
from litlab.runs.table import show_table
from litlab.util.limits import count_cores
from litlab.util.options import Options, amount_of, count
from litlab.util.team import package, typed

MOST_FAILURES = 3  # of one worker without any success
DESCRIPTION = """\
Search for good settings of an experiment, as a sweep file describes (docs/sweeps.md). Trials are
runs like any other, in lightning_logs/sweeps/NAME/. Ctrl-C stops the sweep; the same command
continues it. Arguments after `--` are added to every fit.

  %(prog)s --config configs/sweeps/mine.yaml --workers 2
  %(prog)s --config configs/sweeps/mine.yaml --trials 40      16 more than the file's 24
  %(prog)s --config configs/sweeps/mine.yaml -- --data.dataset folder --data.path DIR
  %(prog)s --config configs/sweeps/mine.yaml --report         the trials so far, and a page
"""


def main(arguments: list[str]) -> int:
    with allow_experimental():
        return _sweep(arguments)


def _sweep(arguments: list[str]) -> int:
    # The command line
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = Options("sweep", DESCRIPTION)
    options.add_argument(
        "--config", metavar="FILE", type=Path, required=True, help="the sweep file"
    )
    options.add_argument(
        "--workers", metavar="N", type=count, help="trials at a time (default: one per GPU, or 1)"
    )
    options.add_argument(
        "--trials", metavar="N", type=count, help="number of trials, instead of the file's"
    )
    hours = partial(amount_of, "hours")
    options.add_argument(
        "--hours", metavar="H", type=hours, help="stop starting trials after H hours"
    )
    options.add_argument(
        "--report", action="store_true", help="show the trials so far, and write the page"
    )
    # Which of how many processes this one is: 0/2
    options.add_argument("--worker", help=argparse.SUPPRESS)
    chosen = options.parse_args(arguments[:end])
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # `describe_trial` says how trials end
    spec = read_spec(chosen.config, chosen.trials, chosen.hours, arguments[end + 1 :])
    if chosen.worker:
        take_share(*map(int, chosen.worker.split("/")))
        return run_worker(spec, [os.getpid(), os.getppid()])

    check_files(spec)
    if chosen.report:
        show_results(spec, open_study(spec))
        return 0

    # Before the first trial
    workers = chosen.workers or max(1, torch.cuda.device_count())
    check_space(spec)
    study = open_study(spec, create=True)
    # The first trial says nothing for as long as its fit takes
    print(f"Sweep {spec.name}: trials in {spec.folder}, their output in fit.log", flush=True)

    # Trials: one worker is this process; several are processes of the same command, which know
    # their number and so run none themselves
    if workers == 1:
        codes = [run_worker(spec, [os.getpid()])]
    else:
        words = ["sweep", *arguments[:end]]
        commands = [
            [*words, f"--worker={number}/{workers}", *arguments[end:]] for number in range(workers)
        ]
        codes = run_children(package(), commands)

    # Results
    show_results(spec, study)
    code = max(codes)
    if code > 128:
        print(
            f"{signal.Signals(code - 128).name}: stopped; the same command continues",
            file=sys.stderr,
        )
    return code


def run_worker(spec: Spec, processes: list[int]) -> int:
    """Run trials until the budget is used up, and all of them have ended.

    The fits end where one of the `processes` of the command is gone.
    """
    # Each command has its own hours; the number of trials is that of the study.
    study = open_study(spec)
    until = time.time() + 3600 * (spec.hours or 1e9)
    numbers: list[int] = []
    failures = 0

    def objective(trial: optuna.Trial) -> float:
        numbers.append(trial.number)
        try:
            return run_trial(spec, trial, processes)
        except TrialFailed as error:
            trial.set_user_attr("reason", str(error))
            raise

    while time.time() < until and all(map(psutil.pid_exists, processes)):
        # Wait for trials of other workers, which may be killed
        states = [trial.state for trial in list_counted(study)]
        is_enough = spec.trials is not None and len(states) >= spec.trials
        if is_enough and TrialState.WAITING not in states:
            if TrialState.RUNNING not in states:
                break
            time.sleep(2)
            fail_stale_trials(study)
            continue

        # The next one, from a sampler that draws other numbers than those before
        study.sampler = build_part(SAMPLERS, spec.sampler, "sampler", number=len(states))
        try:
            study.optimize(objective, n_trials=1, catch=(TrialFailed,))
        except Stopped as error:
            queue_again(study, study.trials[numbers[-1]])
            return error.code
        trial = study.trials[numbers[-1]]
        print(describe_trial(spec, trial), flush=True)

        # Stop where nothing works
        failures += trial.state == TrialState.FAIL
        if failures == len(numbers) == min(MOST_FAILURES, spec.trials or MOST_FAILURES):
            raise UserError(
                f"{spec.file}: the first trials failed; see fit.log in the folders of {spec.folder}"
            )
    return 0


def show_results(spec: Spec, study: optuna.Study) -> None:
    header, rows = list_rows(spec, study)
    show_table(header, rows, f"Sweep {spec.name}: {len(rows)} trials")
    if list_complete(study):
        with FileLock(spec.folder / ".lock"):  # other commands of the sweep may end at once
            best = write_best(spec, study)
            page = write_report(spec, study)
        print(f"Report: {page}")
        flags = [word for path in (*spec.base, best) for word in ("--config", str(path))]
        print("Best:", typed("fit", *flags))


def take_share(worker: int, workers: int) -> None:
    """Leave this process, one of several workers, its share of the CUDA devices and the cores."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    devices = chosen.split(",") if chosen else list(map(str, range(torch.cuda.device_count())))
    if devices:
        share = devices[worker::workers] or [devices[worker % len(devices)]]
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(share)
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, int(count_cores() / workers))))
