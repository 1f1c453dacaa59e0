"""What is known of an image data set before any image is decoded."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from lightning.pytorch.utilities import rank_zero_info

from litlab.data.bad_rows import Policy
from litlab.data.images.decode import ImageFormat, Mode, Resize, peek
from litlab.data.images.folder import folder_classes, list_folder
from litlab.data.images.generated import generated_class_names
from litlab.data.images.listing import Listing, list_csv
from litlab.data.images.public import PublicImages
from litlab.data.images.sources import Source, generated_source, listed_source, public_source
from litlab.data.labels import label_notes
from litlab.errors import UserError


@dataclass(frozen=True)
class Catalog:
    """A data set by the names of its options, see `ImageData`."""

    dataset: str | None
    public: PublicImages | None
    path: Path
    file_column: str
    label_column: str
    split_column: str | None
    image_size: tuple[int, int] | None
    mode: Mode | None
    resize: Resize
    bad_rows: Policy = "error"

    @property
    def _public(self) -> PublicImages:
        assert self.public is not None  # `SelectableData` refuses to have neither
        return self.public

    @property
    def unsplit(self) -> bool:
        """Whether all images are in "train" and still to be split."""
        return self.dataset == "csv" and self.split_column is None

    def has(self, split: str) -> bool:
        """Whether a split ("train", "val" or "test") is there."""
        if self.dataset == "csv":
            return split in self.listing.files
        if self.dataset == "folder":
            return (self.path / split).is_dir()
        return split != "val"

    @cached_property
    def class_names(self) -> list[str]:
        """Name of each class, in the order of the labels."""
        if self.dataset is None:
            return list(self._public.class_names)
        if self.dataset == "generated":
            return generated_class_names(10)
        return folder_classes(self.path) if self.dataset == "folder" else self.listing.class_names

    @cached_property
    def form(self) -> ImageFormat:
        """The format that all images get; what the options leave open is taken from the first image."""
        height, width = self.image_size or self._native[:2]
        mode = self.mode or self._native[2]
        return ImageFormat(height, width, mode, self.resize if self.image_size else None, self.mode is not None)

    @cached_property
    def source(self) -> Source:
        """The images, to be decoded."""
        if self.dataset is None:
            return public_source(self._public, self.path, self.form)
        if self.dataset == "generated":
            return self.stand_in
        return listed_source(self.path, self.listing, self.form, self.bad_rows)

    @property
    def stand_in(self) -> Source:
        """Generated images of the same shape and with as many classes."""
        return generated_source(len(self.class_names), self.form.shape)

    @cached_property
    def listing(self) -> Listing:
        """The files of the user's own images."""
        if self.dataset == "folder":
            listing = list_folder(self.path)
        else:
            listing = list_csv(self.path, self.file_column, self.label_column, self.split_column, self.bad_rows)
        counts = torch.cat(list(listing.labels.values())).bincount(minlength=len(listing.class_names))
        for note in label_notes(dict(zip(listing.class_names, counts.tolist(), strict=True))):
            rank_zero_info(f"{self.path}: {note}")
        return listing

    @cached_property
    def _native(self) -> tuple[int, int, Mode]:
        """(height, width, mode) of the first readable image as it is."""
        if self.dataset is None:
            channels, height, width = self._public.shape
            return height, width, "RGB" if channels == 3 else "L"
        if self.dataset == "generated":
            return 32, 32, "RGB"
        errors = []
        for name in self.listing.files["train"]:
            try:
                return peek(self.listing.root / name)
            except UserError as error:  # decoding them all tells how many there are
                errors.append(error)
        raise errors[0]
