"""One trial: its overlay, its fits, what they report, and its result."""

import contextlib
import json
import math
import signal
import statistics
import time
from pathlib import Path
from typing import Any, NoReturn

import optuna
import yaml
from optuna.exceptions import TrialPruned, UpdateFinishedTrialError

from litlab.cli.named_modules import modules_named
from litlab.runs.folder import NO_CHECKPOINT, RunFolder, write_text
from litlab.sweep.space import overlay, suggest
from litlab.sweep.spec import SweepSpec
from litlab.sweep.trial_launcher import TrialLauncher
from litlab.util.nearest import nearest
from litlab.util.team import package

TAIL = 20  # lines of a log that are kept of a failed trial
SECONDS_TO_SAVE = 60.0  # for a fit that outlives its worker


class TrialFailed(Exception):
    """A trial failed; the message is the reason."""


class TrialTaken(BaseException):
    """This worker was silent for so long that another one has taken its trial up."""


class TrialRunner:
    """Runs trials, one after another.

    What an earlier worker had done of a trial when it was killed is in the trial's attributes and is not done again.

    Args:
        spec: The sweep.
        launcher: The fork server.
    """

    def __init__(self, spec: SweepSpec, launcher: TrialLauncher) -> None:
        self._spec = spec
        self._launcher = launcher
        self.current: int | None = None  # id of the trial that runs, or ran last
        self.fatal_error = ""  # why all trials would fail as one did

    def __call__(self, trial: optuna.Trial) -> list[float]:
        """Runs a trial.

        Returns:
            A value for each metric: the mean over the seeds, made worse by some standard deviations.

        Raises:
            TrialPruned: If it was pruned.
            TrialFailed: If a fit failed; the attributes ``reason`` and ``tail`` say how.
            TrialTaken: If another worker has taken it.
        """
        self.current = trial._trial_id
        try:
            return self._run(trial)
        except UpdateFinishedTrialError as error:
            raise TrialTaken from error

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
        return [_worse(values, direction, spec.spread) for values, direction in columns]

    def _fit(self, trial: optuna.Trial, folder: Path, seed: int) -> list[float]:
        """The fit with one seed; returns the values of the validation that was best in the first metric."""
        if trial.user_attrs.get("pruned"):
            raise TrialPruned
        log = folder / f"seed_{seed}.log"
        runs: list[str] = trial.user_attrs.get("runs", [])
        run = RunFolder(Path(runs[seed])) if len(runs) > seed else None
        resumed = False
        if run is not None and run.config.is_file():
            self._wait_for_end(run)
            resumed = self._run_fit(trial, ["fit", "--resume", str(run.path), *self._trusted(folder, seed)], log, seed)
        if not resumed:
            log.unlink(missing_ok=True)
            self._run_fit(trial, self._arguments(folder, seed), log, seed)
        validations = self._validations(trial, seed)
        if not validations:
            metric = self._spec.metrics[0]
            self.fatal_error = f"{self._spec.file}: metric: fit makes no validation, '{metric}' is not known."
            self._fail(trial, self.fatal_error)
        sign = -1 if self._spec.directions[0] == "maximize" else 1
        return min(validations.values(), key=lambda values: sign * values[0])

    def _arguments(self, folder: Path, seed: int) -> list[str]:
        return [
            "fit",
            *(f"--config={path}" for path in self._spec.base),
            *flags(self._spec.settings),
            f"--config={folder / 'trial.yaml'}",
            f"--seed_everything={seed}",
            f"--experiment=sweeps/{self._spec.name}/{folder.name}",
            "--test_after_fit=false",
            *self._spec.arguments,
        ]

    def _trusted(self, folder: Path, seed: int) -> list[str]:
        """The flag by which the run's own config may name what the sweep's files name."""
        modules = modules_named(self._arguments(folder, seed))
        return [f"--allow_modules={','.join(sorted(modules))}"] if modules else []

    def _run_fit(self, trial: optuna.Trial, arguments: list[str], log: Path, seed: int) -> bool:
        """Runs a fit to its end and keeps what it reports; False for a run to resume that has no checkpoint yet."""
        problem, status = "", None
        with contextlib.closing(
            self._launcher.run(package(), arguments, log, 60 * self._spec.stall_minutes)
        ) as messages:
            for message in messages:
                if "run" in message:
                    trial.set_user_attr("runs", [*trial.user_attrs.get("runs", [])[:seed], message["run"]])
                elif "metrics" in message:
                    problem = problem or self._problem(message)
                    stop = bool(problem) or self._report(trial, seed, message)
                    self._launcher.answer("stop" if stop else "go on")
                else:
                    status = message["exit"]
        if trial.user_attrs.get("pruned"):
            raise TrialPruned
        tail = log.read_text(errors="replace").splitlines()[-TAIL:] if log.is_file() else []
        if status == 2 and "--resume" in arguments and any(NO_CHECKPOINT in line for line in tail):
            return False
        if problem or status != 0:
            trial.set_user_attr("tail", tail)
            self._fail(trial, problem or self._reason(status, tail))
        return True

    def _problem(self, message: dict[str, Any]) -> str:
        """Why a validation is of no use; empty if it is."""
        logged = message["metrics"]
        for metric in self._spec.metrics:
            if metric not in logged:
                hint = nearest(metric, tuple(logged), f": logged are {', '.join(sorted(logged)) or 'none'}.")
                self.fatal_error = f"{self._spec.file}: metric: fit logs no '{metric}'{hint}"
                return self.fatal_error
            if not math.isfinite(logged[metric]):
                return f"{metric} is {logged[metric]} in epoch {message['epoch'] + 1}"
        return ""

    def _report(self, trial: optuna.Trial, seed: int, message: dict[str, Any]) -> bool:
        """Keeps the metrics of a validation; returns whether to prune the trial.

        A run that goes on from a checkpoint repeats validations that came after it: their optimizer steps tell them.
        """
        values = [message["metrics"][metric] for metric in self._spec.metrics]
        validations = {**self._validations(trial, seed), str(message["step"]): values}
        others = trial.user_attrs.get("validations", [])
        trial.set_user_attr("validations", [*others[:seed], validations])
        number = sorted(map(int, validations)).index(message["step"])
        if seed > 0:
            return False  # a trial is pruned by its first fit, which every trial has
        if len(values) > 1:
            trial.storage.set_trial_intermediate_value(trial._trial_id, number, values[0])
            return False
        if number not in trial.storage.get_trial(trial._trial_id).intermediate_values:
            trial.report(values[0], number)
        if trial.should_prune():
            trial.set_user_attr("pruned", True)
            return True
        return False

    def _validations(self, trial: optuna.Trial, seed: int) -> dict[str, list[float]]:
        """What the validations of a fit came to: optimizer step -> value of each metric."""
        all_seeds = trial.user_attrs.get("validations", [])
        return all_seeds[seed] if len(all_seeds) > seed else {}

    def _reason(self, status: int | None, tail: list[str]) -> str:
        if status is None:
            return f"no sign of life for {self._spec.stall_minutes:g} minutes: killed"
        if status < 0:
            hint = ": perhaps the memory is used up" if status == -signal.SIGKILL else ""
            return f"killed by {signal.Signals(-status).name}{hint}"
        if status in (128 + signal.SIGTERM, 128 + signal.SIGINT, 128 + signal.SIGHUP):
            return f"stopped from outside by {signal.Signals(status - 128).name}"
        lines = [line.strip() for line in tail if line.strip()]
        errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        return errors[-1] if errors else f"exit code {status}: {lines[-1] if lines else 'it printed nothing'}"

    def _fail(self, trial: optuna.Trial, reason: str) -> NoReturn:
        trial.set_user_attr("reason", reason)
        raise TrialFailed(reason)

    def _wait_for_end(self, run: RunFolder) -> None:
        """Waits for a fit whose worker was killed: it saves its state before it goes."""
        deadline = time.monotonic() + SECONDS_TO_SAVE
        while run.state().get("status") == "running" and time.monotonic() < deadline:
            self._launcher.look()
            time.sleep(0.2)


def flags(settings: dict[str, Any]) -> list[str]:
    """Settings (YAML path -> value) as flags."""
    return [f"--{path}={value if isinstance(value, str) else json.dumps(value)}" for path, value in settings.items()]


def _worse(values: tuple[float, ...], direction: str, spread: float) -> float:
    """The mean over seeds, made worse by some standard deviations."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return statistics.fmean(values) + (spread if direction == "minimize" else -spread) * deviation
