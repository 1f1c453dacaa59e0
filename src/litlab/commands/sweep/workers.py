"""The workers of a sweep: threads, each of which runs one trial at a time, with its share of cores and devices."""

import math
import os
import shutil
import subprocess
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from optuna import Study
from optuna.exceptions import ExperimentalWarning
from optuna.trial import FrozenTrial, TrialState

from litlab.commands.sweep.processes import Stop
from litlab.commands.sweep.results import counted
from litlab.commands.sweep.spec import SweepSpec
from litlab.commands.sweep.storage import Storage
from litlab.commands.sweep.study import ENDED, NothingLeft, OthersRunning, SweepStudy
from litlab.commands.sweep.trial import TrialFailed, TrialLeft, TrialRunner

FAILURES = 3  # without any success: then the sweep ends
SECONDS_BETWEEN_ASKS = 2.0
SECONDS_BETWEEN_LOOKS = 0.5


def run_workers(
    spec: SweepSpec, storage: Storage, workers: int, until: float | None, stop: Stop, look: Callable[[], None]
) -> None:
    """Run trials until nothing is left, or the command is to stop.

    Args:
        spec: The sweep.
        storage: Where its study is.
        workers: How many trials to run at a time.
        until: Time (seconds since the epoch) from which on no trial is started; None for no limit.
        stop: Whether to stop.
        look: Called twice a second.

    Raises:
        Exception: What went wrong in a worker, once the others have stopped.
    """
    warnings.simplefilter("ignore", ExperimentalWarning)  # Optuna's own catch_warnings is not safe among threads

    def work(number: int) -> None:
        study = SweepStudy(spec, storage)
        runner = TrialRunner(spec, storage, devices_of(number, workers), stop)
        while not stop.requested and time.time() < (math.inf if until is None else until):
            try:
                study.optimize(runner, n_trials=1, catch=(TrialFailed,), callbacks=[_end_if_hopeless])
            except NothingLeft:
                return
            except OthersRunning:
                time.sleep(SECONDS_BETWEEN_ASKS)
            except TrialLeft:
                continue

    with ThreadPoolExecutor(workers) as threads:
        try:
            running = [threads.submit(work, number) for number in range(workers)]
            while not all(worker.done() for worker in running):
                look()
                time.sleep(SECONDS_BETWEEN_LOOKS)
                if any(worker.done() and worker.exception() for worker in running):
                    stop.requested = True
        except BaseException:
            stop.requested = True
            raise
    for worker in running:
        worker.result()


def _end_if_hopeless(study: Study, trial: FrozenTrial) -> None:
    """End the sweep, for all commands, where the first trials all failed."""
    assert isinstance(study, SweepStudy)
    if trial.state != TrialState.FAIL:
        return
    trials = counted(study.get_trials(deepcopy=False))
    if any(other.state != TrialState.FAIL and other.intermediate_values for other in trials):
        return
    failed = sum(other.state == TrialState.FAIL for other in trials)
    if ENDED not in study.user_attrs and failed >= min(FAILURES, study.spec.trials or FAILURES):
        reason = trial.user_attrs["reason"]
        study.set_user_attr(ENDED, f"none of the first {failed} trials succeeded; the last one: {reason}")


def devices() -> list[str]:
    """Return the CUDA devices that this command may use, as ``CUDA_VISIBLE_DEVICES`` names them."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name for name in chosen.split(",") if name.strip() not in ("", "-1")]
    if shutil.which("nvidia-smi") is None:
        return []
    listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=False).stdout
    return [str(number) for number, line in enumerate(listed.splitlines()) if line.startswith("GPU ")]


def devices_of(worker: int, workers: int) -> dict[str, str]:
    """Return the variable that gives one of some workers its share of the CUDA devices; {} where there are none."""
    found = devices()
    if not found:
        return {}
    each = max(1, len(found) // workers)
    first = worker * each % len(found)
    return {"CUDA_VISIBLE_DEVICES": ",".join(found[first : first + each])}


def threads_of_each(workers: int) -> int:
    """Return how many threads each of some workers may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // workers)
