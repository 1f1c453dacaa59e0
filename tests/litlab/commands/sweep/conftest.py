"""A sweep of tiny fits, in an empty folder."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
import pytest
import yaml

from tests.conftest import Outcome
from tests.litlab.conftest import CONFIGS

CONTENT = """
base: {base}/series.yaml
settings:
  data.dataset: csv
  data.path: {series}
  data.targets: [load]
  data.val_fraction: 0.2
  trainer.max_epochs: 2
  trainer.limit_train_batches: 1
  trainer.log_every_n_steps: 1
  trainer.accelerator: cpu
  trainer.callbacks: []
  trainer.limit_val_batches: 1
  trainer.num_sanity_val_steps: 0
  vram: null
metric: val/mse
trials: 2
sampler:
  name: tpe
  seed: 0
pruner: none
space:
  model.hidden_size: {{low: 8, high: 32, step: 8}}
  model.optimizer.lr: {{low: 0.001, high: 0.1, log: true}}
"""


@dataclass
class Sweep:
    """A sweep file, and what is done with it."""

    run: Callable[..., Outcome]
    folder: Path
    content: dict[str, Any]

    @property
    def kept(self):
        return self.folder / "lightning_logs" / "sweeps" / "tiny"

    def write(self, **content) -> Path:
        self.content |= content
        file = self.folder / "tiny.yaml"
        file.write_text(yaml.safe_dump(self.content, sort_keys=False))
        return file

    def start(self, *arguments, **content) -> Outcome:
        self.write(**content)
        return self.run("sweep", "--config", "tiny.yaml", *arguments)

    def trials(self):
        url = f"sqlite:///{self.kept / 'study.db'}"
        return optuna.load_study(study_name="tiny", storage=url).trials


@pytest.fixture
def sweep(run, tmp_path, series) -> Sweep:
    """A sweep of fits of a second."""
    return Sweep(run, tmp_path, yaml.safe_load(CONTENT.format(base=CONFIGS, series=series)))
