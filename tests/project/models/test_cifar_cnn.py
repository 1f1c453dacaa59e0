"""The CIFAR model: its contract, and what is its own."""

import math

from torch.nn import functional as F

from litlab.testing import ModuleContract
from tests.conftest import CONFIGS


class TestCifarCNN(ModuleContract):
    config = CONFIGS / "cifar.yaml"
    settings = (
        "--data.dataset=folder", "--data.path={images}", "--data.batch_size=20",
        "--model.width=16",
    )  # fmt: skip
    loss_at_start = math.log(10)
    overfit_share = 0.5  # labels are smoothed

    def test_the_first_batch_whitens_the_patches_and_images_are_small_in_the_first_half(
        self, build
    ):
        model, data, trainer = build("--trainer.max_epochs=2", "--trainer.limit_train_batches=2")
        assert not model.network.whitened
        seen, sizes = [], []
        whiten = model.network.whiten
        model.network.whiten = lambda images: (seen.append(images.clone()), whiten(images))
        model.network.register_forward_pre_hook(lambda _, inputs: sizes.append(inputs[0].shape[-1]))
        trainer.fit(model, data)
        assert sizes == [24] * 2 + [32] * 2
        assert model.network.whitened
        responses = F.conv2d(seen[0], model.network.filters[:12]).transpose(0, 1).flatten(1)
        covariance = responses @ responses.T / responses.shape[1]
        variances = covariance.diagonal()
        assert covariance.sub(variances.diag()).abs().max() < 1e-2
        # Directions of little variance stay below 1, because of epsilon
        assert variances.max() < 1.01
