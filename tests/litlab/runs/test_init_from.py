"""`fit --init_from`: the weights of another run."""

import torch

from litlab.runs.folder import RunFolder
from tests.litlab.conftest import CONFIGS
from tests.litlab.runs.conftest import CONFIG, error


def test_weights_of_another_run(run, folder, settings):
    fit = ["fit", "--config", CONFIG, *settings, "--trainer.max_epochs=1", "--test_after_fit=false"]
    begun = run(*fit, "--init_from=series", "--model.optimizer.lr=1e-12")
    assert begun.code == 0, begun.err
    assert "6 of the model's 6 tensors match" in begun.err
    new = RunFolder(folder.path.with_name("version_1"))
    best = next(folder.checkpoints.glob("epoch=*.ckpt"))
    assert f"init_from: {best.relative_to(folder.path.parents[2])}" in new.config.read_text()
    there = torch.load(best, weights_only=True)["state_dict"]
    here = torch.load(new.checkpoints / "last.ckpt", weights_only=True)["state_dict"]
    for name, weight in there.items():
        torch.testing.assert_close(here[name], weight, atol=1e-8, rtol=0)

    part = run(*fit, f"--init_from={best}", "--model.hidden_size=9")
    assert part.code == 0, part.err
    assert "1 of the model's 6 tensors match" in part.err
    assert "Not there, or of another shape, so left as initialised: network.layers.0.weight" in part.err


def test_weights_of_something_else(run, folder, texts):
    done = run(
        "fit", "--config", CONFIGS / "text.yaml", "--data.dataset=csv", f"--data.path={texts}", "--init_from=last"
    )
    assert "none of the 6 tensors of lightning_logs/series/version_0/checkpoints/epoch=" in error(done)
    assert not (folder.path.parents[1] / "text").exists()
    torch.save({"epoch": 3}, "epoch.pt")
    done = run("fit", "--config", CONFIG, "--init_from=epoch.pt")
    assert "init_from: epoch.pt has no weights; give a checkpoint or a file with a state_dict" in error(done)
