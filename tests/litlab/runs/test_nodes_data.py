"""Two nodes that prepare data: on a disk that both see, and on disks of their own."""

import json

from tests.processes import Python, ranks

PROGRAM = """
import json, os, sys, time
from pathlib import Path
import torch
from lightning.pytorch import LightningModule, Trainer
from litlab.data import ExperimentData
from litlab.data.metadata import Metadata
from litlab.util.team import use_package

node = int(os.environ["NODE_RANK"])


class Data(ExperimentData):
    def __init__(self, where):
        super().__init__()
        self.where = Path(where)

    def cache_folder(self):
        return self.where / "numbers"

    def fill_cache(self, folder):
        time.sleep(0.2)
        (folder / "numbers").write_text("1 2")
        with (self.where / "filled.txt").open("a") as log:
            log.write(f"{node} ")

    def open(self, stage):
        self.sizes = {"train": 2}
        assert (self.cache_folder() / "numbers").is_file()
        return Metadata()

    def samples(self, split):
        return torch.zeros(2, 1)


class Model(LightningModule):
    def training_step(self, batch, batch_idx):
        return self.layer(batch).sum()

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters())


use_package("auks")
seen = {}
for name, folder in {"shared": "shared", "own": f"own {node}"}.items():
    trainer = Trainer(accelerator="cpu", strategy="ddp", devices=1, num_nodes=2, max_steps=1, logger=False,
                      enable_checkpointing=False, use_distributed_sampler=False, enable_progress_bar=False)
    trainer.fit(Model(), Data(folder))
    seen[name] = trainer.global_step
Path(f"seen {node}.json").write_text(json.dumps(seen))
"""


def test_each_disk_is_filled_once(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    nodes = [{**of_rank, "NODE_RANK": node, "LOCAL_RANK": 0} for node, of_rank in enumerate(ranks(2))]
    processes = [Python(tmp_path / "program.py", cwd=tmp_path, environment=node, merge=True) for node in nodes]
    for process in processes:
        assert process.wait(60) == 0, process.printed()
    filled = {name: (tmp_path / name / "filled.txt").read_text().split() for name in ("shared", "own 0", "own 1")}
    assert len(filled["shared"]) == 1
    assert (filled["own 0"], filled["own 1"]) == (["0"], ["1"])
    for node in range(2):
        seen = json.loads((tmp_path / f"seen {node}.json").read_text())
        assert seen == {"shared": 1, "own": 1}
