"""Two agents of torchrun, one of whose workers is killed in the middle of an epoch."""

import socket
from pathlib import Path

import torch

from litlab.runs.folder import RunFolder, read_json
from tests.litlab.conftest import CONFIGS
from tests.processes import Python, ranks

FIT = [
    "fit", "--config", CONFIGS / "table.yaml", "--trainer.accelerator=cpu", "--trainer.strategy=ddp",
    "--trainer.num_nodes=2", "--trainer.devices=1", "--trainer.max_epochs=2", "--trainer.enable_progress_bar=false",
    "--checkpoint.every_n_train_steps=2", "--allow_modules=tests.litlab.runs.elastic", "--resume=auto",
    "--trainer.callbacks=[{class_path: tests.litlab.runs.elastic.KillOnce}]",
]  # fmt: skip


def test_killed_worker_restarts_all_and_the_run_ends_as_one_that_was_not_killed(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
    nodes = [{**of_rank, "NODE_RANK": node, "LOCAL_RANK": 0} for node, of_rank in enumerate(ranks(2))]
    processes = [Python("-m", "auks", *FIT, cwd=whole, environment=node, merge=True) for node in nodes]
    for process in processes:
        assert process.wait() == 0, process.printed()

    endpoint = f"127.0.0.1:{ranks(2)[0]['MASTER_PORT']}"
    program = ["-m", "tests.litlab.runs.elastic", 2, endpoint, *FIT]
    agents = [Python(*program, cwd=killed, environment={"KILL": "1 1 5"}, merge=True) for _ in range(2)]
    printed = "".join(agent.communicate(100)[0] for agent in agents)
    assert [agent.returncode for agent in agents] == [0, 0], printed
    assert (killed / "killed").exists()
    assert printed.count("the run is stopped") == 1, printed
    assert f"error: rank 1 on {socket.gethostname()} died: the run is stopped." in printed
    assert "--resume auto: the newest run is table/version_0." in printed
    assert read_json(RunFolder(run(killed)).status)["status"] == "finished"
    before, after = (torch.load(last(folder), weights_only=True) for folder in (whole, killed))
    assert after["global_step"] == before["global_step"] == 16
    for part in ("state_dict", "optimizer_states"):
        assert_same(before[part], after[part])


def run(folder: Path) -> Path:
    [path] = (folder / "lightning_logs/table").iterdir()
    return path


def last(folder: Path) -> Path:
    return run(folder) / "checkpoints/last.ckpt"


def assert_same(one: object, other: object) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=0)
