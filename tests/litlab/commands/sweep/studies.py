"""Sweeps as people run them, without the training: real Optuna studies of analytic functions."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import NSGAIISampler, TPESampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from litlab.commands.sweep.space import Entry
from litlab.commands.sweep.spec import SweepSpec

STEPS = 5  # validations of a trial

optuna.logging.set_verbosity(optuna.logging.ERROR)


def search_range(low: float, high: float, step: float | None = None, log: bool = False, **when: Any) -> Entry:
    """An entry that is a range."""
    if isinstance(low, int):
        return Entry(IntDistribution(low, int(high), log, int(step or 1)), **when)
    return Entry(FloatDistribution(low, high, log, step), **when)


def choice(choices: dict[Any, Any], **when: Any) -> Entry:
    """An entry that is a choice."""
    return Entry(CategoricalDistribution(list(choices)), choices, **when)


SPACE = {
    "model.width": search_range(32, 256, step=32),
    "model.optimizer": choice({"muon": {"class_path": "CifarMuon"}, "adamw": {"class_path": "AdamW"}}),
    "model.optimizer.lr": search_range(1e-4, 1e-1, log=True),
    "model.optimizer.init_args.momentum": search_range(0.5, 0.99, when={"model.optimizer": ["muon"]}),
    "data.flip": choice({True: True, False: False, None: None}),
}


def spec(folder: Path, **fields: Any) -> SweepSpec:
    """A sweep for `study`, with other values of some fields."""
    given: dict[str, Any] = {"metrics": ["val/acc"], "directions": ["maximize"], "trials": 24, "hours": None}
    given |= {"file": Path("cifar.yaml"), "name": "cifar", "folder": folder, "base": [], "settings": {}}
    given |= {"sampler": {"name": "tpe"}, "pruner": {"name": "median"}, "seeds": 1, "spread": 1.0}
    return SweepSpec(**given | {"stall_minutes": 30.0, "space": SPACE} | fields)


def create(sweep: SweepSpec) -> optuna.Study:
    """The empty study of a sweep, in memory."""
    several = len(sweep.metrics) > 1
    return optuna.create_study(
        study_name=sweep.name,
        directions=[StudyDirection[direction.upper()] for direction in sweep.directions],
        sampler=NSGAIISampler(seed=0, population_size=8) if several else TPESampler(seed=0),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=4),
    )


def study(sweep: SweepSpec, trials: int = 24) -> optuna.Study:
    """A study of `trials` trials: pruned, failed, with a conditional setting, over seeds if the sweep has them."""
    made = create(sweep)
    made.optimize(lambda trial: _objective(sweep, trial), n_trials=trials, catch=(RuntimeError,))
    return made


def ended(
    made: optuna.Study,
    params: dict[str, Any],
    distributions: dict[str, BaseDistribution],
    values: list[float] | None = None,
    state: TrialState = TrialState.COMPLETE,
    reported: dict[int, float] | None = None,
    start: datetime | None = None,
    minutes: float = 1.0,
    **attributes: Any,
) -> int:
    """Adds a trial as it stands; returns its number.

    Args:
        made: The study.
        params: Settings.
        distributions: What was searched.
        values: Outcome of a completed trial.
        state: Its state.
        reported: Value by validation, numbered from 0.
        start: When it was started.
        minutes: How long it took.
        attributes: User attributes.
    """
    start = start or datetime(2026, 3, 1, 12)
    trial = FrozenTrial(
        number=-1,
        trial_id=-1,
        state=state,
        value=None,
        values=values,
        datetime_start=None if state == TrialState.WAITING else start,
        datetime_complete=start + timedelta(minutes=minutes) if state.is_finished() else None,
        params=params,
        distributions=distributions,
        user_attrs=attributes,
        system_attrs={},
        intermediate_values=reported or {},
    )
    made.add_trial(trial)
    return len(made.get_trials(deepcopy=False)) - 1


def _objective(sweep: SweepSpec, trial: optuna.Trial) -> list[float]:
    width = trial.suggest_int("model.width", 32, 256, step=32)
    optimizer = trial.suggest_categorical("model.optimizer", ["muon", "adamw"])
    rate = trial.suggest_float("model.optimizer.lr", 1e-4, 1e-1, log=True)
    momentum = 0.9
    if optimizer == "muon":
        momentum = trial.suggest_float("model.optimizer.init_args.momentum", 0.5, 0.99)
    flip = trial.suggest_categorical("data.flip", [True, False, None])
    run = sweep.folder / f"trial_{trial.number:04d}"
    trial.set_user_attr("runs", [str(run / f"version_{seed}") for seed in range(sweep.seeds)])
    if rate > 0.07:
        trial.set_user_attr("reason", "out of memory: <1.5 GiB> wanted & none left")
        trial.set_user_attr("tail", ["Epoch 1", f"RuntimeError: <b>trial {trial.number}</b>"])
        raise RuntimeError("out of memory")
    noise = np.random.default_rng(trial.number)
    accuracy = 0.9 - 0.08 * (np.log10(rate) + 2.5) ** 2 - 0.0001 * (256 - width) - 0.1 * (momentum - 0.9) ** 2
    accuracy -= 0.01 * (optimizer == "adamw") + 0.005 * (flip is None)
    value = accuracy if sweep.directions[0] == "maximize" else 1 - accuracy
    start = 0.1 if sweep.directions[0] == "maximize" else 2.3
    if len(sweep.metrics) == 1:
        for step in range(STEPS):
            trial.report(value + (start - value) * 0.4 ** (step + 1) + 0.004 * noise.standard_normal(), step)
            if trial.should_prune():
                raise optuna.TrialPruned
    fits = [[value + 0.004 * noise.standard_normal(), width * 0.02, rate] for _ in range(sweep.seeds)]
    fits = [fit[: len(sweep.metrics)] for fit in fits]
    trial.set_user_attr("values_by_seed", fits)
    return np.mean(fits, axis=0).tolist()
