"""Images and their classes, for training, evaluation and prediction."""

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor
from typing_extensions import override

from litlab.data.bad_rows import Policy, count_text
from litlab.data.class_counts import Balance
from litlab.data.images.augment import Augment
from litlab.data.images.baselines import nearest_class_mean
from litlab.data.images.batches import ImageBatches
from litlab.data.images.catalog import Catalog
from litlab.data.images.decode import ImageFormat, Mode, Resize
from litlab.data.images.lazy import FileImages, some_mean_std
from litlab.data.images.memory import StoredImages, mean_std
from litlab.data.images.metadata import ImageMetadata
from litlab.data.images.public import PublicImages
from litlab.data.images.shard_files import as_png, in_files, write_image_shards
from litlab.data.images.sources import Source
from litlab.data.images.stored import Stored, load, store
from litlab.data.selectable import SelectableData, check_settings
from litlab.data.split import partition
from litlab.types import ClosedUnitInterval, HalfOpenUnitInterval, PositiveInt, Seed


class ImageData(ImageBatches, SelectableData[ImageMetadata]):
    """Images with one class each: your own folder or CSV file, a public data set (in subclasses), or generated.

    They are decoded once, into a cache, and stay in memory as uint8, unless `cache` says otherwise; batches are
    gathered, augmented and normalised as a whole. The model gets float32 images of shape (batch, channel, height,
    width) and int64 labels of shape (batch,); in prediction images only. In Python, use a Trainer with
    ``use_distributed_sampler=False``, as the command line does.

    Args:
        dataset: `folder` or `csv` for your own images, `generated` for made-up ones; null: the public data set that the
            class is named for.
        path: `folder`: the folder that holds train/<class>/, and optionally val/ and test/ like it. `csv`: the CSV
            file; its file names are relative to its folder. Public: folder to download to (`data` where null).
        file_column: CSV column of the image file names.
        label_column: CSV column of the class names.
        split_column: CSV column that says train, val or test; null splits the rows 80/10/10, stratified by class.
        image_size: Height and width that all images get; null takes them as they are, and they must be alike.
        mode: RGB or L (grey); null takes the images as they are, and they must be alike.
        resize: How to fit an image of another shape: crop what sticks out, stretch it, or pad it with black.
        batch_size: Images per batch and process.
        val_fraction: Fraction of the training images kept for validation where there is no validation split; 0 for
            none.
        balance: Draw classes in training evenly (`even`), or by the square root of their counts (`sqrt`); null: as they
            are. An epoch keeps its length, so samples of rare classes come several times, others not in every epoch.
        bad_rows: Images that can't be decoded, and CSV rows that can't be used: `error` names them, `drop` leaves them
            out and says how many there are.
        seed: Seed of the order and the augmentation; that of the run (seed_everything) when left out. The split is the
            same for every seed.
        augment: Random changes to the training images.
        fallback: `generated` uses made-up images where a public set can't be downloaded, and says so; null stops there.
        device_memory_fraction: The images are kept on the GPU when they fit into this fraction of its free memory.
        cache: `decoded`: images are decoded once and stay in memory, or in the cache where it is too small; `none`:
            those of a folder or CSV file are decoded whenever they come into a batch, by `num_workers`.
        cache_dir: Folder for the decoded images.
        **loader: num_workers, pin_memory, persistent_workers and prefetch_factor, as of `ExperimentData`.

    Raises:
        UserError: A value is not valid; later: the data is missing, incomplete or damaged.
    """

    public: ClassVar[PublicImages | None] = None
    kind = "images"
    own_files: ClassVar[dict[str, str]] = {"folder": "folder", "csv": "file"}
    own_flags = "--data.dataset folder --data.path DIR"

    def __init__(
        self,
        dataset: Literal["folder", "csv", "generated"] | None = None,
        path: str | None = None,
        *,
        file_column: str = "file",
        label_column: str = "label",
        split_column: str | None = None,
        image_size: tuple[PositiveInt, PositiveInt] | None = None,
        mode: Mode | None = None,
        resize: Resize = "crop",
        batch_size: PositiveInt = 512,
        val_fraction: HalfOpenUnitInterval = 0.1,
        balance: Balance | None = None,
        bad_rows: Policy = "error",
        seed: Seed | None = None,
        augment: Augment = Augment(),  # noqa: B008 - it is frozen
        fallback: Literal["generated"] | None = None,
        device_memory_fraction: ClosedUnitInterval = 0.25,
        cache: Literal["decoded", "none"] = "decoded",
        cache_dir: str = "data/cache",
        **loader: Any,
    ) -> None:
        super().__init__(dataset, path, fallback, batch_size=batch_size, seed=seed, cache_dir=cache_dir, **loader)
        self.augment = Augment(**augment) if isinstance(augment, dict) else augment
        # Checkpoints hold plain values only: the command line describes the steps, objects from Python are left out.
        augment = asdict(replace(self.augment, steps=[]))  # type: ignore[assignment]
        self.save_hyperparameters(logger=False)  # the model has settings of the same names, perhaps from a checkpoint
        good, late = dataset in self.own_files, "with data.cache none damaged images are found in mid-epoch; use error"
        check_settings(
            ("cache", cache, good or cache == "decoded", "it is for images of your own, in files; leave it out"),
            ("bad_rows", bad_rows, bad_rows == "error" or cache == "decoded", late),
        )
        size = None if image_size is None else (image_size[0], image_size[1])
        columns = file_column, label_column, split_column
        self.catalog = Catalog(dataset, self.public, self.path, *columns, size, mode, resize, bad_rows)
        self.val_fraction, self.bad_rows = val_fraction, bad_rows
        self.balance = balance
        self.device_memory_fraction = device_memory_fraction
        self.cache = cache
        self._stored: Stored | None = None  # with a cache
        self._labels: dict[str, Tensor] = {}
        self._rows: dict[str, tuple[str, Tensor]] = {}

    # ---- what is known before `setup`, without decoding any image

    @property
    def class_names(self) -> list[str]:
        """Name of each class, in the order of the labels; those of the checkpoint where one was loaded."""
        if self.metadata and self.restored:
            return self.metadata.class_names
        return self._source.class_names if self.generated else self.catalog.class_names

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(channel, height, width) of the images that the model gets; of the checkpoint's where one was loaded."""
        if self.metadata and self.restored:
            return self.metadata.image_shape
        return self.catalog.form.shape

    @property
    def has_val(self) -> bool:
        """Whether there are images to validate on."""
        return self.val_fraction > 0 or self.catalog.has("val")

    @property
    def has_test(self) -> bool:
        """Whether there are images to test on."""
        return self.generated or self.catalog.unsplit or self.catalog.has("test")

    @property
    def description(self) -> str:
        """The data set in one line; with the numbers of images after `setup`."""
        shape = " x ".join(map(str, self.image_shape))
        contents = (
            f"images of {shape}, {self.num_classes} classes{count_text(self._stored.dropped if self._stored else 0)}"
        )
        return self.described(contents)

    @property
    def fingerprint(self) -> str:
        """Changes whenever the data or their preparation do."""
        return self._source.cache_name

    @property
    def _source(self) -> Source:
        return self.catalog.stand_in if self.generated else self.catalog.source

    # ---- from files to memory

    @override
    def caches(self) -> dict[Path, Callable[[Path], None]]:
        return {} if self.cache == "none" else {self.cache_folder: partial(store, self._source)}

    @override
    def open(self, stage: str | None) -> ImageMetadata:
        form = self.catalog.form
        self.augment.check(form.shape)
        if self.cache == "none":
            self._labels = self.catalog.listing.labels
        else:
            self._stored = load(self._source, self.cache_folder)
            self._labels = self._stored.labels
            for note in self._stored.notes:
                rank_zero_info(note)
        test_fraction = 0.1 if self.catalog.unsplit and not self.generated else 0.0
        self._rows = partition(self._labels, self.val_fraction, test_fraction, seed=0)
        self.sizes = {split: len(part) for split, (_, part) in self._rows.items()}
        mean, std = self._mean_std(form)
        names = self.class_names if self._stored is None else self._stored.class_names
        return ImageMetadata(names, mean, std, form.shape, form.mode, self.catalog.resize, self.generated)

    def _mean_std(self, form: ImageFormat) -> tuple[list[float], list[float]]:
        if self._stored is None:  # once: each stage has its setup, and what a checkpoint has counts anyway
            known = self.metadata
            return (known.mean, known.std) if known else some_mean_std(self._files("train").files, form)
        origin, part = self._rows["train"]
        return mean_std(self._stored.sums[origin][part.numpy()], form.height * form.width)

    def _files(self, split: str) -> FileImages:
        """Return the images of a split as files."""
        origin, part = self._rows[split]
        listing = self.catalog.listing
        files = [listing.root / listing.files[origin][place] for place in part.tolist()]
        return FileImages(files, self.labels(split), self.catalog.form)

    def _images(self, split: str) -> StoredImages:
        """Return the images of a split as they are stored."""
        assert self._stored is not None
        origin, part = self._rows[split]
        every = len(part) == len(self._labels[origin])
        return StoredImages(self._stored.images[origin], self.labels(split), None if every else part)

    @override
    def samples(self, split: str) -> StoredImages | FileImages:
        if self.cache == "none":
            return self._files(split)
        images = self._images(split)
        processes = 1 if self.trainer is None else max(1, self.trainer.num_devices)
        images = images.in_memory(self.augment.crop if split == "train" else 0, processes)
        device = torch.device("cpu") if self.trainer is None else self.trainer.strategy.root_device
        return images.on_device(device, self.device_memory_fraction)

    @override
    def labels(self, split: str) -> Tensor:
        origin, part = self._rows[split]
        return self._labels[origin][part]

    @override
    def missing_split(self, split: str) -> str:
        remedy = " or set data.val_fraction above 0" if split == "val" else ""
        return f"data.path: {self.catalog.path} has no {split} images; add some{remedy}"

    @override
    def write_shards(self, folder: Path, size: int) -> None:
        images, labels = {}, {}
        for split in self.sizes:
            images[split] = in_files(self._files(split)) if self.cache == "none" else as_png(self._images(split))
            labels[split] = self.labels(split)
        write_image_shards(folder, size, self.known_metadata, self.catalog.form, images, labels)

    def baselines(self) -> dict[str, dict[str, float]]:
        """Test results of a simple method on the same images: its ``test/acc`` and ``test/f1``."""
        if not self.has_test or self._stored is None:
            return {}
        return {"nearest class mean": nearest_class_mean(self._images("train"), self._images("test"), self.num_classes)}
