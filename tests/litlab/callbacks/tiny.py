"""The smallest model and data that the callbacks work with."""

import warnings

import torch
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Tiny(LightningModule):
    """Classify 8x8 images into 4 classes, with a network that has batch normalisation."""

    coverage = 0.9  # that the intervals of a forecaster aim at

    def __init__(self, network: nn.Module | None = None) -> None:
        super().__init__()
        self.network = network or nn.Sequential(
            nn.Conv2d(3, 4, 3),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(4 * 36, 4),
        )

    def forward(self, images):
        return self.network(images)

    def training_step(self, batch, batch_idx):
        loss = nn.functional.cross_entropy(self(batch[0]), batch[1])
        self.log("train/loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val/acc", (self(batch[0]).argmax(1) == batch[1]).float().mean())

    def test_step(self, batch, batch_idx):
        logits = self(batch[0])
        loss = nn.functional.cross_entropy(logits, batch[1])
        self.log("test/loss", loss)
        return {"loss": loss, "logits": logits}

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


class TinyData(LightningDataModule):
    """`samples` random images for each stage, in batches of `batch_size`; the last batch is
    smaller.
    """

    def __init__(self, samples: int = 10, batch_size: int = 4, classes: int = 4) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        images = torch.randn(samples, 3, 8, 8, generator=generator)
        labels = torch.randint(classes, (samples,), generator=generator)
        self.dataset = TensorDataset(images, labels)
        self.batch_size = batch_size

    def train_dataloader(self):
        return DataLoader(self.dataset, batch_size=self.batch_size)

    val_dataloader = test_dataloader = train_dataloader


def make_trainer(folder, **options) -> Trainer:
    """Return a CPU trainer that prints nothing and leaves nothing but what is asked for; small data
    needs none of Lightning's advice, until the test ends.
    """
    advice = ".*does not have many workers|.*logging interval|Checkpoint directory"
    warnings.filterwarnings("ignore", advice)
    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    defaults = {
        "accelerator": "cpu",
        "max_epochs": 1,
        "log_every_n_steps": 1,
        **dict.fromkeys(quiet, False),
    }
    return Trainer(default_root_dir=folder, **(defaults | options))


def fit(folder, model, *callbacks, data=None, resume=None, **options) -> Trainer:
    """Fit a model with callbacks, and return the trainer."""
    trainer = make_trainer(folder, callbacks=[*callbacks], **options)
    trainer.fit(model, data or TinyData(), ckpt_path=resume, weights_only=True)
    return trainer


def evaluate(folder, model, data, *callbacks, **options) -> Trainer:
    """Test a model, twice, as what callbacks keep starts anew with each test; FOLDER is the run's.

    Instead of a model its answer will do: a function of a batch.
    """
    options = {"logger": CSVLogger(folder, "", ""), **options}
    trainer = make_trainer(folder, callbacks=[*callbacks], **options)
    if not isinstance(model, LightningModule):
        answer, model = model, Tiny()
        model.test_step = lambda batch, batch_idx: answer(batch)
    for _ in range(2):
        trainer.test(model, data, verbose=False)
    return trainer


def are_equal(states, others) -> bool:
    """Return whether two dicts of tensors are equal to the last bit."""
    return states.keys() == others.keys() and all(
        torch.equal(value, others[key]) for key, value in states.items()
    )
