"""Classification with any network that returns logits."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

from litlab.errors import UserError
from litlab.nn.adapt import adapt_network, forget_weights
from litlab.nn.ensemble import Ensemble, are_copies, build_networks, mean_prediction, split_members
from litlab.tasks.base import ExperimentModule
from litlab.types import HalfOpenUnitInterval, NonNegativeFloat, NonNegativeInt, PositiveInt
from litlab.util.classes import Balance, weigh_for_loss

if TYPE_CHECKING:
    Network = nn.Module | Callable[[], nn.Module]
else:
    Network = nn.Module  # what a config describes


class Classifier(ExperimentModule):
    """Train any network with cross-entropy.

    A batch is (inputs, labels): inputs of shape (batch, ...), such as images (batch, channel,
    height, width), or a dict of tensors, which the network gets as keyword arguments; and integer
    labels of shape (batch,). The network returns logits of shape (batch, classes).

    For a loss of your own extend `training_loss`.

    Logged: ``train/loss_step``, the loss of a step, every ``trainer.log_every_n_steps``. Once per
    epoch, exact over all samples and ranks: ``loss``, ``acc``, ``f1`` (macro) and `metrics`, for
    train, val and test. Of mixed images (`mixup`, `cutmix`) the class with the larger share counts
    as correct, and the loss is that of both labels by their share: train/acc is below val/acc then.
    With `members`, predictions are the ensemble's and train/loss the mean member's.

    Args:
        network: The network, for example torchvision.models.resnet18 or a class of your own. With
            images, its first convolution is adapted to their channels and its last layer to the
            number of classes. In Python also a class or function that is called to make it.
        members: How many networks are trained on the same batches, each with its own initialisation
            and by the gradient of its own loss; their mean probability is the prediction.
            ``trainer.gradient_clip_val`` is for all gradients together.
        vectorize: Whether training computes members at once, by torch.func.vmap, instead of one
            after the other. Faster on a GPU for small networks, of those that vmap can take, see
            `Ensemble`.
        num_classes: Number of classes. Taken from the data when left out.
        image_shape: Channels, height and width of an image. Taken from the data when left out;
            stays out where the inputs are not images.
        label_smoothing: Share of the target that is spread evenly over all classes (Szegedy et al.
            2016, arXiv:1512.00567), from 0 to below 1.
        class_weights: Weights of the classes in the training loss: by one over their counts
            (`even`), or one over the square root of them (`sqrt`), with a mean of 1 over the
            training samples; null: all count alike. Instead of `data.balance`.
        mixup: Train on blends of two images and their labels (Zhang et al. 2018, arXiv:1710.09412);
            the share of one is drawn for each batch from Beta(mixup, mixup). 0: off. Usual: 0.2.
        cutmix: Train on images with a rectangle of another (Yun et al. 2019, arXiv:1905.04899), its
            area from Beta(cutmix, cutmix). 0: off. Usual: 1. With mixup, each batch gets one of the
            two at random.
        flip_tta: Test-time augmentation: evaluation and prediction average the logits of each image
            and its mirror image. More accurate at twice the cost, for images that keep their
            meaning when mirrored (not digits).
        shift_tta: Test-time augmentation: evaluation and prediction average the logits of each
            image and of it shifted by this many pixels to the upper left and the lower right. 0:
            off.
        metrics: Further metrics of torchmetrics, or of your own, that return one number, by the
            name to log them by. They are updated with class probabilities, shape (batch, classes),
            and labels, shape (batch,). A `num_classes` that is null is taken from the data.
        **training: optimizer, schedule and param_groups, as of `ExperimentModule`.

    Raises:
        UserError: If there are fewer than two classes, or the network can't take the images.
    """

    task = "classification"
    data_facts = ("num_classes", "image_shape")
    loss, output_name = staticmethod(F.cross_entropy), "logits"
    class_weights: Tensor | None
    mix: Any

    def __init__(
        self,
        network: Network,
        *,
        members: PositiveInt = 1,
        vectorize: bool = False,
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
        # The data fills what is left out; from a notebook it may not
        if num_classes is None or num_classes < 2:
            raise UserError(
                f"model.num_classes: {num_classes} is not valid; set it to 2 or more, or give the "
                "DataModule a property num_classes"
            )
        # The block of a config that the network was made from, in Python nothing.
        block = self.hparams.get("network")
        networks = build_networks(network, members, block)
        if image_shape is None and (mixup or cutmix or flip_tta or shift_tta):
            raise UserError(
                "model: mixup, cutmix, flip_tta and shift_tta are for images, and the data has no "
                "image_shape; leave them out"
            )
        # A network of torchvision has 1,000 classes and takes three channels
        if image_shape is not None:
            networks = [adapt_network(member, image_shape, num_classes) for member in networks]
        self.members, self.num_outputs = members, num_classes
        self.network = networks[0] if members == 1 else Ensemble(networks, vectorize)
        if isinstance(block, dict):
            # Rebuilt from a checkpoint without a download
            forget_weights(block.get("init_args", {}))

        self.label_smoothing = label_smoothing
        # Shape (classes,); known when a fit begins. A buffer, so that it moves to the device.
        self.register_buffer(
            "class_weights", None if class_weights is None else torch.ones(num_classes)
        )
        # Steps read settings by their names: one that no step reads is refused, see `Preflight`
        self.mixup, self.cutmix = mixup, cutmix
        self.mix = make_mix(num_classes, mixup, cutmix)
        self.flip_tta, self.shift_tta = flip_tta, shift_tta

        # Without torchmetrics' checks, which wait for the device: cross-entropy has already refused
        # labels out of range.
        rates: dict[str, Metric] = {
            "acc": MulticlassAccuracy(num_classes, average="micro", validate_args=False),
            "f1": MulticlassF1Score(num_classes, average="macro", validate_args=False),
        }
        self.set_metrics(rates, metrics)

    @property
    def networks(self) -> list[Any]:
        """The network, or the members of the ensemble."""
        return split_members(self.network)

    def on_fit_start(self) -> None:
        super().on_fit_start()
        # In Python one network may have been copied for all members
        if are_copies(self.networks):
            raise UserError(
                "model.members: all have the same weights and would learn the same; in Python give "
                "the network's class, or a function that makes it"
            )
        if self.class_weights is not None:
            data: Any = getattr(self.trainer, "datamodule", None)
            self.class_weights.copy_(weigh_for_loss(data, self.hparams["class_weights"]))

    def forward(self, inputs: Any) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return logits, (batch, classes); in evaluation their mean over the views of test-time
        augmentation.

        Those of an ensemble in training are (member, batch, classes).
        """
        # In training it is the data that mirrors and shifts images
        if self.training or not (self.flip_tta or self.shift_tta):
            return super().forward(inputs)
        return average_views(super().forward, inputs, self.flip_tta, self.shift_tta)

    def training_loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the mean training loss of a network, shape (); extend it for a loss of your own.

        Args:
            outputs: Logits, shape (batch, classes).
            target: Labels, shape (batch,), or with mixup and cutmix shares of the classes, (batch,
                classes).
        """
        # Not the mean, which torch divides by the weights of the batch: a rare class would count
        # less in a small one.
        losses = F.cross_entropy(
            outputs,
            target,
            self.class_weights,
            label_smoothing=self.label_smoothing,
            reduction="sum",
        )
        return losses / len(target)

    def training_outputs(self, batch: tuple[Any, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the loss, that of an ensemble is the sum of its members' losses, and probabilities
        and labels.
        """
        # Mixes draw from torch's own generators, which `ExactResume` seeds for each batch.
        mixed = self.mix(*batch) if self.mixup or self.cutmix else batch
        logits, target = self.evaluation_outputs(mixed)
        # Metrics take labels; of shares the larger one counts
        labels = target if target.ndim == 1 else target.argmax(dim=1)
        if self.members == 1:
            loss, predicted = self.training_loss(logits, target), logits
        else:
            # A sum: each member gets the gradient of its own loss, as if it were alone
            loss = torch.stack([self.training_loss(member, target) for member in logits]).sum()
            predicted = mean_prediction(logits)
        return loss, *self.convert(predicted.detach(), labels)

    def convert(self, outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return class probabilities and labels."""
        return outputs.softmax(dim=1), target

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return class probabilities, shape (batch, classes), for a batch of inputs without
        labels.
        """
        return self(batch).float().softmax(dim=1)


def make_mix(
    num_classes: int, mixup: float, cutmix: float
) -> Callable[[Tensor, Tensor], Any] | None:
    """Return torchvision's MixUp or CutMix, or a random choice of the two for each batch; None if
    both are 0.

    It takes images (batch, channel, height, width) and labels (batch,), and returns images and the
    share of each class, (batch, classes).

    Args:
        num_classes: Number of classes.
        mixup: Parameter of the beta distribution of MixUp.
        cutmix: That of CutMix.
    """
    if not (mixup or cutmix):
        return None
    # It takes a third of a second, which most runs need not wait for
    from torchvision.transforms import v2

    # One of the two is drawn for each batch, with equal chances
    kinds = ((v2.MixUp, mixup), (v2.CutMix, cutmix))
    mixes = [kind(alpha=alpha, num_classes=num_classes) for kind, alpha in kinds if alpha]
    return mixes[0] if len(mixes) == 1 else v2.RandomChoice(mixes)


def average_views(
    network: Callable[[Tensor], Tensor], images: Tensor, flip: bool, shift: int
) -> Tensor:
    """Return the mean output, (batch, ...), of a network for images, and for images that are
    mirrored and shifted.

    Args:
        network: Called once, as quantization by torch.export wants each layer once in the graph.
        images: Shape (batch, channel, height, width).
        flip: Whether each view is also seen mirrored.
        shift: Pixels to the upper left, and to the lower right; 0: none. What a shift leaves empty
            is filled with the reflection of the border.
    """
    views = [images]
    if shift:
        # Of an image with a border, the lower right part shows it shifted to the upper left
        padded = F.pad(images, [shift] * 4, mode="reflect")
        height, width = images.shape[2:]
        views += [padded[:, :, 2 * shift :, 2 * shift :], padded[:, :, :height, :width]]
    if flip:
        views += [view.flip(3) for view in views]
    # (view * batch, ...) to (view, batch, ...)
    outputs = network(torch.cat(views)).unflatten(0, (len(views), images.shape[0]))
    return outputs.mean(dim=0)
