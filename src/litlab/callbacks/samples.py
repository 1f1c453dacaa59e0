"""What callbacks that look at a test need: facts of the data module, what was predicted for each
sample, in words too, and samples that are spread over all of it.
"""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from litlab.errors import UserError
from litlab.util.ranks import gather_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMES = {"classification": "class_names", "labels": "label_names"}  # of the outputs
MOST_LETTERS = 14  # of a prediction above a picture


class Outputs(NamedTuple):
    """What a model's outputs mean.

    Attributes:
        task: classification, labels (several may be true) or regression, as ``data.task``.
        names: Name of each class or label.
    """

    task: str
    names: list[str]

    def describe(self, row: Tensor) -> list[str]:
        """Return truth and prediction in words, of a row as of `read_predictions`."""
        return [self._describe(part.tolist()) for part in row[2:].chunk(2)]

    def _describe(self, values: list[float]) -> str:
        if self.task == "classification":
            return self.names[int(values[0])]
        if self.task == "regression":
            return ", ".join(f"{value:.4g}" for value in values)
        names = [name for name, value in zip(self.names, values, strict=True) if value]
        return ", ".join(names) or "none"

    def set_title(self, axes: "Axes", row: Tensor) -> None:
        """Write prediction and truth of a row above axes: only the prediction, with its
        probability, where it is right; both in red where it is wrong; numbers in black.
        """
        truth, title = map(shorten, self.describe(row))
        is_wrong, score = row[:2].tolist()
        has_score = self.task != "regression"
        if has_score:
            title += f" {score:.0%}"
        if is_wrong:
            title += f"\nis {truth}"
        axes.set_title(title, fontsize=8, color="red" if is_wrong and has_score else "black")


def shorten(name: str) -> str:
    return name if len(name) <= MOST_LETTERS else f"{name[: MOST_LETTERS - 1]}…"


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
    # Of what kind the outputs are
    is_regression = isinstance(outputs, dict) and "logits" not in outputs and "predicted" in outputs
    values = from_test_step(
        callback,
        pl_module,
        outputs,
        "predicted" if is_regression else "logits",
        "(batch, classes), or with 'predicted' (batch, numbers)",
    )
    target = batch[1] if isinstance(batch, list | tuple) and len(batch) == 2 else None
    shape = target.shape if isinstance(target, Tensor) else ()
    if is_regression and shape and values.numel() == shape.numel():
        values, target = values.reshape(len(values), -1), target.reshape(len(values), -1)
        shape = target.shape
    is_class = shape == values.shape[:1] and not is_regression
    if values.ndim != 2 or not (is_class or shape == values.shape):
        raise refuse(
            callback,
            f"a test batch must be (inputs, target) and the target {(*values.shape[:1],)} or "
            f"{(*values.shape,)}, as {(*values.shape,)} is predicted; return such batches",
        )

    # What is predicted, and how sure it is
    data: Any = getattr(trainer, "datamodule", None)
    values = values.to(torch.promote_types(values.dtype, torch.float32))
    task = "regression" if is_regression else "classification" if is_class else "labels"
    if is_regression:
        predicted = values
        deviations = values.new_tensor(getattr(data, "target_std", None) or [1.0])
        sure = (values - target).abs() / deviations
    elif is_class:
        sure, predicted = values.softmax(dim=1).max(dim=1, keepdim=True)
        target = target[:, None]
    else:
        probability = values.sigmoid()
        predicted = probability > values.new_tensor(getattr(pl_module, "thresholds", 0.5))
        sure = torch.where(predicted, probability, 1 - probability)

    wrong = predicted != target
    is_wrong = wrong.any(dim=1, keepdim=True)
    score = torch.where(
        is_wrong, (sure * wrong).amax(dim=1, keepdim=True), sure.amin(dim=1, keepdim=True)
    )
    kind, count = NAMES.get(task, ""), values.shape[1]
    names = list(getattr(data, kind, None) or map(str, range(count)))
    if len(names) != count:
        raise refuse(
            callback,
            f"{type(data).__name__}.{kind} has {len(names)} names, and {count} values of a sample "
            "are predicted; make them as many",
        )
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
    callback: Callback, pl_module: LightningModule, outputs: Any, name: str, shape: str
) -> Tensor:
    """Return one of the tensors that ``test_step`` returned.

    Args:
        callback: The callback that needs it.
        pl_module: The model.
        outputs: What its ``test_step`` returned.
        name: Key of the tensor.
        shape: Its shape in words, for the error message.

    Raises:
        UserError: It is not there.
    """
    if not isinstance(outputs, dict) or name not in outputs:
        raise refuse(
            callback,
            f"{type(pl_module).__name__}.test_step must return a dict with '{name}' {shape}; "
            "return it",
        )
    return outputs[name].detach()


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
