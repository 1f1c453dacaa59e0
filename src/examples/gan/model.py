"""A generative adversarial network: two networks, two optimizers, manual optimization."""

from pathlib import Path

import torch
from lightning import LightningModule
from lightning.pytorch.cli import OptimizerCallable
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy
from torch.nn.functional import interpolate
from torchmetrics.image.fid import FrechetInceptionDistance
from torchvision.utils import make_grid, save_image


class GAN(LightningModule):
    """A generator that makes images, and a discriminator that learns to tell them from real ones.

    They are trained against each other (Goodfellow et al. 2014, arXiv:1406.2661). The Fréchet
    distance between real and generated images (``val/distance``, ``test/distance``) is that of
    their pixels: the Inception network, which it is usually taken from, knows nothing of small grey
    images.

    Args:
        generator: Returns (batch, pixels) for noise of shape (batch, latent).
        discriminator: Returns logits of "real", (batch, 1), for images of shape (batch, channel,
            height, width).
        latent: Number of values from which an image is made.
        image_shape: (channel, height, width) of the images.
        generator_optimizer: Optimizer of the generator.
        discriminator_optimizer: Optimizer of the discriminator.
    """

    def __init__(
        self,
        generator: nn.Module,
        discriminator: nn.Module,
        latent: int = 16,
        image_shape: tuple[int, int, int] = (1, 8, 8),
        generator_optimizer: OptimizerCallable = torch.optim.Adam,
        discriminator_optimizer: OptimizerCallable = torch.optim.Adam,
    ) -> None:
        super().__init__()
        self.save_hyperparameters("latent", "image_shape")
        self.automatic_optimization = False
        self.generator, self.discriminator = generator, discriminator
        self.optimizer_classes = generator_optimizer, discriminator_optimizer
        self.distance = FrechetInceptionDistance(nn.Flatten(), input_img_size=image_shape)

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        networks = self.generator, self.discriminator
        return [
            make(network.parameters())
            for make, network in zip(self.optimizer_classes, networks, strict=True)
        ]

    def forward(self, noise: Tensor) -> Tensor:
        """Return images, (batch, channel, height, width) from 0 to 1, for noise, (batch,
        latent).
        """
        return self.generator(noise).sigmoid().unflatten(1, self.hparams["image_shape"])

    def make_images(self, count: int) -> Tensor:
        """Return images made from random noise."""
        return self(torch.randn(count, self.hparams["latent"], device=self.device))

    def training_step(self, images: Tensor, batch_idx: int) -> None:
        to_generator, to_discriminator = self.optimizers()  # pyright: ignore[reportGeneralTypeIssues]
        made = self.make_images(len(images))

        # The discriminator learns to tell them apart; the gradient ends at the generated images.
        real, fake = self.discriminator(images), self.discriminator(made.detach())
        on_real = cross_entropy(real, torch.ones_like(real))
        on_fake = cross_entropy(fake, torch.zeros_like(fake))
        discriminator_loss = (on_real + on_fake) / 2
        to_discriminator.zero_grad()
        self.manual_backward(discriminator_loss)
        to_discriminator.step()

        # The generator learns to make what it takes for real.
        fake = self.discriminator(made)
        generator_loss = cross_entropy(fake, torch.ones_like(fake))
        to_generator.zero_grad()
        self.manual_backward(generator_loss)
        to_generator.step()

        losses = {
            "train/generator_loss": generator_loss,
            "train/discriminator_loss": discriminator_loss,
        }
        self.log_dict(losses, on_step=False, on_epoch=True, prog_bar=True)

    def validation_step(self, images: Tensor, batch_idx: int, stage: str = "val") -> None:
        self.distance.update(images, real=True)
        self.distance.update(self.make_images(len(images)), real=False)
        self.log(f"{stage}/distance", self.distance, on_step=False, on_epoch=True)

    def test_step(self, images: Tensor, batch_idx: int) -> None:
        self.validation_step(images, batch_idx, "test")

    def draw_samples(self) -> Tensor:
        """Return a picture of 64 generated images, four times as large."""
        return make_grid(interpolate(self.make_images(64), scale_factor=4))

    def on_validation_epoch_end(self) -> None:
        """Show generated images in TensorBoard."""
        for logger in self.loggers:
            if isinstance(logger, TensorBoardLogger):
                logger.experiment.add_image("generated", self.draw_samples(), self.global_step)

    def on_test_epoch_end(self) -> None:
        """Write generated images into the run's folder."""
        folder = self.trainer.log_dir  # on every rank: it is broadcast
        if folder is not None and self.trainer.is_global_zero:
            save_image(self.draw_samples(), Path(folder) / "generated.png")
