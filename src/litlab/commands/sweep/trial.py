"""One trial: its overlay, its fits, what they report, and its result."""

import json
import math
import re
import statistics
import time
from pathlib import Path
from typing import Any, NoReturn

import optuna
import yaml
from optuna.exceptions import TrialPruned, UpdateFinishedTrialError

from litlab.commands.sweep.processes import Stop, Unfinished, last_lines, reason, run, run_project
from litlab.commands.sweep.space import overlay, suggest
from litlab.commands.sweep.spec import SweepSpec
from litlab.commands.sweep.storage import Storage
from litlab.commands.sweep.study import ENDED, SweepStudy
from litlab.runs.folder import RunFolder, write_text
from litlab.util.team import package
from litlab.util.text import nearest

SECONDS_TO_SAVE = 60.0  # for a fit that outlives its command


class TrialFailed(Exception):
    """A trial failed; the message is the reason."""


class TrialLeft(BaseException):
    """A trial was left unfinished and is queued again, as another one."""


class TrialRunner:
    """Run trials, one after another.

    What was done of a trial before its process was killed is in the trial's attributes, and is not done again.

    Args:
        spec: The sweep.
        storage: Where its trials are.
        environment: Variables to set for its fits.
        stop: Whether to stop.
    """

    def __init__(self, spec: SweepSpec, storage: Storage, environment: dict[str, str], stop: Stop) -> None:
        self._spec = spec
        self._storage = storage
        self._environment = environment
        self._stop = stop

    def __call__(self, trial: optuna.Trial) -> list[float]:
        """Run a trial.

        Returns:
            A value for each metric: the mean over the seeds, made worse by some standard deviations.

        Raises:
            TrialPruned: If it was pruned.
            TrialFailed: If a fit failed; the attributes ``reason`` and ``tail`` say how.
            TrialLeft: If the command is to stop, the fit was killed with its fork server, or another command has
                requeued the trial, as this one gave no heartbeat for too long.
        """
        try:
            return self._run(trial)
        except UpdateFinishedTrialError as error:
            raise TrialLeft from error
        except Unfinished as error:
            assert isinstance(trial.study, SweepStudy)
            trial.study.give_back(trial.number, killed=error.killed)
            raise TrialLeft from error

    def _run(self, trial: optuna.Trial) -> list[float]:
        spec = self._spec
        settings = overlay(spec.space, suggest(spec.space, trial))
        if "folder" not in trial.user_attrs:
            trial.set_user_attr("folder", f"trial_{trial.number:04d}")
        folder = spec.folder / trial.user_attrs["folder"]
        heading = f"# Trial {trial.number} of the sweep {spec.name}: an overlay for fit --config."
        write_text(folder / "trial.yaml", f"{heading}\n{yaml.safe_dump(settings, sort_keys=False)}")
        by_seed: list[list[float]] = trial.user_attrs.get("values_by_seed", [])
        while len(by_seed) < spec.seeds:
            by_seed.append(self._fit(trial, folder, seed=len(by_seed)))
            trial.set_user_attr("values_by_seed", by_seed)
        columns = zip(zip(*by_seed, strict=True), spec.directions, strict=True)
        return [_score(values, direction, spec.spread) for values, direction in columns]

    def _fit(self, trial: optuna.Trial, folder: Path, seed: int) -> list[float]:
        """Fit with one seed; return the values of the validation that was best in the first metric."""
        if trial.user_attrs.get("pruned"):
            raise TrialPruned
        log = folder / f"seed_{seed}.log"
        runs: list[str] = trial.user_attrs.get("runs", [])
        arguments = [
            "fit",
            *(f"--config={path}" for path in self._spec.base),
            *flags(self._spec.settings),
            f"--config={folder / 'trial.yaml'}",
            f"--seed_everything={seed}",
            f"--experiment=sweeps/{self._spec.name}/{folder.name}",
            "--test_after_fit=false",
            *self._spec.arguments,
        ]
        if len(runs) > seed and self._can_be_resumed(RunFolder(Path(runs[seed]))):
            config = RunFolder(Path(runs[seed])).config.read_text()  # the sweep has written it: no class is foreign
            packages = set(re.findall(r"class_path: (\w+)", config))
            arguments = ["fit", "--resume", runs[seed], f"--allow_modules={','.join(sorted(packages))}"]
        else:
            log.unlink(missing_ok=True)
        self._run_fit(trial, arguments, log, seed)
        validations = self._validations(trial, seed)
        if not validations:
            reason = f"{self._spec.file}: metric: fit makes no validation; '{self._spec.metrics[0]}' is not known."
            trial.study.set_user_attr(ENDED, reason)
            self._fail(trial, reason)
        sign = -1 if self._spec.directions[0] == "maximize" else 1
        return min(validations.values(), key=lambda values: sign * values[0])

    def _run_fit(self, trial: optuna.Trial, arguments: list[str], log: Path, seed: int) -> None:
        """Run a fit to its end and keep what it reports."""
        problem = ""

        def hear(report: dict[str, Any]) -> str | None:
            nonlocal problem
            if "run" in report:
                trial.set_user_attr("runs", [*trial.user_attrs.get("runs", [])[:seed], report["run"]])
            if "metrics" not in report:
                return None
            problem = problem or self._problem(trial, report)
            return "stop" if problem or self._should_prune(trial, seed, report) else "continue"

        status = run(
            run_project, package(), arguments, log, self._environment,
            hear=hear, stop=self._stop, stall_seconds=60 * self._spec.stall_minutes,
        )  # fmt: skip
        if trial.user_attrs.get("pruned"):
            raise TrialPruned
        if problem or status != 0:
            tail = last_lines(log)
            trial.set_user_attr("tail", tail)
            self._fail(trial, problem or self._reason(status, tail))

    def _problem(self, trial: optuna.Trial, report: dict[str, Any]) -> str:
        """Why a validation is of no use; empty if it is."""
        logged = report["metrics"]
        for metric in self._spec.metrics:
            if metric not in logged:
                hint = nearest(metric, tuple(logged), f": logged are {', '.join(sorted(logged)) or 'none'}.")
                problem = f"{self._spec.file}: metric: fit logs no '{metric}'{hint}"
                trial.study.set_user_attr(ENDED, problem)  # as would all other trials
                return problem
            if not math.isfinite(logged[metric]):
                return f"{metric} is {logged[metric]} in epoch {report['epoch'] + 1}"
        return ""

    def _should_prune(self, trial: optuna.Trial, seed: int, report: dict[str, Any]) -> bool:
        """Keep the metrics of a validation, and return whether to prune the trial.

        A run that continues from a checkpoint repeats the validations after it, with the same optimizer steps.
        """
        values = [report["metrics"][metric] for metric in self._spec.metrics]
        before = self._validations(trial, seed)
        validations = {**before, str(report["step"]): values}
        if seed == 0 and len(validations) > len(before):
            number = sorted(map(int, validations)).index(report["step"])
            self._storage.report(trial, values[0], number)
        trial.set_user_attr("validations", [*trial.user_attrs.get("validations", [])[:seed], validations])
        # The first fit, which every trial has, decides.
        if seed > 0 or len(values) > 1 or not trial.should_prune():
            return False
        trial.set_user_attr("pruned", True)
        return True

    def _validations(self, trial: optuna.Trial, seed: int) -> dict[str, list[float]]:
        """Return the validations of a fit: optimizer step -> value of each metric."""
        all_seeds = trial.user_attrs.get("validations", [])
        return all_seeds[seed] if len(all_seeds) > seed else {}

    def _reason(self, status: int | None, tail: list[str]) -> str:
        if status is None:
            return f"stalled: nothing was reported for {self._spec.stall_minutes:g} minutes; killed"
        return reason(status, tail)

    def _fail(self, trial: optuna.Trial, reason: str) -> NoReturn:
        trial.set_user_attr("reason", reason)
        raise TrialFailed(reason)

    def _can_be_resumed(self, run: RunFolder) -> bool:
        """Return whether a run has a checkpoint, once it has ended: a fit whose command was killed saves its state."""
        deadline = time.monotonic() + SECONDS_TO_SAVE
        while run.state().get("status") == "running" and time.monotonic() < deadline:
            if self._stop.requested:
                raise Unfinished(killed=False)
            time.sleep(0.2)
        return run.config.is_file() and any(run.checkpoints.glob("*.ckpt"))


def flags(settings: dict[str, Any]) -> list[str]:
    """Return settings (YAML path -> value) as flags."""
    return [f"--{path}={value if isinstance(value, str) else json.dumps(value)}" for path, value in settings.items()]


def _score(values: tuple[float, ...], direction: str, spread: float) -> float:
    """Return the mean over the seeds, made worse by some standard deviations."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return statistics.fmean(values) + (spread if direction == "minimize" else -spread) * deviation
