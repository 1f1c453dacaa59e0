"""Images and their classes, for training, evaluation and prediction."""

import hashlib
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn
from typing_extensions import override

from litlab.data.classes import Balance
from litlab.data.frames import FileFormat, Policy, UserFile
from litlab.data.images.augment import Augment, augment_batch
from litlab.data.images.decode import ImageFormat, Mode, Resize, find_depth, peek
from litlab.data.images.files import Listing, find_images, list_folder, list_table
from litlab.data.images.generated import make_images
from litlab.data.images.public import PublicImages
from litlab.data.images.serving import ImageMetadata, ImageServing
from litlab.data.images.store import (
    LazyImages,
    StoredImages,
    classify_by_mean,
    conform_images,
    decode_files,
    measure_colours,
    read_files,
    store_images,
    warn_of_copies,
)  # fmt: skip
from litlab.data.module import ExperimentData
from litlab.data.predictions import write_classes
from litlab.data.sampler import EpochSampler
from litlab.data.split import SPLITS, split_samples
from litlab.data.store import open_array
from litlab.errors import UserError
from litlab.types import ClosedUnitInterval, HalfOpenUnitInterval, PositiveInt, Seed

Normalize = Literal["imagenet", "data"] | list[list[float]]

_IMAGENET = [[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]]
_VERSION = 3  # raise it when the arrays of the same source would come out different
_FLAT = 4.0  # grey levels: images that deviate by less were hardly saved as they were meant
_MEASURED = 2000  # images that colours are measured on, at most


class ImageData(ExperimentData):
    """Images with one class each: your own folder or table, a public data set (in subclasses), or generated.

    They are decoded once, into a cache, and stay in memory as uint8, unless `cache` says otherwise; batches are
    gathered, augmented and normalised as a whole. The model gets float32 images of shape (batch, channel, height,
    width) and int64 labels of shape (batch,); in prediction images only. In Python, use a Trainer with
    ``use_distributed_sampler=False``, as the command line does.

    Args:
        dataset: `folder` or `csv` for your own images, `generated` for made-up ones; null: what `path` tells, or the
            public data set that the class is named for.
        path: `folder`: the folder that holds train/<class>/, and optionally val/ and test/ like it. `csv`: the CSV,
            Parquet, Excel or JSON lines file, or a frame; its file names are relative to its folder. Public: folder to
            download to (`data` where null).
        file_column: Column of the image file names.
        label_column: Column of the class names.
        split_column: Column that says train, val or test; null splits the rows 80/10/10, stratified by class.
        delimiter: What separates the cells of a CSV file; null: the one that makes the most columns.
        decimal: The decimal sign of numbers.
        missing: Words that stand for a missing value, beside nothing, NA, NaN, null and the like.
        image_size: Height and width that all images get; null takes them as they are, and they must be alike.
        mode: RGB or L (grey); null takes the images as they are, and they must be alike.
        resize: How to fit an image of another shape: crop what sticks out, stretch it, or pad it with black.
        normalize: What images are brought to mean 0 and deviation 1 by: `data`: mean and deviation of each channel over
            2,000 training images; `imagenet`: those of ImageNet, as networks want them that were trained on it; or
            two lists of your own, of means and deviations of pixels from 0 to 1.
        batch_size: Images per batch and process.
        val_fraction: Fraction of the training images kept for validation where there is no validation split; 0 for
            none.
        fold: Such as 0/5: the training images make five folds, of which the first is the test split.
        balance: Draw classes in training evenly (`even`), or by the square root of their counts (`sqrt`); null: as they
            are. An epoch keeps its length, so samples of rare classes come several times, others not in every epoch.
        bad_rows: Images that can't be decoded, and rows that can't be used: `error` names them, `drop` leaves them
            out and says how many there are.
        seed: Seed of the order and the augmentation; that of the run (seed_everything) when left out. The split is the
            same for every seed.
        augment: Random changes to the training images, in whole batches.
        transform: Random changes to each training image in its original size, such as those of
            torchvision.transforms.v2; with `cache: none`.
        fallback: `generated` uses made-up images where a public set can't be downloaded, and says so; null stops there.
        device_memory_fraction: The images are kept on the GPU when they fit into this fraction of its free memory.
        cache: `decoded`: images are decoded once and stay in memory, or in the cache where it is too small; `none`:
            your own are decoded whenever they come into a batch, by `num_workers`.
        cache_dir: Folder for the decoded images.
        **loader: num_workers, pin_memory, persistent_workers, prefetch_factor and drop_last, as of `ExperimentData`.

    Raises:
        UserError: A value is not valid; later: the data is missing, incomplete or damaged.
    """

    public: ClassVar[PublicImages | None] = None
    item = kind = "images"
    input_kinds = "a folder or a file"
    metadata_type = ImageMetadata
    own_files = ("folder", "csv")
    own_flags = "--data.dataset folder --data.path DIR"

    is_lazy = False  # whether images are decoded whenever they come into a batch
    _images: Tensor | None = None  # those in the cache, after `setup`
    _serving: ImageServing | None = None

    def __init__(
        self,
        dataset: Literal["folder", "csv", "generated"] | None = None,
        path: UserFile | None = None,
        *,
        file_column: str = "file",
        label_column: str = "label",
        split_column: str | None = None,
        delimiter: str | None = None,
        decimal: Literal[".", ","] = ".",
        missing: list[str] = [],  # noqa: B006 - it is only read
        image_size: tuple[PositiveInt, PositiveInt] | None = None,
        mode: Mode | None = None,
        resize: Resize = "crop",
        normalize: Normalize = "data",
        batch_size: PositiveInt = 512,
        val_fraction: HalfOpenUnitInterval = 0.1,
        fold: str | None = None,
        balance: Balance | None = None,
        bad_rows: Policy = "error",
        seed: Seed | None = None,
        augment: Augment = Augment(),  # noqa: B008 - it is frozen
        transform: list[nn.Module] = [],  # noqa: B006
        fallback: Literal["generated"] | None = None,
        device_memory_fraction: ClosedUnitInterval = 0.25,
        cache: Literal["decoded", "none"] = "decoded",
        cache_dir: str = "data/cache",
        **loader: Any,
    ) -> None:
        super().__init__(batch_size=batch_size, seed=seed, **loader)
        self.choose_source(dataset, path, fallback)
        # Checkpoints hold plain values only: objects from Python are left out.
        objects = ["augment", "transform", *([] if isinstance(path, str | None) else ["path"])]
        self.save_hyperparameters(logger=False, ignore=objects)
        # Python code may give it as a checkpoint has it.
        self.augment = Augment(**augment) if isinstance(augment, dict) else augment
        self.transforms, self.normalize = transform, normalize
        self.is_lazy = cache == "none" and self.dataset in self.own_files
        if transform and not self.is_lazy:
            raise UserError("data.transform: it is for images of your own as they are decoded; add --data.cache none")
        self.columns = file_column, label_column, split_column
        self.file_format = FileFormat(delimiter, decimal, tuple(missing))
        self.image_size = image_size
        self.mode: Mode | None = mode
        self.resize: Resize = resize
        self.val_fraction, self.fold, self.balance = val_fraction, fold, balance
        self.bad_rows: Policy = bad_rows
        self.device_memory_fraction = device_memory_fraction
        self.cache_dir = Path(cache_dir).expanduser()

    # ---- what is known before `setup`, without decoding all images

    @cached_property
    def listing(self) -> Listing:
        """The files of the user's own images."""
        if self.dataset == "folder":
            return list_folder(self.path)
        return list_table(self.path, self.file_format, *self.columns, self.bad_rows)

    @cached_property
    def form(self) -> ImageFormat:
        """The format that all images get; what the settings leave open is taken from the first image."""
        channels, height, width = (3, 32, 32) if self.public is None else self.public.shape
        mode: Mode = "RGB" if channels == 3 else "L"
        depth = 16
        if self.dataset in self.own_files:
            height, width, mode = peek(self.listing.files)
            depth = find_depth(self.listing.files)
        height, width = self.image_size or (height, width)
        resize = None if self.image_size is None else self.resize
        return ImageFormat(height, width, self.mode or mode, resize, self.mode is not None, depth)

    @property
    def class_names(self) -> list[str]:
        """Name of each class, in the order of the labels; those of the checkpoint where one was loaded."""
        return self.metadata.class_names if self.restored else self._find_class_names()

    def _find_class_names(self) -> list[str]:
        if self.dataset in self.own_files:
            return self.listing.class_names
        names = range(10) if self.public is None else self.public.class_names
        return [f"class {number}" for number in range(len(names))] if self.generated else list(map(str, names))

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(channel, height, width) of the images that the model gets; of the checkpoint's where one was loaded."""
        return self.metadata.image_shape if self.restored else self.form.shape

    @property
    def mean(self) -> list[float]:
        """Mean of each channel that images are normalised by; after `setup`."""
        return self.metadata.mean

    @property
    def std(self) -> list[float]:
        """Deviation of each channel that images are normalised by; after `setup`."""
        return self.metadata.std

    @property
    def has_test(self) -> bool:
        """Whether there are images to test on; before `setup` it is taken that there are."""
        return not self.sizes or "test" in self.sizes

    @property
    def description(self) -> str:
        """The data set in one line; with the numbers of images after `setup`."""
        return self.describe(f"images of {' x '.join(map(str, self.image_shape))}, {self.num_classes} classes")

    @property
    def fingerprint(self) -> str:
        """Changes whenever the data or their preparation do."""
        marks = _VERSION, self.form, self._find_class_names()  # a public set is known by checksum
        if self.dataset in self.own_files:
            marks = *marks, self.listing.digest, self.bad_rows
        name = "generated" if self.generated else self.dataset or self.public.name  # type: ignore[union-attr]
        return f"{name}-{hashlib.sha256(repr(marks).encode()).hexdigest()[:12]}"

    # ---- from files to memory

    @override
    def cache_folder(self) -> Path | None:
        return None if self.is_lazy else self.cache_dir / self.fingerprint

    @override
    def fill_cache(self, folder: Path) -> None:
        problems: dict[Path, str] = {}
        files: list[Path] = []
        if self.dataset in self.own_files:
            files, labels, given = self.listing.files, self.listing.labels, self.listing.given
            blocks = decode_files(files, self.form, self.bad_rows, self.path, problems)
        else:
            public = None if self.generated else self.public
            source = (
                make_images(len(self._find_class_names()), self.form.shape)
                if public is None
                else public.read(self.path)
            )
            images, labels, given = source
            blocks = conform_images(images, self.form)
        groups = store_images(folder / "images.npy", self.form.shape, blocks)
        if problems:
            given = np.where([file in problems for file in files], "", given)
        np.savez(folder / "facts.npz", labels=labels, given=given, groups=groups)

    @override
    def open(self, stage: str | None) -> ImageMetadata:
        form, folder = self.form, self.cache_folder()
        self.augment.check(form.height, form.width)
        if folder is None:
            self._facts = {"labels": self.listing.labels, "given": self.listing.given}
        else:
            self._images = torch.from_numpy(open_array(folder / "images.npy"))
            with np.load(folder / "facts.npz") as facts:
                self._facts = dict(facts)
        given, labels = self._facts["given"], self._facts["labels"]
        test_fraction = 0.1 if self.dataset == "csv" and self.columns[2] is None else 0.0
        splits = split_samples(given, self.val_fraction, test_fraction, labels=labels, fold=self.fold)
        rows = {split: np.flatnonzero(splits == split) for split in SPLITS}
        self._rows = {split: some for split, some in rows.items() if len(some)}
        self.sizes = {split: len(some) for split, some in self._rows.items()}

        if self.metadata is None and self._images is not None and self.dataset in self.own_files:  # once
            warn_of_copies(self._facts["groups"], splits, self.listing.files, self.path)
        mean, std = self._choose_colours()
        names = self._find_class_names()
        return ImageMetadata(names, mean, std, form.shape, form.mode, self.resize, form.depth, self.generated)

    def _choose_colours(self) -> tuple[list[float], list[float]]:
        """Return mean and deviation of each channel that images are normalised by."""
        if self.normalize != "data":
            mean, std = _IMAGENET if isinstance(self.normalize, str) else self.normalize
            return mean, std
        if self.metadata is not None:  # measured once: each stage has its setup
            return self.metadata.mean, self.metadata.std
        return self._measure_colours()

    def _measure_colours(self) -> tuple[list[float], list[float]]:
        """Return mean and deviation of each channel over many training images."""
        rows = self._rows["train"]
        some = rows[:: -(-len(rows) // _MEASURED)]
        if self._images is not None:
            mean, std = measure_colours(self._images[row].numpy() for row in some)
        else:
            files = [self.listing.files[row] for row in some]
            mean, std = measure_colours(chain.from_iterable(decode_files(files, self.form, "error", self.path, {})))
        if max(std) < _FLAT / 255:
            rank_zero_info(f"warning: {self.source_name}: the images are almost of one value; look at some of them")
        return mean, std

    def _stored_images(self, split: str) -> StoredImages:
        """Return the images of a split as they are stored."""
        assert self._images is not None
        return StoredImages(self._images, self.labels(split), torch.from_numpy(self._rows[split]))

    @override
    def samples(self, split: str) -> StoredImages | LazyImages:
        is_train = split == "train"
        if self._images is None:
            files = [self.listing.files[row] for row in self._rows[split]]
            read = partial(read_files, files, self.labels(split))
            return LazyImages(len(files), read, self.form, self.transforms if is_train else [])
        processes = 1 if self.trainer is None else max(1, self.trainer.num_devices)
        images = self._stored_images(split).in_memory(self.augment.crop if is_train else 0, processes)
        return images.to(self.choose_device(images.images.nbytes, self.device_memory_fraction))

    @override
    def sampler(self, samples: Any, split: str) -> EpochSampler:
        sampler = super().sampler(samples, split)
        if isinstance(samples, LazyImages):
            samples.sampler = sampler
        return sampler

    @override
    def labels(self, split: str) -> Tensor:
        return torch.from_numpy(self._facts["labels"][self._rows[split]])

    @override
    def missing_split(self, split: str) -> str:
        return (
            f"data.path: there are no {split} images; add some, or take them from train: data.val_fraction, data.fold"
        )

    def baselines(self) -> dict[str, dict[str, float]]:
        """Test results of a simple method on the same images: its ``test/acc`` and ``test/f1``."""
        if "test" not in self.sizes or self._images is None:
            return {}
        train, test = self._stored_images("train"), self._stored_images("test")
        return {"nearest class mean": classify_by_mean(train, test, self.num_classes)}

    # ---- from batches to predictions

    @override
    def transform(self, batch: dict[str, Tensor], epoch: int | None) -> Any:
        """Augment (in training only) and normalise a batch.

        Returns:
            Images, float32 of shape (batch, channel, height, width), and labels, int64 of shape (batch,); in
            prediction the images alone.
        """
        images = batch["image"]
        if self._serving is None or self._serving.metadata is not self.metadata:
            self._serving = self.serving()
        serving = self._serving.to(images.device)
        if epoch is None:  # padded are the training images only; somebody may evaluate on them
            images = serving.encode(*serving.raw(batch))
        else:
            size = self.image_shape[1], self.image_shape[2]
            images = augment_batch(images, batch["index"], self.augment, size, serving.encode, self.seed, epoch)
        return (images, batch["label"]) if "label" in batch else images

    @override
    def serving(self) -> ImageServing:
        return ImageServing(self.metadata)

    @override
    def open_input(self, source: str) -> LazyImages:
        path, form = Path(source).expanduser(), self.metadata.form
        files = find_images(path) if path.is_dir() else [path]
        if not files:
            raise UserError(f"--input {source}: there are no images in it; name a folder or a file")
        if self.bad_rows == "drop":  # found out here: the number of batches depends on it
            problems: dict[Path, str] = {}
            deque(decode_files(files, form, "drop", f"--input {source}", problems), maxlen=0)
            files = [file for file in files if file not in problems]
        self._predicted = files
        return LazyImages(len(files), partial(read_files, files, None), form)

    def write_predictions(self, outputs: list[Tensor], path: str) -> None:
        """Write a file with a row per image of `predict_input`: its class, and the probability of every class.

        Args:
            outputs: Probabilities of the batches in order, each of shape (batch, class).
            path: The file, of a kind that its end tells; one that is there is replaced.

        Raises:
            UserError: A probability is not finite, or the file can't be written.
        """
        names = list(map(str, self._predicted))
        write_classes(Path(path), {"file": names}, self.class_names, torch.cat([output.cpu() for output in outputs]))

    # ---- shards

    @override
    def write_shards(self, folder: Path, size: int) -> None:
        from litlab.data.shards import write_about, write_split

        if self.dataset not in self.own_files:
            raise UserError("shards: they are for image files of your own; set data.path")
        splits = {
            split: write_split(folder / split, self._read_files(split), self.sizes[split], size) for split in self.sizes
        }
        mean, std = self._measure_colours()
        metadata = replace(self.metadata, mean=mean, std=std).state_dict()
        write_about(folder, {"kind": self.item, "metadata": metadata, "splits": splits})

    def _read_files(self, split: str) -> Iterator[dict[str, bytes | int]]:
        """Yield image files with their classes, those to train on in random order: a folder lists class after class."""
        rows = self._rows[split]
        if split == "train":
            rows = np.random.default_rng(0).permutation(rows)
        for row in rows:
            yield {"image": self.listing.files[row].read_bytes(), "label": int(self._facts["labels"][row])}
