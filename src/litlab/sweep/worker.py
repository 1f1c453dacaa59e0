"""A worker process: it asks for trials and runs them, until nothing is left or it is told to stop."""

import dataclasses
import json
import math
import os
import select
import signal
import sys
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from litlab.errors import UserError
from litlab.sweep.check import checked_space
from litlab.sweep.space import with_blocks
from litlab.sweep.spec import read_spec
from litlab.sweep.storage import open_storage, storage_errors
from litlab.sweep.study import ENDED, NothingLeft, SweepStudy, counted, size
from litlab.sweep.trial import TrialFailed, TrialRunner, TrialTaken
from litlab.sweep.trial_launcher import LOST, ServerLost, TrialLauncher
from litlab.util.team import use_package

STOPPED = 143
FAILURES = 3  # without any success: then the sweep ends


class Stopped(BaseException):
    """The worker is to stop."""


def main(job: dict[str, Any]) -> int:
    """Runs a worker.

    Its standard input says when to begin: a line of JSON with the blocks that `checked_space` completed. When that is
    closed, the command that started the worker is gone, and it stops. A worker that is to check the values first prints
    these blocks.

    Args:
        job: ``package``, the team's; ``file``, ``trials`` and ``arguments`` as for `read_spec`; ``until``, a time from
            which on no trial is started; ``check``, whether to check the values first.

    Returns:
        The exit code: 0, 2 after a line on what is wrong, 143 if it was stopped, 70 if its fork server was killed.
    """
    use_package(job["package"])
    heard: list[int] = []
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda number, _: heard.append(number))

    def look() -> None:
        if heard or (select.select([0], [], [], 0)[0] and not os.read(0, 1)):
            raise Stopped

    spec = read_spec(Path(job["file"]), job["trials"], None, job["arguments"])
    launcher = TrialLauncher(look)
    try:
        if job["check"]:
            print(json.dumps(checked_space(spec, launcher)), flush=True)
        while not select.select([0], [], [], 0.2)[0]:
            look()
        line = _line()
        blocks = json.loads(line or "{}")
        spec = dataclasses.replace(spec, space=with_blocks(spec.space, blocks))
        storage = open_storage(spec.folder)
        assert storage is not None
        with storage_errors():
            study = SweepStudy(spec, storage, look, until=job["until"] or math.inf)
            _work(study, TrialRunner(spec, launcher))
    except Stopped:
        return STOPPED
    except ServerLost:
        return LOST
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    finally:
        launcher.close()
    return 0


def _line() -> str:
    """A line of standard input, and not a byte more: `look` reads it too."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            raise Stopped
        line += byte
    return line.decode()


def _work(study: SweepStudy, runner: TrialRunner) -> None:
    """Runs trials until nothing is left; one that is not brought to its end is queued again."""
    while True:
        try:
            study.optimize(runner, catch=(TrialFailed,), callbacks=[lambda _, trial: _after(study, runner, trial)])
        except NothingLeft:
            return
        except TrialTaken:
            continue
        except (Stopped, ServerLost):
            with study.kept_in.lock(study.spec.name):
                study.requeue_orphans(given_back=runner.current)
            raise


def _after(study: SweepStudy, runner: TrialRunner, trial: FrozenTrial) -> None:
    """Ends the sweep, for all workers, where nothing but failures is to be expected."""
    if trial.state != TrialState.FAIL:
        return
    trials = counted(study.get_trials(deepcopy=False))
    if any(other.state != TrialState.FAIL and other.intermediate_values for other in trials):
        return
    failed = sum(other.state == TrialState.FAIL for other in trials)
    if runner.fatal_error:
        study.set_user_attr(ENDED, runner.fatal_error)
    elif failed >= min(FAILURES, size(study.spec) or FAILURES):
        reason = trial.user_attrs["reason"]
        study.set_user_attr(ENDED, f"none of the first {failed} trials succeeded; the last one: {reason}")


if __name__ == "__main__":
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sys.exit(main(json.loads(sys.argv[1])))
