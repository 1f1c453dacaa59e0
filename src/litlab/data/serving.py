"""What a checkpoint knows of its data, and what stands between a deployed model and those who ask
it.
"""

import reprlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from litlab.data.files import FileFormat, Frame, read_cells
from litlab.errors import UserError

BATCH, TIME = "batch", "time"  # names of axes whose size is free


@dataclass(frozen=True)
class Metadata:
    """What is known of a data set; each kind of data has its own subclass."""

    fixed: ClassVar[tuple[str, ...]] = ()  # what a trained model depends on

    def state_dict(self) -> dict[str, Any]:
        """Return the record as a checkpoint keeps it: plain values by their names."""
        return dict(vars(self))

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> Self:
        """Return the record of a checkpoint."""
        return cls(**state)

    def check_same(self, other: Any) -> None:
        """Refuse data that a model with this metadata was not trained for.

        Args:
            other: The `Metadata` of that data.

        Raises:
            UserError: They differ in one of `fixed`.
        """
        for name in self.fixed:
            trained, found = getattr(self, name), getattr(other, name)
            if trained != found:
                # `reprlib` cuts long lists, of a thousand classes say
                mine, theirs = reprlib.repr(trained), reprlib.repr(found)
                raise UserError(
                    f"data: the checkpoint was trained with {name} {mine}, here it is {theirs}; "
                    "use data and settings like those of its run"
                )


@dataclass(frozen=True)
class TensorSpec:
    """An input or output of a deployed model.

    Args:
        name: Its name.
        dtype: Type of its values, as numpy calls it.
        shape: Size of each axis; a name where any size is allowed.
        what: What it is, in a few words.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    what: str

    def as_dict(self) -> dict[str, Any]:
        """Return the entry of a manifest."""
        return asdict(self)


@dataclass(frozen=True)
class Sample:
    """What was sent in a request, read.

    Args:
        inputs: The raw inputs, in their order; the first axis of each is the batch.
        context: What the answer repeats, besides what the outputs say.
        warnings: What was said of it as it was read.
    """

    inputs: Sequence[np.ndarray]
    context: dict[str, Any] = field(default_factory=dict)
    warnings: Sequence[str] = ()


class Serving(nn.Module, ABC):
    """Turns raw inputs into a model's, and its predictions into answers, as part of an exported
    graph; and what is sent to a server into raw inputs.

    A DataModule's ``serving()`` returns one, made from the metadata of its checkpoint; for an
    export `load` makes it again. What `encode` and `decode` do is traced by torch.export, so they
    compute with tensors alone: a branch may not depend on a value or a free size.

    Args:
        inputs: The raw inputs, in the order in which `encode` takes them. The first axis of each is
            the batch.
        outputs: The answers, in the order in which `decode` returns them.
        most: Largest size of each named axis besides the batch.
    """

    kind: ClassVar[str] = "files"  # the form of the page: images, texts, series, rows or files
    field: ClassVar[str]  # what is sent is called so
    metadata_type: ClassVar[type[Metadata]]
    # Texts of the metadata that are files of an export, such as tokenizer.json, by their names
    text_files: ClassVar[Mapping[str, str]] = {}
    metadata: Any = None

    def __init__(
        self,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        most: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__()
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.most = dict(most or {})

    def register_numbers(self, dtype: torch.dtype = torch.float64, **values: Any) -> None:
        """Keep numbers that the graph computes with."""
        # Buffers move to a device with the model, and are constants of an exported graph. float64,
        # as float32 has no digits for the differences of numbers far from zero
        for name, numbers in values.items():
            self.register_buffer(name, torch.as_tensor(numbers, dtype=dtype))

    @property
    def names(self) -> list[str]:
        """Names of the inputs."""
        return [spec.name for spec in self.inputs]

    # ---- inside of the graph

    @abstractmethod
    def encode(self, *raw: Tensor) -> Any:
        """Return what the model's ``predict_step`` takes, from the raw inputs."""

    def decode(self, predicted: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs, from what ``predict_step`` returned; here that itself, the only
        one.
        """
        return (predicted,)

    # ---- between the graph and the rest of the DataModule

    def raw(self, batch: Any) -> tuple[Tensor, ...]:
        """Return the raw inputs of a batch as the DataModule's ``samples`` or ``open_input`` gave
        it; here those of their names.
        """
        inputs = batch if isinstance(batch, dict) else batch[0]
        return tuple(inputs[name] for name in self.names)

    def predicted(self, outputs: Sequence[Tensor]) -> Tensor:
        """Return what ``predict_step`` would have returned, from the outputs: the inverse of
        `decode`.
        """
        return outputs[0]

    def target(self, batch: Any) -> Any:
        """Return what a test compares the predictions of a batch with; here its ``target``, or its
        second part.
        """
        return batch["target"] if isinstance(batch, dict) else batch[1]

    def unit(self) -> Tensor:
        """Return what one unit of an output is for a comparison: the standard deviation of numbers,
        1 for a probability.
        """
        # Of classes and labels the list of deviations is empty
        return torch.tensor(getattr(self.metadata, "target_std", None) or 1.0)

    # ---- between the graph and who asks

    def read(self, sent: Any) -> Sample:
        """Read what was sent: a value of JSON, a text, or the bytes of a file.

        Raises:
            UserError: It can't be used.
        """
        raise UserError(f"serve: {type(self).__name__} has no read(); see docs/deploy.md")

    def sample_request(self) -> Any:
        """Return an example of a request. It is made up, as the data may be confidential."""
        name = type(self).__name__
        raise UserError(f"serve: {name} has no read() and sample_request(); see docs/deploy.md")

    def stack(self, samples: Sequence[Sample]) -> list[np.ndarray]:
        """Return the inputs of several requests as one batch."""
        inputs = [sample.inputs for sample in samples]
        return [np.concatenate(arrays) for arrays in zip(*inputs, strict=True)]

    def answer(self, outputs: Mapping[str, np.ndarray], context: dict[str, Any]) -> dict[str, Any]:
        """Return what is answered, plain values.

        Args:
            outputs: The outputs for a `Sample`, by their names; the first one is finite.
            context: That of the sample.
        """
        (row,) = next(iter(outputs.values()))  # a batch of one
        return self.metadata.target.answer(row) | context

    def example(self) -> tuple[Tensor, ...]:
        """Return raw inputs that are made up, two of a batch."""
        sample = self.read(self.sample_request())
        # Two, as torch.export makes a constant of an axis of size 1
        return tuple(map(torch.from_numpy, self.stack([sample, sample])))

    # ---- what an export holds

    def facts(self) -> dict[str, Any]:
        """Return the metadata as a manifest has it, plain values: a caller has to know them, and
        `load` takes them.
        """
        facts = self.metadata.state_dict()
        return {name: fact for name, fact in facts.items() if name not in self.text_files}

    def files(self) -> dict[str, str]:
        """Return the text files by their names."""
        return {file: getattr(self.metadata, name) for name, file in self.text_files.items()}

    @classmethod
    def load(cls, facts: Mapping[str, Any], files: Mapping[str, str]) -> Self:
        """Return what `facts` and `files` describe."""
        texts = {name: files[file] for name, file in cls.text_files.items()}
        make: Any = cls  # a subclass takes its metadata
        return make(cls.metadata_type.load({**facts, **texts}))


def read_rows(
    sent: Any, metadata: Any, setting: str, most: int, optional: str | None = None
) -> Frame:
    """Read rows that were sent: the text of a CSV file, or a list of objects.

    Args:
        sent: The rows.
        metadata: Its columns are what each object must have; what else there is is left out.
        setting: What messages call them.
        most: Most rows.
        optional: A column that is read if the first row has it.

    Returns:
        The cells, as of `read_cells`.
    """
    import pandas as pd

    # A text is read like a file, objects like a frame
    content: Any = sent.encode() if isinstance(sent, str) else sent
    if not content or not isinstance(content, bytes | list):
        raise UserError(
            f"{setting}: it must be a list of objects, one for each row, or the text of a CSV file"
        )
    # Counted before anything is parsed, which may take long; a CSV file has a row of names
    is_file = isinstance(content, bytes)
    count = len(content.splitlines()) - 1 if is_file else len(content)
    if count > most:
        raise UserError(f"{setting}: it has {count:,} rows; send at most {most:,}")
    # In objects each column must be there, so that a misspelt name is not taken for a missing value
    if not is_file:
        columns = [column.name for column in metadata.columns if column.name != optional]
        for number, row in enumerate(content):
            where = f"{setting}[{number}]"
            if not isinstance(row, dict):
                raise UserError(f"{where}: it must be an object, such as {{...}}")
            lacking = [column for column in columns if column not in row]
            if lacking:
                raise UserError(
                    f"{where}: it has no {lacking[0]!r}; null stands for a value that is missing"
                )
        if optional in content[0]:
            columns.append(optional)
        # As objects: where others are missing, 3 would become 3.0
        content = pd.DataFrame(content, columns=columns, dtype=object)
    return read_cells(content, metadata.form, setting=setting)


def make_times(zone: str | None, form: FileFormat, count: int = 1, freq: str = "D") -> list[str]:
    """Return times that are made up, written as those of the training file.

    Args:
        zone: That of the column.
        form: How its cells are written.
        count: How many.
        freq: Time from one to the next, a pandas offset alias.
    """
    import pandas as pd

    # With UTC offsets where the training file has some: others are refused
    times = pd.date_range("2000-01-01", periods=count, freq=freq, tz=zone and "UTC")
    written = times.strftime(form.time_format) if form.time_format else times
    return written.astype(str).tolist()
