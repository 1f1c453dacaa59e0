"""What ImageData, TextData and SeriesData share: their setting `dataset` selects where the data comes from."""

from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from typing_extensions import override

from litlab.data.download import Unavailable, obtain, tell_of_stand_in
from litlab.data.metadata import Metadata
from litlab.data.module import ExperimentData
from litlab.data.paths import user_path
from litlab.errors import UserError

M = TypeVar("M", bound=Metadata)


class SelectableData(ExperimentData[M]):
    """Your own files, a public data set (in subclasses that are named for one), or made-up data.

    Args:
        dataset: A kind of your own files, or "generated"; None: the public data set.
        path: Your file or folder; for public data the folder to download to (`data` where None).
        fallback: "generated": made-up data takes the place of a public data set that can't be downloaded.
        **settings: As of `ExperimentData`.

    Raises:
        UserError: A value is not valid.
    """

    public: ClassVar[Any] = None  # the `PublicData` that a subclass is named for
    kind = "data"  # what is made up where nothing else is there
    own_files: ClassVar[dict[str, str]] = {"csv": "file"}  # what `path` names, for each kind of the user's own files
    own_flags = "--data.dataset csv --data.path FILE"

    def __init__(self, dataset: str | None, path: str | None, fallback: str | None, **settings: Any) -> None:
        super().__init__(generated=dataset == "generated", **settings)
        public, own = self.public is not None, self.own_files.get(dataset or "")
        check_settings(
            ("dataset", dataset, dataset or public, f"set {', '.join(self.own_files)} or generated"),
            ("path", path, path is not None or not own, f"dataset {dataset} needs your {own}"),
        )
        self.dataset = dataset
        self.path = user_path(path or "data", "data.path")
        self.fallback = fallback

    @property
    def source_name(self) -> str:
        """Where the data comes from, in a few words."""
        if self.generated:
            return f"GENERATED {self.kind}" if self.dataset else f"GENERATED stand-in for {self.public.name}"
        return f"{self.dataset} {self.path}" if self.dataset else self.public.name

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Changes whenever the data or their preparation do."""

    @property
    def cache_folder(self) -> Path:
        """Where the prepared data is kept, if it is."""
        assert self.cache_dir is not None
        return self.cache_dir / self.fingerprint

    def setting(self, name: str) -> Any:
        """Return a setting that the metadata has too: the checkpoint's where one was loaded."""
        return getattr(self.metadata, name) if self.restored else self.hparams[name]

    def described(self, contents: str) -> str:
        """Describe the data in one line: where it is from, the sizes of its splits once known, its contents."""
        counts = " / ".join(f"{count:,} {split}" for split, count in self.sizes.items())
        return f"{self.source_name}: {counts + ' ' if counts else ''}{contents}"

    @override
    def ensure_downloaded(self) -> bool:
        if self.dataset:
            return True
        try:
            obtain(self.public, self.path, self.fallback, self.own_flags)
            return True
        except Unavailable as reason:
            self.generated = True  # so that the caches are those of the stand-in
            again = any(folder.is_dir() for folder in self.caches())
            tell_of_stand_in(self.public, self.path, self.own_flags, reason, again)
            return False


def check_settings(*rules: tuple[str, object, object, str]) -> None:
    """Refuse the first setting that is not valid; rules are name, value, whether it is valid, and what to do."""
    for name, value, good, remedy in rules:
        if not good:
            raise UserError(f"data.{name}: {'null' if value is None else value} is not valid; {remedy}")
