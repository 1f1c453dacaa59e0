"""How much each searched setting mattered."""

from typing import TYPE_CHECKING

import numpy as np
from optuna.trial import FrozenTrial

from litlab.sweep.results import completed, parameters
from litlab.sweep.scales import Setting

if TYPE_CHECKING:
    from litlab.sweep.spec import SweepSpec

LEAST, FEW = 10, 50  # completed trials from which on importances say anything, and more than a rough guide
TREES = 100


def importances(spec: "SweepSpec", trials: list[FrozenTrial]) -> tuple[dict[str, dict[str, float]], str]:
    """How much each setting mattered for each metric: mean decrease in impurity of a random forest (Breiman 2001).

    Settings stand on the scale on which they were searched. Optuna's own evaluators were left for reasons: its fANOVA
    takes a logarithmic range for a linear one and leaves out conditional settings, and of some dozens of trials its
    PED-ANOVA gives a third and more to settings that make no difference.

    Args:
        spec: The sweep.
        trials: Its trials.

    Returns:
        By metric and YAML path the share in what the forest explains, and a line that says what that is; {} and the
        reason where importances are not known.
    """
    from sklearn.ensemble import RandomForestRegressor

    done = completed(trials)
    if len(done) < LEAST:
        return {}, f"Importances need {LEAST} completed trials; there are {len(done)}."
    settings = [Setting.of(name, done) for name in parameters(spec, done)]
    blocks = [_columns(setting, done) for setting in settings]
    ends = np.cumsum([block.shape[1] for block in blocks])[:-1]
    shares: dict[str, dict[str, float]] = {}
    for index, metric in enumerate(spec.metrics):
        forest = RandomForestRegressor(TREES, random_state=0)
        forest.fit(np.concatenate(blocks, axis=1), [trial.values[index] for trial in done])
        found = [float(part.sum()) for part in np.split(forest.feature_importances_, ends)]
        if any(found):  # none if all values are the same
            shares[metric] = {setting.name: share for setting, share in zip(settings, found, strict=True)}
    if not shares:
        return {}, "Importances are not known: no setting made a difference."
    rough = "" if len(done) >= FEW else " A rough guide: few trials."
    return shares, f"Share of each setting in what a random forest explains of {len(done)} completed trials.{rough}"


def _columns(setting: Setting, trials: list[FrozenTrial]) -> np.ndarray:
    """A setting as the forest sees it, shape (trial, column): one column for a range, one for each choice.

    A trial without the setting stands in the middle of the others: that it lacks it is its condition's merit.
    """
    having = [setting.name in trial.params for trial in trials]
    places = setting.positions([trial.params[setting.name] for trial in trials if setting.name in trial.params])
    if setting.is_choice:
        centres = setting.ticks(0)[0]
        columns = np.zeros((len(trials), len(centres)))
        columns[having] = np.isclose(places[:, None], centres)
        columns[np.logical_not(having)] = columns[having].mean(axis=0)
        return columns
    column = np.full((len(trials), 1), np.median(places))
    column[having, 0] = places
    return column
