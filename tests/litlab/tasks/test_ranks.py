"""Two processes evaluate like one, whatever each of them gets."""

import json

import pytest
import torch
from torch import nn

from litlab.tasks import Classifier
from tests.litlab.callbacks.tiny import make_trainer
from tests.litlab.parallel import program
from tests.litlab.tasks.test_forecaster import build
from tests.litlab.tasks.test_metrics import own_metrics
from tests.litlab.tasks.tiny_series import TinySeries

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*No .* samples in targets",
    "ignore:Trying to infer the `batch_size`",
)


def forecasts(folder, **options) -> dict:
    """Metrics of a validation and a test of a fresh model: of 21 windows, two ranks have 11 and
    10.
    """
    model, data = build(2, quantiles=[0.5, 0.9]), TinySeries(windows=21)
    trainer = make_trainer(folder, **options)
    trainer.validate(model, data, verbose=False)
    logged = dict(trainer.callback_metrics)
    trainer.test(model, data, verbose=False)
    logged |= {**trainer.callback_metrics, "radius": model.conformal.radius.mean()}
    return {name: value.item() for name, value in logged.items()}


def classes(folder, samples: int, **options) -> dict:
    """The metrics of the first samples, of which each rank has its own; of one sample one rank has
    none.
    """
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(17, 3, generator=generator)
    labels = torch.randint(3, (17,), generator=generator)
    trainer = make_trainer(folder, **options)
    mine = slice(trainer.global_rank, samples, trainer.world_size)
    # A stream of batches, of which nobody knows how many there are
    batches = zip(inputs[mine].split(4), labels[mine].split(4), strict=True)
    torch.manual_seed(0)
    model = Classifier(nn.Linear(3, 3), num_classes=3, metrics=own_metrics())
    trainer.validate(model, filter(lambda batch: len(batch[0]), batches), verbose=False)
    return {name: value.item() for name, value in trainer.callback_metrics.items()}


def evaluate(folder, **options) -> list[dict]:
    return [
        forecasts(folder, **options),
        classes(folder, 1, **options),
        classes(folder, 17, **options),
    ]


PROGRAM = """
import json, os, sys, warnings
warnings.simplefilter("ignore")
from tests.litlab.tasks.test_ranks import evaluate

results = evaluate(sys.argv[1], devices=2, strategy="ddp", use_distributed_sampler=False)
with open(f"{sys.argv[1]}/{os.environ['LOCAL_RANK']}.json", "w") as file:
    json.dump(results, file)
"""


def test_ranks_with_other_numbers_of_batches_evaluate_like_one(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(PROGRAM)
    program.wait(program.start(script, 2, tmp_path))
    expected = evaluate(tmp_path)
    assert {"val/loss", "test/mase", "test/coverage", "radius"} <= expected[0].keys()
    for rank in (0, 1):
        results = json.loads((tmp_path / f"{rank}.json").read_text())
        for one, result in zip(expected, results, strict=True):
            assert result == pytest.approx(one, rel=1e-5, nan_ok=True)
