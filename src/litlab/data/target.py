"""What is to be predicted, decided once: one class of several, numbers, or labels of which several
may be true.

A `Target` says how it is read from a table, what the loss gets, and what files of predictions,
served answers and baselines hold.
"""

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import compress
from typing import Any, ClassVar, Literal

import numpy as np
from lightning.pytorch.utilities import rank_zero_info

from litlab.data.files import Cells, Frame
from litlab.data.serving import BATCH, TensorSpec
from litlab.errors import UserError
from litlab.metrics import classification_scores, label_scores, regression_scores
from litlab.util.classes import sort_classes
from litlab.util.text import some

Task = Literal["classification", "regression", "labels"]
Scores = dict[str, float]
TARGETS: dict[str, Any] = {}  # the kinds of targets by their tasks
_LARGEST = 1e16  # of a standard deviation, whose square float32 still holds
# As `read_texts` returns categories: 1.0 is "1" by then, and TRUE is "True"
_YES, _NO = ("1", "True", "yes", "y"), ("0", "False", "no", "n")


@dataclass(frozen=True)
class Target(ABC):
    """What is to be predicted.

    Args:
        columns: Columns of the file that hold it.
    """

    task: ClassVar[str]  # left out, the name of the class
    model: ClassVar[str]  # name of the model class that learns it, for messages
    guess: ClassVar[str]  # name of the best guess that does not look at the inputs
    columns: list[str]

    def __init_subclass__(cls) -> None:
        # Not inherited: a team's subclass of `Numbers` would take the place of `Numbers` itself
        cls.task = vars(cls).get("task", cls.__name__)
        TARGETS[cls.task] = cls

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """Names of the outputs: classes, columns of numbers, or labels."""

    @abstractmethod
    def encode(self, rows: Frame) -> np.ndarray:
        """Return what the loss gets of some rows, as `read_columns` returned them."""

    @abstractmethod
    def spec(self) -> TensorSpec:
        """Return the output of a deployed model."""

    def tabulate(self, outputs: np.ndarray, prefix: str = "") -> dict[str, Any]:
        """Return the columns of a file of predictions; here one for each name.

        Args:
            outputs: Of shape (row, name).
            prefix: What the names of classes begin with.
        """
        return {prefix + name: values for name, values in zip(self.names, outputs.T, strict=True)}

    @abstractmethod
    def answer(self, output: np.ndarray) -> dict[str, Any]:
        """Return what is answered to a request, from the output for one sample, (name,)."""

    def _name(self, values: np.ndarray) -> dict[str, float]:
        # As JSON: float32 has seven digits, and 0.1 would be answered as 0.10000000149011612
        return {
            name: round(float(value), 6) for name, value in zip(self.names, values, strict=True)
        }

    def score(self, predicted: np.ndarray, truth: np.ndarray) -> Scores:
        """Return the test metrics of what a baseline predicts, as `encode` gives the truth."""
        measure = label_scores if self.task == "labels" else classification_scores
        return measure(predicted, truth)

    @property
    def summary(self) -> str:
        """What it is, in a few words."""
        return f"{len(self.names)} {'labels' if self.task == 'labels' else 'classes'}"

    def score_guess(self, train: np.ndarray, test: np.ndarray) -> dict[str, Scores]:
        """Score what is best without looking at the inputs, by its name.

        Args:
            train: Targets of the training samples, as `encode` returns them.
            test: Those of the test.
        """
        # Classes are whole numbers, whose mean would be none of them
        has_classes = self.task == "classification"
        guess = np.bincount(train).argmax() if has_classes else train.mean(0)
        # The same guess for each row of the test
        return {self.guess: self.score(np.broadcast_to(guess, test.shape), test)}

    def state_dict(self) -> dict[str, Any]:
        """Return the target as a checkpoint keeps it, for `load_target`."""
        return {"task": self.task, **asdict(self)}


@dataclass(frozen=True)
class Classes(Target):
    """One class of several.

    Args:
        class_names: The classes, in the order of their numbers.
    """

    task, model, guess = "classification", "Classifier", "most frequent class"
    class_names: list[str]

    @property
    def names(self) -> list[str]:
        return self.class_names

    def encode(self, rows: Frame) -> np.ndarray:
        """Return the number of each row's class, int64 of shape (row,)."""
        import pandas as pd

        # A class that training lacks gets -1; `fit_classes` has left such rows out
        index = pd.Index(self.class_names, dtype="string")
        return index.get_indexer(rows[self.columns[0]]).astype("int64")

    def spec(self) -> TensorSpec:
        meaning = "probability of each class, in the order of class_names"
        return TensorSpec("probabilities", "float32", (BATCH, len(self.class_names)), meaning)

    def tabulate(self, outputs: np.ndarray, prefix: str = "") -> dict[str, Any]:
        best = outputs.argmax(1)  # outputs are probabilities
        names = [self.class_names[index] for index in best.tolist()]
        columns = {"prediction": names, "probability": outputs.max(1)}
        classes = [prefix + name for name in self.class_names]
        return columns | dict(zip(classes, outputs.T, strict=True))

    def answer(self, output: np.ndarray) -> dict[str, Any]:
        named, name = self._name(output), self.class_names[int(output.argmax())]
        return {"class": name, "probability": named[name], "probabilities": named}


@dataclass(frozen=True)
class Numbers(Target):
    """One number or several.

    Args:
        mean: Mean of each column in the training rows.
        std: Standard deviation of each.
    """

    task, model, guess = "regression", "Regressor", "mean"
    mean: list[float]
    std: list[float]

    @property
    def names(self) -> list[str]:
        return self.columns

    def encode(self, rows: Frame) -> np.ndarray:
        """Return the numbers, float64 of shape (row, column): float32 has no digits for the
        differences of numbers far from zero.
        """
        return rows[self.columns].to_numpy("float64", copy=True)

    def spec(self) -> TensorSpec:
        meaning = "`columns` of the target, in the units of the file"
        return TensorSpec("predicted", "float64", (BATCH, len(self.columns)), meaning)

    def tabulate(self, outputs: np.ndarray, prefix: str = "") -> dict[str, Any]:
        names = [f"predicted_{name}" for name in self.columns]
        return dict(zip(names, outputs.T, strict=True))

    def answer(self, output: np.ndarray) -> dict[str, Any]:
        return {"predicted": dict(zip(self.columns, output.tolist(), strict=True))}

    def score(self, predicted: np.ndarray, truth: np.ndarray) -> Scores:
        return regression_scores(predicted, truth, self.columns)

    @property
    def summary(self) -> str:
        return f"numbers ({', '.join(self.columns)})"


@dataclass(frozen=True)
class Labels(Target):
    """Labels of which several may be true, or none.

    Args:
        label_names: The labels, in the order of the outputs.
        separator: What stands between them where one column holds all; None where each has a
            column of its own.
    """

    task, model, guess = "labels", "MultilabelClassifier", "frequency of each"
    label_names: list[str]
    separator: str | None = None

    @property
    def names(self) -> list[str]:
        return self.label_names

    def encode(self, rows: Frame) -> np.ndarray:
        """Return 1 for each label that is true, else 0, float32 of shape (row, label)."""
        # A column for each label; else one column with texts such as "red, round"
        if self.separator is None:
            return rows[self.columns].isin(_YES).to_numpy("float32")
        sets = [split_labels(cell, self.separator) for cell in rows[self.columns[0]]]
        return np.array([[name in found for name in self.label_names] for found in sets], "f4")

    def spec(self) -> TensorSpec:
        meaning = (
            "of each label its probability, and 1 if it counts as true, in order of label_names"
        )
        return TensorSpec("labels", "float32", (BATCH, len(self.label_names), 2), meaning)

    def tabulate(self, outputs: np.ndarray, prefix: str = "") -> dict[str, Any]:
        # As of `spec`: probabilities, and whether each is above its threshold
        values, is_true = outputs[..., 0], outputs[..., 1] > 0
        columns: dict[str, Any] = {
            "prediction": [" ".join(compress(self.label_names, row)) for row in is_true]
        }
        for index, name in enumerate(self.label_names):
            columns[f"label_{name}"] = is_true[:, index].astype(int)
            columns[f"probability_{name}"] = values[:, index]
        return columns

    def answer(self, output: np.ndarray) -> dict[str, Any]:
        is_true = compress(self.label_names, output[:, 1] > 0)
        return {"labels": list(is_true), "probabilities": self._name(output[:, 0])}


def load_target(state: dict[str, Any]) -> Target:
    """Return what `Target.state_dict` describes."""
    return TARGETS[state["task"]](**{name: state[name] for name in state if name != "task"})


# How each kind of target is found in the training rows


def fit_numbers(rows: Frame, columns: list[str], where: str) -> Numbers:
    """Measure the numbers of the training rows.

    Raises:
        UserError: They are constant, or can't be scaled.
    """
    for name in columns:
        if reason := find_useless(rows[name]):
            raise UserError(
                f"{where}: nothing can be learned from column {name!r}, which {reason} in the "
                "training rows; leave it out, or use another one"
            )
    return Numbers(columns, rows[columns].mean().tolist(), rows[columns].std(ddof=0).tolist())


def find_useless(numbers: Cells) -> str:
    """Return why nothing can be learned from numbers, of which some may be missing; empty if
    something can.
    """
    # Rounding may leave a constant column with a tiny deviation instead of 0
    if not numbers.max() > numbers.min():
        return "is constant"
    with np.errstate(over="ignore"):  # an overflow is inf
        is_fit = 1 / _LARGEST < numbers.std(ddof=0) < _LARGEST
    return "" if is_fit else "has a standard deviation below 1e-16 or above 1e16"


def fit_classes(rows: Frame, column: str, split: np.ndarray, where: str) -> Classes:
    """Find the classes of the training rows; warn of rows of other classes.

    Args:
        rows: All rows, their classes as texts.
        column: Its name.
        split: The split of each row, str of shape (row,); rows of other classes are left out of it.
        where: What messages call the file.

    Raises:
        UserError: There are fewer than two classes, or all rows of a split are of other ones.
    """
    # The classes are those of the training rows alone
    labels = rows[column].to_numpy(object)
    names = sort_classes(labels[split == "train"])
    if len(names) < 2:
        raise UserError(
            f"{where}: all training samples are of the class {names[0]!r} (column {column!r}); add "
            "some of another class, or set --data.target to another column"
        )

    # Rows to evaluate of other classes have no number, so they can't be scored
    is_known = np.isin(labels.astype(str), names)
    for name in ("val", "test"):
        in_split = split == name
        unknown = in_split & ~is_known
        if not unknown.any():
            continue
        counts = sorted(Counter(labels[unknown]).items())
        shown = some([f"{label!r} ({count:,})" for label, count in counts])
        if unknown.sum() == in_split.sum():
            raise UserError(
                f"{where}: training has no class of the {name} samples: {shown}; write the classes "
                "alike, or add training samples of them"
            )
        rank_zero_info(
            f"warning: {where}: training lacks classes of the {name} samples, {shown}: "
            f"{unknown.sum():,} of {in_split.sum():,} are left out"
        )
        split[unknown] = ""  # in place: the caller's rows are left out, too
    return Classes([column], names)


def fit_labels(rows: Frame, columns: list[str], separator: str | None, where: str) -> Labels:
    """Find the labels of the training rows.

    Args:
        rows: The training rows, their cells as texts.
        columns: A column for each label, or the one that holds all.
        separator: As of `Labels`.
        where: What messages call the file.

    Raises:
        UserError: A cell of a label's column is neither yes nor no, or a label is always the same.
    """
    # A column for each label, of yes and no; or one column, whose labels are collected
    if separator is None:
        for name in columns:
            odd = rows[name][~rows[name].isin([*_YES, *_NO])]
            if len(odd):
                raise UserError(
                    f"{where}: row {odd.index[0]}: label {name!r} is {odd.iloc[0]!r}; write 1 or "
                    "0, or set data.label_separator where one column holds all labels"
                )
        target = Labels(columns, columns)
    else:
        found = [split_labels(cell, separator) for cell in rows[columns[0]]]
        target = Labels(columns, sort_classes(set().union(*found)), separator)
        if not target.names:  # all cells are empty
            raise UserError(
                f"{where}: column {columns[0]!r} holds no label in the training rows; fill it, or "
                "set --data.target to another one"
            )

    # A label that is always true, or never, has no loss to learn from
    share = target.encode(rows).mean(0)
    same = [name for name, value in zip(target.names, share, strict=True) if value in (0, 1)]
    if same:
        raise UserError(
            f"{where}: nothing can be learned of labels that are the same in all training samples "
            f"({some(same)}); leave them out of data.target, or of its cells"
        )
    return target


def split_labels(cell: Any, separator: str) -> set[str]:
    """Return the labels that a cell holds; none of an empty one."""
    # A missing cell is NaN or NA: no label is true
    texts = cell.split(separator) if isinstance(cell, str) else []
    return {text.strip() for text in texts} - {""}
