"""Images and their classes, for training, evaluation and prediction."""

import hashlib
import random
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn

from litlab.data.classes import Balance
from litlab.data.frames import Policy, UserFile
from litlab.data.images.augment import Augment, augment_batch
from litlab.data.images.decode import ImageMetadata, Mode, Resize, conform, examine
from litlab.data.images.files import Listing, find_images, list_folder, list_table
from litlab.data.images.generated import make_images
from litlab.data.images.public import PublicImages
from litlab.data.images.serving import ImageServing
from litlab.data.images.store import LazyImages, StoredImages, classify_by_mean, decode_files, measure_colours, pick
from litlab.data.module import ExperimentData
from litlab.data.predictions import write_classes
from litlab.data.sampler import EpochSampler
from litlab.data.shard_batches import ShardBatches
from litlab.data.shards import Shards, write_about, write_split
from litlab.data.split import SPLITS, split_samples
from litlab.errors import UserError
from litlab.types import HalfOpenUnitInterval, PositiveInt, Seed

_IMAGENET = [[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]]
_VERSION = 5  # raise it when the arrays of the same source would come out different
_FLAT = 4.0  # grey levels: images that deviate by less were hardly saved as they were meant
_MEASURED = 2000  # images that colours are measured on, at most


class ImageData(ExperimentData):
    """Images with one class each: your own folder, table or shards, a public set (in subclasses), or generated.

    They are decoded once, into a cache, and stay in memory as uint8, unless `cache` says otherwise; batches are
    gathered, augmented and normalised as a whole. The model gets float32 images of shape (batch, channel, height,
    width) and int64 labels of shape (batch,); in prediction images only. In Python, use a Trainer with
    ``use_distributed_sampler=False``, as the command line does.

    Args:
        dataset: `folder` or `csv` for your own images, `shards` for those that the command ``shards`` has written,
            `generated` for made-up ones; null: what `path` tells, or the public data set that the class is named for.
        path: `folder`: the folder that holds train/<class>/, and optionally val/ and test/ like it. `csv`: the CSV,
            Parquet, Excel or JSON lines file, or a frame; its file names are relative to its folder. `shards`: their
            folder, or an address such as ``s3://bucket/folder``. Public: folder to download to (`data` where null).
        file_column: Column of the image file names.
        label_column: Column of the class names.
        split_column: Column that says train, val or test; null splits the rows 80/10/10, stratified by class.
        image_size: Height and width that all images get; null takes them as they are, and they must be alike. Shards
            have that which they were written with.
        mode: RGB or L (grey); null: L where none of 100 images has colours. Shards have that of their writing.
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
            torchvision.transforms.v2; with `cache: none`, or shards.
        fallback: `generated` uses made-up images where a public set can't be downloaded, and says so; null stops there.
        cache: `decoded`: images are decoded once and stay in memory, or in the cache where it is too small; `none`:
            your own are decoded whenever they come into a batch, by `num_workers`, as those in shards always are.
        cache_dir: Folder for the decoded images, and for shards of object storage once they have been read.
        shuffle_shards: How many shards are shuffled together: more is more random, and reads more files at once.
        **loader: num_workers, pin_memory, persistent_workers, prefetch_factor and drop_last, as of `ExperimentData`.

    Raises:
        UserError: A value is not valid; later: the data is missing, incomplete or damaged.
    """

    public: ClassVar[PublicImages | None] = None
    item = kind = "images"
    metadata_type = ImageMetadata
    own_files = ("folder", "csv", "shards")
    own_flags = "--data.dataset folder --data.path DIR"

    shards: Shards | None = None
    _images: Tensor  # those in the cache, after `setup`
    _serving: ImageServing | None = None

    def __init__(
        self,
        dataset: Literal["folder", "csv", "shards", "generated"] | None = None,
        path: UserFile | None = None,
        *,
        file_column: str = "file",
        label_column: str = "label",
        split_column: str | None = None,
        image_size: tuple[PositiveInt, PositiveInt] | None = None,
        mode: Mode | None = None,
        resize: Resize = "crop",
        normalize: Literal["imagenet", "data"] | list[list[float]] = "data",
        batch_size: PositiveInt = 512,
        val_fraction: HalfOpenUnitInterval = 0.1,
        fold: str | None = None,
        balance: Balance | None = None,
        bad_rows: Policy = "error",
        seed: Seed | None = None,
        augment: Augment = Augment(),  # noqa: B008 - it is frozen
        transform: list[nn.Module] = [],  # noqa: B006 - it is only read
        fallback: Literal["generated"] | None = None,
        cache: Literal["decoded", "none"] = "decoded",
        cache_dir: str = "data/cache",
        shuffle_shards: PositiveInt = 8,
        **loader: Any,
    ) -> None:
        super().__init__(batch_size=batch_size, seed=seed, **loader)
        self.choose_source(dataset, path, fallback)
        # Checkpoints hold plain values only: objects from Python are left out.
        objects = ["augment", "transform", *([] if isinstance(path, str | None) else ["path"])]
        self.save_hyperparameters(logger=False, ignore=objects)
        self.cache_dir = Path(cache_dir).expanduser()
        if self.dataset == "shards":
            self.path, self.shards = path, Shards(str(path), self.cache_dir, self.item)
        self.is_listed = self.dataset in ("folder", "csv")
        self.is_lazy = self.shards is not None or (self.is_listed and cache == "none")
        if transform and not self.is_lazy:
            raise UserError("data.transform: it is for images of your own as they are decoded; add --data.cache none")
        if fold is not None and self.shards is not None:
            raise UserError("data.fold: shards have the splits that they were written with; leave it out")

        self.augment, self.transforms, self.normalize = augment, transform, normalize
        self.columns = file_column, label_column, split_column
        self.image_size, self.mode = image_size, mode
        self.resize: Resize = resize
        self.val_fraction, self.fold, self.balance = val_fraction, fold, balance
        self.bad_rows: Policy = bad_rows
        self.shuffle_shards = shuffle_shards

    # ---- what is known before `setup`, without decoding all images

    @cached_property
    def listing(self) -> Listing:
        """The files of the user's own images."""
        if self.dataset == "folder":
            return list_folder(self.path, self.bad_rows)
        return list_table(self.path, *self.columns, self.bad_rows)

    @cached_property
    def known(self) -> ImageMetadata:
        """What is known of the data before `setup`: no colours, and `resize` only where images may be fitted."""
        if self.shards is not None:
            return ImageMetadata(**self.shards.about["metadata"])
        names, shape, depth = [f"class {number}" for number in range(10)], (3, 32, 32), 16
        if self.is_listed:
            names, (shape, depth) = self.listing.class_names, examine(self.listing.files)
        elif self.public is not None:
            names, shape = list(self.public.class_names), self.public.shape

        # What is set counts.
        channels, *size = shape
        if self.mode is not None:
            channels = 1 if self.mode == "L" else 3
        height, width = self.image_size or size
        resize = self.resize if self.image_size else None
        return ImageMetadata(names, (channels, height, width), resize, depth, mean=[], std=[], generated=False)

    @property
    def class_names(self) -> list[str]:
        """Name of each class, in the order of the labels; those of the checkpoint where one was loaded."""
        return (self.metadata if self.restored else self.known).class_names

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(channel, height, width) of the images that the model gets; of the checkpoint's where one was loaded."""
        return (self.metadata if self.restored else self.known).image_shape

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
        if self.shards is not None:
            return self.shards.about["fingerprint"]
        marks = [_VERSION, self.source_name, self.known]  # a public set is known by checksum
        if self.is_listed:
            marks += [self.listing.digest, self.bad_rows]
        return f"images-{hashlib.sha256(repr(marks).encode()).hexdigest()[:12]}"

    # ---- from files to memory

    def cache_folder(self) -> Path | None:
        return None if self.is_lazy else self.cache_dir / self.fingerprint

    def fill_cache(self, folder: Path) -> None:
        known = self.known
        if self.is_listed:
            labels, given = self.listing.labels, self.listing.given.copy()
            images = decode_files(self.listing.files, known, self.bad_rows, self.source_name)
        elif self.generated or self.public is None:
            images, labels, given = make_images(len(known.class_names), known.image_shape)
        else:
            images, labels, given = self.public.read(self.path)

        shape = len(labels), *known.image_shape
        stored = np.lib.format.open_memmap(folder / "images.npy", "w+", np.uint8, shape)
        for row, image in enumerate(images):
            if image is None:
                given[row] = ""
            else:
                stored[row] = conform(image, known)
        np.savez(folder / "facts.npz", labels=labels, given=given)

    def open(self, stage: str | None) -> ImageMetadata:
        known = self.known
        if self.shards is not None:
            self.sizes = {split: sum(self.shards.sizes(split)) for split in self.shards.about["splits"]}
            self.generated = known.generated  # as made-up data can be written, too
        else:
            self._split_images()
        mean, std = self._choose_colours()
        return replace(known, resize=known.resize or self.resize, mean=mean, std=std, generated=self.generated)

    def _split_images(self) -> None:
        """Open the cache, if there is one, and divide the images."""
        if self.is_lazy:
            labels, given = self.listing.labels, self.listing.given
        else:
            folder = self.cache_dir / self.fingerprint
            self._images = torch.from_numpy(np.load(folder / "images.npy", mmap_mode="c"))
            with np.load(folder / "facts.npz") as facts:
                labels, given = facts["labels"], facts["given"]
        self._labels = torch.from_numpy(labels)

        test_fraction = 0.1 if self.dataset == "csv" and self.columns[2] is None else 0.0
        splits = split_samples(given, self.val_fraction, test_fraction, labels=labels, fold=self.fold)
        self._rows = {split: torch.from_numpy(np.flatnonzero(splits == split)) for split in SPLITS}
        self.sizes = {split: len(rows) for split, rows in self._rows.items() if len(rows)}

    def _choose_colours(self) -> list[list[float]]:
        """Return mean and deviation of each channel that images are normalised by."""
        if self.normalize == "imagenet":
            return _IMAGENET
        if isinstance(self.normalize, list):
            return self.normalize
        known = self.metadata or self.known  # measured once: each stage has its setup, and shards have them written
        return [known.mean, known.std] if known.mean else self._measure_colours()

    def _measure_colours(self) -> list[list[float]]:
        """Return mean and deviation of each channel over many training images."""
        rows = self._rows["train"]
        rows = rows[:: 1 + len(rows) // _MEASURED].tolist()
        if self.is_lazy:
            read = decode_files([self.listing.files[row] for row in rows], self.known, "error", self.source_name)
            images = (image for image in read if image is not None)  # bad ones are an error at the end
        else:
            images = (self._images[row].numpy() for row in rows)
        mean, std = measure_colours(images)
        if max(std) < _FLAT / 255:
            rank_zero_info(f"warning: {self.source_name}: the images are almost of one value; look at some of them")
        return [mean, std]

    def _stored_images(self, split: str) -> StoredImages:
        """Return the images of a split as they are in the cache."""
        return StoredImages(self._images, self._labels[self._rows[split]], self._rows[split])

    def samples(self, split: str) -> StoredImages | LazyImages:
        is_train = split == "train"
        if self.is_lazy:
            shards = self.shards
            read = partial(pick, self._list_samples(split)) if shards is None else partial(shards.read, split)
            return LazyImages(self.sizes[split], read, self.known, self.transforms if is_train else [])
        processes = getattr(self.trainer, "num_devices", 1)
        samples = self._stored_images(split).in_memory(self.augment.crop if is_train else 0, processes)
        if samples.rows is not None:  # too large for memory
            return samples
        device = self.choose_device(samples.images.nbytes)
        return StoredImages(samples.images.to(device), samples.labels.to(device))

    def _list_samples(self, split: str) -> list[dict[str, Any]]:
        """Return file and class of each image of a split."""
        labels = self._labels.tolist()
        return [{"image": self.listing.files[row], "label": labels[row]} for row in self._rows[split].tolist()]

    def sampler(self, samples: Any, split: str) -> EpochSampler:
        if self.shards is None or split == "predict":
            sampler = super().sampler(samples, split)
        else:
            sizes, options = self.shards.sizes(split), self.sampler_options(split)
            sampler = ShardBatches(sizes, self.batch_size, self.shuffle_shards, **options)
        samples.sampler = sampler  # from which transforms know seed and epoch
        return sampler

    def labels(self, split: str) -> Tensor | None:
        return None if self.shards is not None else self._labels[self._rows[split]]  # reading all of shards takes long

    def missing_split(self, split: str) -> str:
        return f"data: there are no {split} images; add some, or take some for it (data.val_fraction, data.fold)"

    def baselines(self) -> dict[str, dict[str, float]]:
        """Test results of a simple method on the same images: its ``test/acc`` and ``test/f1``."""
        if self.is_lazy or "test" not in self.sizes:
            return {}
        train, test = self._stored_images("train"), self._stored_images("test")
        return {"nearest class mean": classify_by_mean(train, test)}

    # ---- from batches to predictions

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
            shape, encode = self.image_shape, serving.encode
            images = augment_batch(images, batch["index"], self.augment, shape, encode, self.seed, epoch)
        return (images, batch["label"]) if "label" in batch else images

    def serving(self) -> ImageServing:
        return ImageServing(self.metadata)

    def open_input(self, source: str) -> LazyImages:
        path = Path(source).expanduser()
        files = find_images(path) if path.is_dir() else [path]
        if not files:
            raise UserError(f"--input {source}: there are no images in it; name a folder or a file")
        self._predicted = files
        return LazyImages(len(files), partial(pick, [{"image": file} for file in files]), self.metadata)

    def write_predictions(self, outputs: list[Tensor], path: str) -> None:
        """Write a file with a row per image of `predict_input`: its class, and the probability of every class.

        Args:
            outputs: Probabilities of the batches in order, each of shape (batch, class).
            path: The file, of a kind that its end tells; one that is there is replaced.

        Raises:
            UserError: A probability is not finite, or the file can't be written.
        """
        files = list(map(str, self._predicted))
        write_classes(Path(path), {"file": files}, self.class_names, torch.cat(outputs).cpu())

    # ---- shards

    def write_shards(self, folder: Path, size: int) -> None:
        if not self.is_listed:
            raise UserError("shards: they are for image files of your own; set data.path")
        splits = {}
        for split in self.sizes:
            samples = self._list_samples(split)
            if split == "train":
                random.Random(0).shuffle(samples)  # a folder lists class after class
            contents = (sample["image"].read_bytes() for sample in samples)
            labels = torch.tensor([sample["label"] for sample in samples])
            splits[split] = write_split(folder / split, "image", contents, size, labels=labels)
        mean, std = self._measure_colours()
        metadata = {**self.metadata.state_dict(), "mean": mean, "std": std}
        write_about(folder, self.item, metadata, splits)
