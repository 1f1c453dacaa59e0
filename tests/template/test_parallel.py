"""The overlays for several processes, from the command line: what they train and test, one process
tests alike.
"""

import pytest

from litlab.runs.folder import read_json
from tests.conftest import CONFIGS, PACKAGE, mark_slow
from tests.processes import Python, ranks

SMALL = """
    --model.network.embed_dim=16 --model.network.num_layers=2 --data.batch_size=12
    --trainer.max_epochs=1 --trainer.limit_train_batches=3 --trainer.accelerator=cpu
    --trainer.precision=32-true
"""
PROCESSES = {"fsdp2": 2, "tensor_parallel": 2, "fsdp2_tensor_parallel": 4, "offload": 2}


# tests/litlab/parallel has what the others do
@pytest.mark.parametrize("overlay", mark_slow(PROCESSES, "tensor_parallel"))
def test_one_process_reads_what_several_have_trained(run, short, tmp_path, overlay):
    base, count = CONFIGS / "text.yaml", PROCESSES[overlay]
    own = f"--config={CONFIGS}/with/{overlay}.yaml {SMALL} --trainer.devices={count}".split()
    command = ["-m", PACKAGE, "fit", "--config", base, *short(base), *own]
    started = [Python(*command, cwd=tmp_path, environment=rank) for rank in ranks(count)]
    for process in started:
        assert process.wait() == 0, process.printed()
    folder = tmp_path / "lightning_logs/text/version_0"
    several = read_json(folder / "metrics.json")["test"]
    run("test --run", folder, "--trainer.strategy=auto", "--trainer.devices=1").check()
    alone = read_json(folder / "metrics.json")["test"]
    assert alone == pytest.approx(several, abs=1e-5)
