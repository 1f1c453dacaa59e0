"""Images and their classes, for training, evaluation and prediction."""

import hashlib
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import psutil
import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn

from litlab.data.files import Frame, Policy, UserFile, check_file
from litlab.data.generated import make_images
from litlab.data.images.augment import Augment, augment_batch
from litlab.data.images.decode import ImageMetadata, Mode, Resize, examine
from litlab.data.images.files import find_images, list_folder, list_table
from litlab.data.images.public import PublicImages
from litlab.data.images.serving import ImageServing
from litlab.data.images.shards import ShardBatches, Shards
from litlab.data.images.store import (
    LazyImages,
    StoredImages,
    classify_by_mean,
    decode_all,
    measure_colours,
)
from litlab.data.module import ExperimentData
from litlab.data.predictions import write_outputs
from litlab.data.sampler import EpochSampler
from litlab.data.split import SPLITS, split_samples
from litlab.data.target import Classes
from litlab.errors import UserError
from litlab.types import HalfOpenUnitInterval, PositiveInt, Seed
from litlab.util.classes import Balance

_IMAGENET = [[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]]
_VERSION = 6  # raise it when the arrays of the same source would come out different
_FLAT = 4.0  # grey levels: images that deviate by less were hardly saved as they were meant
_MEASURED = 2000  # images that colours are measured on, at most


class ImageData(ExperimentData):
    """Images with one class each: your own folder, table or shards, a public set (in subclasses),
    or generated.

    They are decoded once, into a cache, and stay in memory as uint8, unless `cache` says otherwise;
    batches are gathered, augmented and normalised as a whole. The model gets float32 images of
    shape (batch, channel, height, width) and int64 labels of shape (batch,); in prediction images
    only. In Python, use a Trainer with ``use_distributed_sampler=False``, as the command line does.

    Args:
        dataset: `folder` or `csv` for your own images, `shards` for those that the command
            ``shards`` has written, `generated` for made-up ones; null: what `path` tells, or the
            public data set that the class is named for.
        path: `folder`: the folder that holds train/<class>/, and optionally val/ and test/ like it.
            `csv`: the CSV, Parquet, Excel or JSON lines file, or a frame; its file names are
            relative to its folder. `shards`: their folder. Public: folder to download to (`data`
            where null).
        file_column: Column of the image file names.
        label_column: Column of the class names.
        split_column: Column that says train, val or test; null splits the rows 80/10/10, stratified
            by class.
        image_size: Height and width that all images get; null takes them as they are, and they must
            be alike. Shards have that which they were written with.
        mode: RGB or L (grey); null: L where none of 100 images has colours. Shards have that of
            their writing.
        resize: How to fit an image of another shape: crop what sticks out, stretch it, or pad it
            with black.
        normalize: What images are brought to mean 0 and deviation 1 by: `data`: mean and deviation
            of each channel over 2,000 training images; `imagenet`: those of ImageNet, as networks
            want them that were trained on it; or two lists of your own, of means and deviations of
            pixels from 0 to 1. `data` of shards is that of their writing.
        batch_size: Images per batch and process.
        val_fraction: Fraction of the training images kept for validation where there is no
            validation split; 0 for none.
        fold: Such as 0/5: the training images make five folds, of which the first is the test
            split.
        balance: Draw classes in training evenly (`even`), or by the square root of their counts
            (`sqrt`); null: as they are. An epoch keeps its length, so samples of rare classes come
            several times, others not in every epoch.
        bad_rows: Images that can't be decoded, and rows that can't be used: `error` names them,
            `drop` leaves them out and says how many there are.
        seed: Seed of the order and the augmentation; that of the run (seed_everything) when left
            out. The split is the same for every seed.
        augment: Random changes to the training images, in whole batches.
        transform: Random changes to each training image in its original size, such as those of
            torchvision.transforms.v2; with `cache: none`, or shards.
        fallback: `generated` uses made-up images where a public set can't be downloaded, and says
            so; null stops there.
        cache: `decoded`: images are decoded once and stay in memory, or in the cache where it is
            too small; `none`: your own are decoded whenever they come into a batch, by
            `num_workers`, as those in shards always are.
        cache_dir: Folder for the decoded images.
        shuffle_shards: How many shards are shuffled together: more is more random, and reads more
            files at once.
        **loader: num_workers, pin_memory, persistent_workers, prefetch_factor and drop_last, as of
            `ExperimentData`.

    Raises:
        UserError: A value is not valid; later: the data is missing, incomplete or damaged.
    """

    public: ClassVar[PublicImages | None] = None
    item = kind = "images"
    metadata_type = ImageMetadata
    own_files = ("folder", "csv", "shards")
    own_flags = "--data.dataset folder --data.path DIR"

    shards: Shards | None = None  # that the images lie in
    _serving: Any = None
    parts: dict[str, Any]  # images of each split, after `setup`

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
        # Checkpoints hold plain values only: objects from Python are left out.
        objects = ["augment", "transform", *([] if isinstance(path, str | None) else ["path"])]
        self.save_hyperparameters(logger=False, ignore=objects)
        self.choose_source(dataset, path, fallback)
        self.settings: Any = self.hparams
        self.cache_dir = Path(cache_dir).expanduser()
        if self.dataset == "shards":
            if fold or balance:
                raise UserError(
                    "data.fold, data.balance: shards come as they were written; leave them out"
                )
            self.shards = Shards(self.path)
        self.is_lazy = self.shards is not None or cache == "none"
        if transform and not self.is_lazy:
            raise UserError(
                "data.transform: it is for images that are decoded for each batch; add "
                "--data.cache none"
            )
        self.augment, self.transforms, self.balance = augment, transform, balance

    # ---- what is known before `setup`, without decoding all images

    @cached_property
    def listing(self) -> Frame | None:
        """The files of the user's own images, as `list_table` returns them."""
        if self.dataset == "folder":
            return list_folder(self.path, self.settings.bad_rows)
        return list_table(self.path, self.settings) if self.dataset == "csv" else None

    def survey(self) -> ImageMetadata:
        """Return what is known before `setup`: no colours, and `resize` only where images may be
        fitted.
        """
        return self._surveyed

    @cached_property
    def _surveyed(self) -> ImageMetadata:
        if self.shards is not None:
            return ImageMetadata(**self.shards.about["metadata"])
        names, shape, depth = [f"class {number}" for number in range(10)], (3, 32, 32), 16
        if self.listing is not None:
            names, (shape, depth) = (
                list(self.listing["label"].cat.categories),
                examine(self.listing["file"].tolist()),
            )
        elif self.public is not None:
            names, shape = list(self.public.class_names), self.public.shape

        # What is set counts.
        settings, (channels, *size) = self.settings, shape
        channels = {"L": 1, "RGB": 3, None: channels}[settings.mode]
        height, width = settings.image_size or size
        resize = settings.resize if settings.image_size else None
        return ImageMetadata(
            names, (channels, height, width), resize, depth, mean=[], std=[], generated=False
        )

    @property
    def description(self) -> str:
        """The data set in one line; with the numbers of images after `setup`."""
        return self.describe(
            f"images of {' x '.join(map(str, self.image_shape))}, {self.num_classes} classes"
        )

    @property
    def fingerprint(self) -> str:
        """Changes whenever the data or their preparation do, wherever they lie: by names and sizes
        of the files.
        """
        if self.shards is not None:
            return self.shards.about["fingerprint"]
        marks = [_VERSION, self._surveyed, self.settings.bad_rows]
        if self.listing is None:  # a public set is known by checksum
            return compute_mark(*marks, self.source_name)
        root = str(getattr(self.path, "parent", "") if self.dataset == "csv" else self.path)
        files = self.listing.assign(
            file=self.listing["file"].astype(str).str.removeprefix(root),
            status=self.listing["status"].str.partition(" ")[0],
        )
        return compute_mark(*marks, files.to_csv(index=False))

    # ---- from files to memory

    def cache_folder(self) -> Path | None:
        """Return where decoded images are kept: they are decoded again where a file was written
        since.
        """
        if self.is_lazy:
            return None
        times = [] if self.listing is None else self.listing["status"].tolist()
        return self.cache_dir / compute_mark(self.fingerprint, self.source_name, times)

    def _read_source(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return all images, files or pixels; their labels, int64 (image,); and the split of each
        so far.
        """
        if self.listing is not None:
            files, labels, given = (self.listing[name] for name in ("file", "label", "split"))
            return files.to_numpy(), labels.cat.codes.to_numpy(np.int64), given.to_numpy(str)
        if self.generated or self.public is None:
            return make_images(self.num_classes, self.image_shape)
        return self.public.read(self.path)

    def fill_cache(self, folder: Path) -> None:
        sources, labels, given = self._read_source()
        splits = np.zeros_like(given)  # bad images are in none
        stored = np.lib.format.open_memmap(
            folder / "images.npy", "w+", np.uint8, (len(labels), *self.image_shape)
        )
        for row, image in decode_all(sources, self._surveyed, self.settings.bad_rows):
            stored[row], splits[row] = image, given[row]
        np.savez(folder / "facts.npz", labels=labels, splits=splits)

    def open(self, stage: str | None) -> ImageMetadata:
        known = self._surveyed
        if self.shards is None:
            parts = self._split_images()
        else:
            parts = {}
            for split, part in self.shards.about["splits"].items():
                rows = torch.arange(len(part["labels"]))
                parts[split] = partial(self.shards.read, split), rows, part["labels"]
        kind = partial(LazyImages, form=known) if self.is_lazy else StoredImages
        self.parts = {split: kind(*part) for split, part in parts.items()}
        if self.is_lazy:
            self.parts["train"].transforms = self.transforms
        self.sizes = {split: len(part) for split, part in self.parts.items()}
        mean, std = self._choose_colours()
        return replace(
            known,
            resize=known.resize or self.settings.resize,
            mean=mean,
            std=std,
            generated=self.generated,
        )

    def _split_images(self) -> dict[str, tuple[Any, Tensor, Tensor]]:
        """Open the cache, or the source where nothing is cached, and divide what is there.

        Returns:
            For each split all images, the rows of its own, and their labels.
        """
        folder = self.cache_folder()
        if folder is None:
            images, labels, given = self._read_source()
        else:
            images = torch.from_numpy(np.load(folder / "images.npy", mmap_mode="c"))
            labels, given = np.load(folder / "facts.npz").values()
        settings = self.settings
        test_fraction = 0.1 if self.dataset == "csv" and settings.split_column is None else 0.0
        splits = split_samples(
            given, settings.val_fraction, test_fraction, labels=labels, fold=settings.fold
        )
        rows = {split: np.flatnonzero(splits == split) for split in SPLITS if split in splits}
        return {
            split: (images, torch.from_numpy(each), torch.from_numpy(labels[each]))
            for split, each in rows.items()
        }

    def _choose_colours(self) -> list[list[float]]:
        """Return mean and deviation of each channel that images are normalised by."""
        normalize = self.settings.normalize or "data"
        if normalize != "data":
            return _IMAGENET if normalize == "imagenet" else normalize
        if self.metadata is not None:  # measured once: each stage has its setup
            return [self.metadata.mean, self.metadata.std]
        return [self._surveyed.mean, self._surveyed.std] if self.shards else self._measure_colours()

    def _measure_colours(self) -> list[list[float]]:
        """Return mean and deviation of each channel over many training images."""
        train = self.parts["train"]
        images = train.images[train.rows[:: 1 + len(train) // _MEASURED].numpy()]
        if self.is_lazy:
            images = (image for _, image in decode_all(images, self._surveyed, "error"))
        mean, std = measure_colours(map(np.asarray, images))
        if max(std) < _FLAT / 255:
            rank_zero_info(
                f"warning: {self.source_name}: the images are almost of one value; look "
                "at some of them"
            )
        return [mean, std]

    def samples(self, split: str) -> StoredImages:
        part = self.parts[split]
        if self.is_lazy:
            return part
        size = part.images[0].nbytes * len(part)
        free = psutil.virtual_memory().available / getattr(self.trainer, "num_devices", 1)
        if size > free / 4:
            return part  # batches come from the file as they are needed
        return part.copy(self.augment.crop if split == "train" else 0, self.choose_device(size))

    def sampler(self, samples: Any, split: str) -> EpochSampler:
        if self.shards is None or split == "predict":
            return super().sampler(samples, split)
        sizes, together = self.shards.sizes(split), self.settings.shuffle_shards
        return ShardBatches(sizes, self.batch_size, together, **self.sampler_options(split))

    def labels(self, split: str) -> Tensor:
        return self.parts[split].labels

    def baselines(self) -> dict[str, dict[str, float]]:
        """Test results of a simple method on the same images: its ``test/acc`` and ``test/f1``."""
        if self.is_lazy or "test" not in self.sizes:
            return {}
        return {"nearest class mean": classify_by_mean(self.parts["train"], self.parts["test"])}

    # ---- from batches to predictions

    def transform(self, batch: dict[str, Tensor], epoch: int | None) -> Any:
        """Augment (in training only) and normalise a batch.

        Returns:
            Images, float32 of shape (batch, channel, height, width), and labels, int64 of shape
            (batch,); in prediction the images alone.
        """
        if getattr(self._serving, "metadata", None) is not self.metadata:
            self._serving = self.serving()
        images = batch["image"]
        serving = self._serving.to(images.device)
        if epoch is None:  # padded are the training images only; somebody may evaluate on them
            images = serving.encode(*serving.raw(batch))
        else:
            images = augment_batch(images, batch["index"], self.augment, serving, self.seed, epoch)
        return (images, batch["label"]) if "label" in batch else images

    def serving(self) -> ImageServing:
        return ImageServing(self.metadata)

    def open_input(self, source: str) -> LazyImages:
        path = Path(source).expanduser()
        self._predicted = find_images(path) if path.is_dir() else [check_file(path, "--input")]
        if not self._predicted:
            raise UserError(f"--input {source}: there are no images in it; name a folder or a file")
        files = np.array(self._predicted, object)
        return LazyImages(files, torch.arange(len(files)), form=self.metadata)

    def write_predictions(self, outputs: list[Tensor], path: str) -> None:
        """Write a file with a row per image of `predict_input`: its class, and the probability of
        every class.

        Args:
            outputs: Probabilities of the batches in order, each of shape (batch, class).
            path: The file, of a kind that its end tells; one that is there is replaced.

        Raises:
            UserError: A probability is not finite, or the file can't be written.
        """
        files = list(map(str, self._predicted))
        target = Classes([self.hparams["label_column"]], self.class_names)
        write_outputs(Path(path), {"file": files}, target, torch.cat(outputs).cpu())


def compute_mark(*facts: Any) -> str:
    """Return a short name that changes with any of some facts."""
    return f"images-{hashlib.sha256(repr(facts).encode()).hexdigest()[:12]}"
