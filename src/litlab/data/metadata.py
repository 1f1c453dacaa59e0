"""What is known of the data: asked for by models and callbacks, and carried by a checkpoint to read raw files."""

from dataclasses import dataclass
from typing import Any, ClassVar

from litlab.errors import UserError


@dataclass(frozen=True)
class Metadata:
    """What is known of a data set; each kind of data has its own subclass."""

    fixed: ClassVar[tuple[str, ...]] = ()  # what a trained model depends on

    def state_dict(self) -> dict[str, Any]:
        """Return the record as a checkpoint keeps it: plain values by their names."""
        return dict(vars(self))

    def check_same(self, here: Any) -> None:
        """Refuse data that a model with this metadata was not trained for.

        Args:
            here: The `Metadata` of the data.

        Raises:
            UserError: They differ in one of `fixed`.
        """
        for name in self.fixed:
            trained, found = getattr(self, name), getattr(here, name)
            if trained != found:
                raise UserError(
                    f"data: the checkpoint was trained with {name} {_shorten(trained)}, here it is {_shorten(found)}; "
                    "use data and settings like those of its run"
                )


@dataclass(frozen=True)
class ClassMetadata(Metadata):
    """Metadata of samples with one class each.

    Args:
        class_names: Name of each class, in the order of the labels.
    """

    fixed: ClassVar[tuple[str, ...]] = ("class_names",)
    class_names: list[str]


def _shorten(value: Any) -> str:
    """Return a value as a message shows it: of a long list the first parts and their number."""
    if isinstance(value, list | tuple) and len(value) > 5:
        return f"{', '.join(map(str, value[:5]))}, ... ({len(value)})"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
