"""What a checkpoint knows of samples with a target: their columns, and how new files are read."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Self

from litlab.data.cells import count_unknown
from litlab.data.columns import Column, read_columns
from litlab.data.files import FileFormat, Frame, Policy, check_columns
from litlab.data.serving import Metadata
from litlab.data.target import Target, load_target


@dataclass(frozen=True, kw_only=True)
class TargetMetadata(Metadata):
    """Metadata of samples with a target.

    Args:
        target: What is to be predicted.
        columns: Input columns, as the training file has them; none where it is no table.
        form: How the cells of the file are written.
    """

    fixed: ClassVar[tuple[str, ...]] = ("task", "targets", "output_names")
    target: Target
    columns: list[Column] = field(default_factory=list)
    form: FileFormat = field(default=FileFormat(), compare=False)

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> Self:
        columns = [Column(**column) for column in state["columns"]]
        form = FileFormat(**{**state["form"], "missing": tuple(state["form"]["missing"])})
        names = [field.name for field in fields(cls)]
        values = {name: state[name] for name in names if name in state}  # facts say more
        loaded = {"target": load_target(state["target"]), "columns": columns, "form": form}
        return cls(**values | loaded)

    def state_dict(self) -> dict[str, Any]:
        return asdict(self) | {"target": self.target.state_dict()}

    def read(
        self, raw: Frame, where: str, form: FileFormat | None = None, bad_rows: Policy = "error"
    ) -> Frame:
        """Read cells as the training file's were read, and say which categories are new; columns
        that it did not have are left out.

        Args:
            raw: As of `read_cells`.
            where: What messages call the file.
            form: How its cells are written; None: as those of the training file.
            bad_rows: Whether rows that can't be used are errors or left out.
        """
        columns = {column.name: column for column in self.columns}
        check_columns(raw, where, dict.fromkeys(columns, "the training file has it"))
        form = form or self.form
        rows = read_columns(raw, columns, form, where, needed=self.needed, bad_rows=bad_rows)
        for name, texts in getattr(self, "categories", {}).items():
            count_unknown(rows[name], texts, where)
        return rows

    @property
    def needed(self) -> list[str]:
        """Columns in which no cell may be missing: a text may be that of one column of several."""
        texts = [column.name for column in self.columns if column.kind == "text"]
        return texts if len(texts) == 1 else []

    @property
    def task(self) -> str:
        return self.target.task

    @property
    def targets(self) -> list[str]:
        return self.target.columns

    @property
    def output_names(self) -> list[str]:
        return self.target.names

    @property
    def class_names(self) -> list[str]:
        return self.output_names if self.task == "classification" else []

    # As networks and metrics call them
    label_names = target_names = output_names

    @property
    def num_outputs(self) -> int:
        return len(self.output_names)

    num_classes = num_outputs

    @property
    def target_mean(self) -> list[float]:
        return getattr(self.target, "mean", [])

    @property
    def target_std(self) -> list[float]:
        return getattr(self.target, "std", [])
