import pytest
from optuna import pruners, samplers

from litlab.commands.sweep.samplers import make_pruner, make_sampler


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("tpe", samplers.TPESampler),
        ("random", samplers.RandomSampler),
        ("grid", samplers.RandomSampler),
        ("cmaes", samplers.CmaEsSampler),
        ("nsga2", samplers.NSGAIISampler),
    ],
)
def test_samplers_by_name(name, made):
    assert type(make_sampler({"name": name, "seed": 1})) is made


@pytest.mark.parametrize(
    ("name", "made"),
    [("median", pruners.MedianPruner), ("hyperband", pruners.HyperbandPruner), ("none", pruners.NopPruner)],
)
def test_pruners_by_name(name, made):
    assert type(make_pruner({"name": name})) is made
