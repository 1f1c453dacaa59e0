"""torch.compile through the command line."""

import torch


def test_checkpoints_are_the_same_with_and_without_compile(fit_images, tmp_path):
    compiled = ["--compile.mode=default", "--compile.backend=eager"]
    assert fit_images("fit", "--experiment=plain", "--trainer.precision=32-true").code == 0
    assert fit_images("fit", "--experiment=compiled", "--trainer.precision=32-true", *compiled).code == 0
    checkpoints = [
        tmp_path / f"lightning_logs/{name}/version_0/checkpoints/last.ckpt" for name in ("plain", "compiled")
    ]
    plain, fast = (torch.load(path, weights_only=True)["state_dict"] for path in checkpoints)
    assert plain.keys() == fast.keys()
    for name in plain:
        torch.testing.assert_close(plain[name], fast[name], rtol=1e-3, atol=1e-4)
    assert fit_images("test", "--ckpt_path", checkpoints[1]).code == 0
    assert fit_images("test", "--ckpt_path", checkpoints[0], *compiled).code == 0
    assert fit_images("fit", "--ckpt_path", checkpoints[0], "--trainer.max_epochs=3", *compiled).code == 0
