"""One trial: its fits as processes of their own, and the callback by which they report to the
study.
"""

import math
import os
import signal
from pathlib import Path
from typing import Any

import optuna
import psutil
from lightning.pytorch import Callback, LightningModule, Trainer
from optuna.exceptions import TrialPruned

from litlab.cli.argv import read_command_line
from litlab.cli.trust import list_modules
from litlab.commands.sweep.space import make_overlay
from litlab.commands.sweep.spec import PRUNERS, Spec, build_part
from litlab.commands.sweep.study import allow_experimental, open_storage, queue_again
from litlab.errors import UserError
from litlab.runs.children import explain_failure, run_fit
from litlab.runs.folder import read_json, write_json, write_text
from litlab.runs.results import measure_spread
from litlab.util.text import nearest
from litlab.util.yaml import dump_config


class TrialFailed(Exception):
    """A fit failed; the message says why."""


class Stopped(Exception):
    """A signal has stopped a fit, which can be resumed; `code` is 128 and the signal's number."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self.code = code


def run_trial(spec: Spec, trial: optuna.Trial, processes: list[int]) -> float:
    """Fit with each seed; return the mean over the seeds.

    `processes` are this one, first, and those on which it depends: when one is gone, the fits save
    their state and end.
    """
    point = {path: suggest(trial, path, entry.distribution) for path, entry in spec.space.items()}
    history = [*queue_again.retry_history(trial.study.trials[trial.number]), trial.number]
    # Made of a number only: the database may be another's
    folder = spec.folder / f"trial_{int(history[0]):04d}"
    trial.set_user_attr("folder", folder.name)
    write_text(folder / "trial.yaml", dump_config(make_overlay(spec.space, point)))
    values = []
    for seed in range(spec.seeds):
        job = {
            "study": spec.name,
            "trial": trial.number,
            "pruner": spec.pruner,
            "processes": processes,
            "reports": seed == 0,  # the first fit, which every trial has, is compared
        }
        values.append(_fit(spec, folder, seed, job))
    over_seeds = measure_spread(values)
    trial.set_user_attr("deviation", over_seeds.deviation)
    return over_seeds.mean


def suggest(trial: optuna.Trial, path: str, distribution: Any) -> Any:
    """Return the value of a trial, by the method for the distribution: of ``FloatDistribution`` it
    is ``suggest_float``, which takes the same names.
    """
    kind = type(distribution).__name__.removesuffix("Distribution").lower()
    return getattr(trial, f"suggest_{kind}")(path, **vars(distribution))


def _fit(spec: Spec, trial: Path, seed: int, job: dict[str, Any]) -> float:
    # The callback that reports is one more config, the last: no other can replace it.
    folder = trial / f"seed_{seed}"
    report = {
        "class_path": f"{__name__}.ReportTrial",
        "init_args": {"folder": str(folder), "metric": spec.metric},
    }
    write_json(folder / "job.json", job)
    write_text(folder / "report.yaml", dump_config({"trainer": {"callbacks+": [report]}}))
    arguments = [
        *spec.flags(),
        f"--config={trial / 'trial.yaml'}",
        f"--seed_everything={seed}",
        f"--experiment=sweeps/{spec.name}/{trial.name}/{folder.name}",
        "--test_after_fit=false",
        *spec.arguments,
        f"--config={folder / 'report.yaml'}",
    ]

    # A fit that was stopped goes on; how it ends is known from its code and its files.
    log = folder / "fit.log"
    try:
        line = read_command_line(["fit", *arguments])
        code = run_fit(folder, arguments, list_modules(line), log)
        validations: Any = read_json(folder / "validations.json").values()
    except UserError as error:  # a file is damaged
        raise TrialFailed(str(error)) from error
    if code > 128:
        raise Stopped(code)
    if code:
        raise TrialFailed(explain_failure(code, log))

    # Its value is its best validation.
    if (folder / "pruned").exists():
        raise TrialPruned
    finite = list(filter(math.isfinite, validations))
    if not finite:
        raise TrialFailed(f"{spec.metric}: no validation was finite, or there was none")
    return max(finite) if spec.direction == "maximize" else min(finite)


class ReportTrial(Callback):
    """Reports each validation of a trial to its sweep, and ends the training where the sweep prunes
    the trial.

    A fit whose sweep is gone saves its state and ends. In a run that is resumed by hand it does
    nothing.
    """

    def __init__(self, folder: str, metric: str) -> None:
        self._folder = Path(folder)
        self._metric = metric
        self._processes: list[int] = []
        self._trial: optuna.Trial | None = None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # In a run that is resumed by hand, the sweep's process is not there.
        job = read_json(self._folder / "job.json")
        if not trainer.is_global_zero or not job or not psutil.pid_exists(job["processes"][0]):
            return
        self._processes = job["processes"]
        if trainer.ckpt_path is None:  # what a fit has left that failed
            for name in ("validations.json", "pruned"):
                (self._folder / name).unlink(missing_ok=True)
        if job["reports"]:
            with allow_experimental():
                pruner = build_part(PRUNERS, job["pruner"], "pruner")
                storage = open_storage(self._folder.parents[1])
            name = job["study"]
            study = optuna.load_study(study_name=name, storage=storage, pruner=pruner)
            number = storage.get_trial_id_from_study_id_trial_number(
                storage.get_study_id_from_name(name), job["trial"]
            )
            self._trial = optuna.Trial(study, number)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if not all(map(psutil.pid_exists, self._processes)):
            self._processes = []
            os.kill(os.getpid(), signal.SIGTERM)  # the state is saved as after any other

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking or trainer.state.fn != "fit":
            return
        # reduces: on every rank
        logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
        if self._metric not in logged:
            hint = nearest(self._metric, logged, f"; name one of {', '.join(logged)}")
            raise UserError(f"metric: fit logs no '{self._metric}'{hint}")
        stop = bool(self._processes) and self._report(trainer.global_step, logged[self._metric])
        if trainer.strategy.reduce_boolean_decision(stop, all=False):
            trainer.should_stop = True

    def _report(self, step: int, value: float) -> bool:
        """Keep the value after some optimizer steps; return whether to prune. A resumed run may
        repeat some.
        """
        validations = read_json(self._folder / "validations.json")
        validations[str(step)] = value
        write_json(self._folder / "validations.json", validations)
        if self._trial is None:
            return False
        self._trial.report(value, sorted(map(int, validations)).index(step))
        prune = self._trial.should_prune()
        if prune:
            write_text(self._folder / "pruned", "")
        return prune
