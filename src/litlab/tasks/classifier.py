"""Classification with any network that returns logits."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

from litlab.data.class_counts import Balance, training_weights
from litlab.errors import UserError
from litlab.metrics.check import check_metrics
from litlab.metrics.member_metrics import NAMES
from litlab.nn.adapt import adapt_network, without_head
from litlab.nn.ensemble import mean_prediction
from litlab.nn.image_batches import check_image_settings, mixes, views
from litlab.tasks.ensemble import EnsembleModule
from litlab.types import HalfOpenUnitInterval, NonNegativeFloat, NonNegativeInt, PositiveInt

if TYPE_CHECKING:
    Network = nn.Module | Callable[[], nn.Module]
else:
    Network = nn.Module  # what a config describes


class Classifier(EnsembleModule):
    """Train any network with cross-entropy.

    A batch is (inputs, labels): inputs of shape (batch, ...), such as images (batch, channel, height, width), or a dict
    of tensors, which the network gets as keyword arguments; and integer labels of shape (batch,). The network returns
    logits of shape (batch, classes).

    Logged: ``train/loss_step`` every ``trainer.log_every_n_steps``, as a mean over the last steps (at most 50). Once
    per epoch, exact over all samples and ranks: ``loss``, ``acc``, ``f1`` (macro) and `metrics`, for train, val and
    test. Of mixed images (`mixup`, `cutmix`) the class with the larger share counts as correct, and the loss is that of
    both labels by their share: train/acc is below val/acc then.

    With `members`, predictions are the ensemble's and train/loss the mean member's; the test also logs ``member_loss``,
    ``member_acc`` and ``member_ece`` (expected calibration error) of the mean member, and ``ece`` of the ensemble.

    Args:
        network: The network, for example torchvision.models.resnet18 or a class of your own. With images, its first
            convolution is adapted to their channels and its last layer to the number of classes. In Python also a class
            or function that is called to make it.
        members: How many networks are trained on the same batches, each with its own initialisation and as if it were
            alone; their mean probability is the prediction.
        bootstrap: Whether each member has training samples of its own, drawn with replacement.
        vectorize: Whether members are computed at once, by torch.func.vmap, instead of one after the other; null: on a
            GPU, if vmap can take them.
        num_classes: Number of classes. Taken from the data when left out.
        image_shape: Channels, height and width of an image. Taken from the data when left out; stays out where the
            inputs are not images.
        label_smoothing: Share of the target that is spread evenly over all classes (Szegedy et al. 2016,
            arXiv:1512.00567), from 0 to below 1.
        class_weights: Weights of the classes in the training loss: by one over their counts (`even`), or one over the
            square root of them (`sqrt`), with a mean of 1 over the training samples; null: all count alike. Instead of
            `data.balance`.
        mixup: Train on blends of two images and their labels (Zhang et al. 2018, arXiv:1710.09412); the share of one is
            drawn for each batch from Beta(mixup, mixup). 0: off. Usual: 0.2.
        cutmix: Train on images with a rectangle of another (Yun et al. 2019, arXiv:1905.04899), its area from
            Beta(cutmix, cutmix). 0: off. Usual: 1. With mixup, each batch gets one of the two at random.
        flip_tta: Test-time augmentation: evaluation and prediction average the logits of each image and its mirror
            image. More accurate at twice the cost, for images that keep their meaning when mirrored (not digits).
        shift_tta: Test-time augmentation: evaluation and prediction average the logits of each image and of it shifted
            by this many pixels to the upper left and the lower right. 0: off.
        metrics: Further metrics of torchmetrics, or of your own, that return one number, by the name to log them by.
            They are updated with class probabilities, shape (batch, classes), and labels, shape (batch,). A
            `num_classes` that is null is taken from the data.
        **training: optimizer, schedule and param_groups, as of `ExperimentModule`.

    Raises:
        UserError: If there are fewer than two classes, the network can't take the images, or a metric can't be used.
    """

    data_facts = ("num_classes",)
    class_weights: Tensor | None

    def __init__(
        self,
        network: Network,
        *,
        members: PositiveInt = 1,
        bootstrap: bool = False,
        vectorize: bool | None = None,
        num_classes: int | None = None,
        image_shape: tuple[int, int, int] | None = None,
        label_smoothing: HalfOpenUnitInterval = 0.0,
        class_weights: Balance | None = None,
        mixup: NonNegativeFloat = 0.0,
        cutmix: NonNegativeFloat = 0.0,
        flip_tta: bool = False,
        shift_tta: NonNegativeInt = 0,
        metrics: dict[str, Metric] | None = None,
        **training: Any,
    ) -> None:
        super().__init__(**training)
        if num_classes is None:
            raise UserError(
                "model.num_classes: it is not set, and the data does not say it; set it, or give the DataModule a "
                "property num_classes"
            )
        if num_classes < 2:
            raise UserError(f"model.num_classes: {num_classes} is not valid; use data with 2 classes or more")
        networks = self.make_networks(network, members)
        if image_shape is not None:
            networks = [adapt_network(one, image_shape, num_classes) for one in networks]
        self.set_members(networks, bootstrap, vectorize, num_classes)
        if bootstrap and (mixup or cutmix):
            raise UserError("model.bootstrap: mixed images are of two samples; leave it, or mixup and cutmix, out")
        self.label_smoothing = label_smoothing
        # Shape (classes,); known when a fit begins.
        self.register_buffer("class_weights", None if class_weights is None else torch.ones(num_classes))
        of_images = {"mixup": mixup, "cutmix": cutmix, "flip_tta": flip_tta, "shift_tta": shift_tta}
        check_image_settings(of_images, image_shape)
        self._mixes = mixes(num_classes, mixup, cutmix)
        self.flip_tta, self.shift_tta = flip_tta, shift_tta
        check_metrics(metrics or {}, num_classes, taken=NAMES if members > 1 else ())
        counts = MetricCollection(
            {  # cross-entropy has already refused labels out of range
                "acc": MulticlassAccuracy(num_classes, average="micro", validate_args=False),
                "f1": MulticlassF1Score(num_classes, average="macro", validate_args=False),
            }
        )
        self.measure(counts, metrics)

    @property
    def backbone(self) -> nn.ModuleList:
        """Return the network without its last linear layer or convolution, for Lightning's ``BackboneFinetuning``."""
        return nn.ModuleList(part for network in self.networks for part in without_head(network))

    @property
    def couples_samples(self) -> bool:
        """Whether the training loss of a sample depends on the others of its batch, as with mixup and cutmix."""
        return bool(self._mixes)

    def forward(self, inputs: Any) -> Tensor:
        """Return logits, (batch, classes); in evaluation their mean over the views of test-time augmentation.

        Those of an ensemble are (member, batch, classes): `mean_prediction` combines them.
        """
        if self.training or not (self.flip_tta or self.shift_tta):
            return super().forward(inputs)
        seen = list(views(inputs, self.flip_tta, self.shift_tta))
        # In one call: quantization by torch.export wants each layer once in the graph.
        logits = super().forward(torch.cat(seen))
        return logits.unflatten(-2, (len(seen), inputs.shape[0])).mean(dim=-3)

    def on_fit_start(self) -> None:
        """Compare model and data; compute the weights of the classes."""
        super().on_fit_start()
        if self.class_weights is not None:
            data: Any = getattr(self.trainer, "datamodule", None)
            self.class_weights.copy_(training_weights(data, self.hparams["class_weights"]))

    def outcome(self, inputs: Any, target: Tensor, stage: str) -> tuple[Tensor, Tensor, Tensor]:
        """Return the cross-entropy, shape (), logits, shape (batch, classes), and labels, those of larger share."""
        if stage == "train" and self._mixes:
            return self._mixed_outcome(inputs, target)
        logits = self(inputs)
        if stage == "train":
            return self._training_loss(logits, target), mean_prediction(logits.detach()), target
        # Validation and test report the plain cross-entropy, so that runs with other smoothing can be compared.
        logits = mean_prediction(logits)
        return F.cross_entropy(_wide(logits), target), logits, target

    def _mixed_outcome(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        # Drawn from torch's own generators, which `ExactResume` seeds for each batch.
        chosen = int(torch.randint(len(self._mixes), ())) if len(self._mixes) > 1 else 0
        images, shares = self._mixes[chosen](images, labels)
        logits = self(images)
        return self._training_loss(logits, shares), mean_prediction(logits.detach()), shares.argmax(dim=1)

    def _training_loss(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the mean loss, shape (), for labels, shape (batch,), or shares of the classes, (batch, classes).

        Args:
            logits: Shape (batch, classes), or (member, batch, classes).
            target: As above.
        """
        if logits.ndim == 2 and self.class_weights is None:
            return F.cross_entropy(_wide(logits), target, label_smoothing=self.label_smoothing)
        rows = _wide(logits).flatten(0, -2)
        targets = target.repeat(len(rows) // len(target), *(1 for _ in target.shape[1:]))
        losses = F.cross_entropy(rows, targets, label_smoothing=self.label_smoothing, reduction="none")
        losses = losses.view(-1, len(target))  # (member, batch)
        if self.class_weights is not None:
            # Not `weight=`, which divides by the weights of the batch: a rare class would count less in a small one.
            shares = target.is_floating_point()
            losses = losses * (target @ self.class_weights if shares else self.class_weights[target])
        return self.member_loss(losses)

    def test_step(self, batch: tuple[Any, Tensor], batch_idx: int) -> dict[str, Tensor]:
        """Add the batch to the test metrics; callbacks that plot get its logits."""
        inputs, target = batch
        logits = self.test_logits(inputs, target)
        loss = F.cross_entropy(_wide(logits), target)
        self.test_metrics.add(loss, logits, target)
        return {"loss": loss, "logits": logits}

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return class probabilities, shape (batch, classes), for a batch of inputs without labels."""
        return mean_prediction(self(batch)).float().softmax(dim=1)

    def test_predictions(self, predicted: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Do what `test_step` does, for a batch that something else has predicted, such as an exported model.

        Args:
            predicted: What `predict_step` returns: probabilities, shape (batch, classes).
            target: Labels, shape (batch,).
        """
        logits = predicted.float().clamp(min=1e-38).log()  # of the same probabilities; never -inf, as its loss is NaN
        loss = F.cross_entropy(logits, target)
        self.test_metrics.add(loss, logits, target)
        return {"loss": loss, "logits": logits}

    def expected_loss(self, batch: tuple[Any, Tensor]) -> float:
        """Return the loss of equal probabilities for all classes: ln(classes), with or without label smoothing.

        With class weights it is that times the mean weight of the batch.

        Raises:
            UserError: If a label of the batch is not a class.
        """
        classes, low, high = self.hparams["num_classes"], int(batch[1].min()), int(batch[1].max())
        if low < 0 or high >= classes:
            raise UserError(
                f"model.num_classes: {classes} does not fit a training batch with labels from {low} to {high}; "
                f"labels must be from 0 to {classes - 1}"
            )
        weights = 1.0 if self.class_weights is None else float(self.class_weights[batch[1]].mean())
        return weights * math.log(classes)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Let a pre-trained network be rebuilt without a download: the checkpoint holds its weights."""
        hparams = checkpoint.get("hyper_parameters", {})
        network = hparams.get("network")
        if isinstance(network, dict) and network.get("init_args", {}).get("weights") is not None:
            bare = {**network, "init_args": {**network["init_args"], "weights": None}}
            checkpoint["hyper_parameters"] = {**hparams, "network": bare}


def _wide(logits: Tensor) -> Tensor:
    """Return logits in float32, if they are of 16 bits, as with bf16-true."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
