"""What callbacks that look at a test need: facts of the data module, what was predicted for each
sample, in words too, and samples that are spread over all of it.
"""

import math
from itertools import compress
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from litlab.errors import UserError
from litlab.metrics import WIDEST
from litlab.util.ranks import gather_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMES = {"classification": "class_names", "labels": "label_names"}  # of the outputs
RED = "#e5484d"  # that is read on a light page and on a dark one
MOST_LETTERS = 14  # of a prediction above a picture


class Outputs(NamedTuple):
    """What a model's outputs mean.

    Attributes:
        task: classification, labels (several may be true) or regression, as ``data.task``.
        names: Name of each class or label.
    """

    task: str
    names: list[str]

    def describe_row(self, row: Tensor) -> list[str]:
        """Return truth and prediction in words, of a row as of `read_predictions`."""
        return [self._describe(part.tolist()) for part in row[2:].chunk(2)]

    def _describe(self, values: list[float]) -> str:
        if self.task == "classification":
            return self.names[int(values[0])]
        if self.task == "labels":
            return ", ".join(compress(self.names, values)) or "none"
        return ", ".join(f"{value:.4g}" for value in values)

    def set_title(self, axes: "Axes", row: Tensor) -> None:
        """Write a prediction and its probability above axes, in red and with the truth where it is
        wrong; of numbers both, in black.
        """
        truth, title = (
            text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 1]}…"
            for text in self.describe_row(row)
        )
        is_wrong, color = bool(row[0]), "black"
        if self.task != "regression":
            title += f" {row[1]:.0%}"
            color = RED if is_wrong else color
        if is_wrong:
            title += f"\nis {truth}"
        axes.set_title(title, fontsize=8, color=color)


def read_predictions(
    callback: Callback, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any
) -> tuple[Outputs, Tensor]:
    """Return what was predicted for a batch of a test, and what is true.

    The model's ``test_step`` returns a dict with ``logits``, (batch, classes) or (batch, label), or
    with ``predicted``, numbers (batch, target). A batch is ``(inputs, target)``: classes (batch,),
    labels (batch, label) of 0 and 1, or numbers. Labels are predicted where their probability is
    above the model's ``thresholds``, or else one half. Names are the data module's.

    Returns:
        What the outputs mean; and a row for each sample, (batch, 2 + 2 * values), left on its
        device: 1 if the prediction is wrong, else 0; how sure it is, of several labels the surest
        of the wrong ones or else the least sure, or the error of numbers, the largest one in
        standard deviations of its target; the truth; and the prediction. These are a class, 0 or 1
        for each label, or numbers.

    Raises:
        UserError: Model and batch are of another kind.
    """
    values = from_test_step(callback, pl_module, outputs, "logits", "predicted").to(WIDEST)
    target = batch[1] if isinstance(batch, list | tuple) and len(batch) == 2 else None
    if not isinstance(target, Tensor):
        raise refuse(callback, "a test batch must be (inputs, target); return such batches")

    # Of what kind they are; one logit for a class of 0 or 1 is that of a label
    data: Any = getattr(trainer, "datamodule", None)
    if "logits" not in outputs:
        task, values = "regression", values.reshape(len(values), -1)
    else:
        task = "classification" if target.ndim == 1 and values.shape[-1] > 1 else "labels"
    if target.ndim == 1:
        target = target[:, None]
    count, kind = values.shape[-1], NAMES.get(task, "")
    names = list(getattr(data, kind, None) or map(str, range(count)))
    shape = (len(values), 1 if task == "classification" else count)
    if values.ndim != 2 or target.shape != shape or len(names) != count:
        raise refuse(
            callback,
            f"{(*values.shape,)} is predicted for targets {(*target.shape,)} with {len(names)} "
            "names; predict (batch, outputs) for targets (batch, outputs) or (batch,), and give "
            "a name for each output",
        )

    # What is predicted, and how sure it is
    if task == "regression":
        predicted = values
        deviations = getattr(data, "target_std", None) or [1.0]
        sure = (values - target).abs() / values.new_tensor(deviations)
    elif task == "classification":
        sure, predicted = values.softmax(dim=1).max(dim=1, keepdim=True)
    else:
        probability = values.sigmoid()
        predicted = probability > values.new_tensor(getattr(pl_module, "thresholds", 0.5))
        sure = torch.where(predicted, probability, 1 - probability)
    wrong = predicted != target
    is_wrong = wrong.any(dim=1, keepdim=True)
    score = torch.where(is_wrong, (sure * wrong).amax(1, keepdim=True), sure.amin(1, keepdim=True))
    return Outputs(task, names), torch.cat([is_wrong, score, target, predicted], dim=1)


def refuse(callback: Callback, problem: str) -> UserError:
    """Return the error of a callback that can't show a model or data.

    Args:
        callback: The callback.
        problem: What is wrong, and what to do other than to leave the callback out.
    """
    name = type(callback).__name__
    return UserError(f"{name}: {problem}, or remove {name} from trainer.callbacks")


def data_with(callback: Callback, trainer: Trainer, *names: str) -> Any:
    """Return the data module, which has all that a callback needs of it.

    Args:
        callback: The callback that needs it.
        trainer: The trainer that has the data module.
        *names: The attributes that it needs.

    Raises:
        UserError: The data module lacks one.
    """
    data = getattr(trainer, "datamodule", None)
    for name in names:
        if not hasattr(data, name):
            raise refuse(
                callback, f"{type(data).__name__} has no '{name}'; add it to the data module"
            )
    return data


def from_test_step(
    callback: Callback, pl_module: LightningModule, outputs: Any, *names: str
) -> Tensor:
    """Return the first of some tensors that ``test_step`` returned.

    Args:
        callback: The callback that needs it.
        pl_module: The model.
        outputs: What its ``test_step`` returned.
        *names: Keys of the tensors.

    Raises:
        UserError: None is there.
    """
    for name in names:
        if isinstance(outputs, dict) and name in outputs:
            return outputs[name].detach()
    wanted = " or ".join(map(repr, names))
    raise refuse(
        callback,
        f"{type(pl_module).__name__}.test_step must return a dict with {wanted}; return it",
    )


def gather_batches(trainer: Trainer, batches: list[Tensor]) -> Tensor:
    """Return the rows of all batches of all ranks, on the CPU. Call it on every rank, on those
    without a batch, too.
    """
    return gather_rows(trainer, torch.cat(batches) if batches else torch.empty(0))


def spread_evenly(count: int, length: int) -> Tensor:
    """Return the positions of so many of a row of things, the first and the last among them."""
    return torch.linspace(0, length - 1, max(0, min(count, length))).round().long()


class EvenPick:
    """Choose samples of each batch so that those of all batches are spread evenly over a test.

    Called with a tensor of each batch, it returns positions in it, int64 of shape (chosen,), often
    none; fewer in all than `count` if a batch has fewer samples than are due. Of a test of unknown
    length they are the first samples.

    Args:
        count: Number of samples of the whole test.
        trainer: The trainer that tests.
    """

    def __init__(self, count: int, trainer: Trainer) -> None:
        self.count = count
        self.batches = sum(trainer.num_test_batches)
        self.batch = self.picked = 0

    def __call__(self, samples: Tensor) -> Tensor:
        self.batch += 1
        share = 1.0 if math.isinf(self.batches) else self.batch / self.batches
        chosen = spread_evenly(int(share * self.count + 0.5) - self.picked, len(samples))
        self.picked += len(chosen)
        return chosen.to(samples.device, non_blocking=True)
