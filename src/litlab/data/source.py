"""Where data comes from: the user's own files or a URL, a public set, or made up."""

from pathlib import Path
from typing import Any, ClassVar

from litlab.data.remote import find_local
from litlab.errors import UserError


class DataSource:
    """What an `ExperimentData` knows of where its data comes from.

    Attributes:
        dataset: One of `own_files` or "generated"; None: the public set.
        path: The user's file or folder, or a frame; for public data the folder of its files.
        fallback: "generated": made-up data takes the place of a public set that can't be
            downloaded.
        generated: Whether the data is made up, which may turn out when a download fails.
    """

    kind = "data"  # what is made up where nothing else is there, for messages
    public: ClassVar[Any] = None  # the public set that a subclass is named for, see `obtain`
    # Values of `dataset` that read the user's own files, and flags that do so, for messages
    own_files: ClassVar[tuple[str, ...]] = ("csv",)
    own_flags = "--data.dataset csv --data.path FILE"

    dataset: str | None = None
    path: Any = Path("data")
    fallback: str | None = None
    generated = False

    def choose_source(self, dataset: str | None, path: Any, fallback: str | None = None) -> None:
        """Set where the data comes from.

        Args:
            dataset: As of this class; None: the public set, or what the path tells.
            path: As of this class, or a URL of such data; None: it is not set.
            fallback: As of this class.

        Raises:
            UserError: A value is missing, or does not go with another one.
        """
        # A path alone is enough for one's own data
        source = self.find_local(path, "data.path")
        if dataset is None and path is not None:
            dataset = self._guess_dataset(source)

        # What is missing, or contradicts the rest
        if dataset is None and self.public is None:
            raise UserError(
                f"data.dataset: it is not set; use {self.own_flags}, or --data.dataset generated"
            )
        if dataset == "generated" and path is not None:
            kinds = " or ".join(self.own_files)
            raise UserError(
                "data.path: data.dataset is generated, which reads no file; add "
                f"--data.dataset {kinds}"
            )
        if dataset in self.own_files and path is None:
            raise UserError(
                f"data.path: it is not set; name your own data for data.dataset {dataset}"
            )

        self.dataset, self.fallback = dataset, fallback
        self.generated = dataset == "generated"
        self.path = Path("data") if source is None else source
        # What messages call it: a URL, not the copy of what is there
        self.location = str(path) if isinstance(path, str | Path) else "frame"

    def find_local(self: Any, path: Any, setting: str) -> Any:
        """Return where data is on this machine: what is at a URL is copied here, once."""
        cache_dir = Path(self.hparams.get("cache_dir", "data/cache")).expanduser()
        return find_local(path, setting, cache_dir)

    def _guess_dataset(self, source: Any) -> str | None:
        """Return which of `own_files` a path tells; None where it may be the folder of public
        data.
        """
        # One that is not there, but looks like a file, is refused when it is read
        if not isinstance(source, Path) or (
            not source.is_dir() and (source.suffix or source.is_file())
        ):
            return "csv"
        # Where there is a public set, a folder is where its files are, unless it is laid out like
        # one's own
        is_folder = "folder" in self.own_files and (
            self.public is None or (source / "train").is_dir()
        )
        return "folder" if is_folder else None

    def check_public(self) -> None:
        """Refuse to train on the public set where nothing is at the path: it may be that of the
        user's own data, misspelled.
        """
        if self.public is None or self.dataset is not None:
            return
        if self.path != Path("data") and not self.path.exists():
            raise UserError(
                f"data.path: there is no {self.path}; correct it, or make that folder, to download "
                f"{self.public.name} to it"
            )

    @property
    def source_name(self) -> str:
        """Where the data comes from, in a few words."""
        if self.generated:
            # Asked for, or in place of the public set
            return (
                f"GENERATED {self.kind}"
                if self.dataset
                else f"GENERATED stand-in for {self.public.name}"
            )
        return f"{self.dataset} {self.location}" if self.dataset else self.public.name
