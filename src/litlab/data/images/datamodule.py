"""Images and their classes, for training, evaluation and prediction."""

from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor
from torch.utils.data import DataLoader

from litlab.data.bad_rows import Policy, count_text
from litlab.data.cache import alone_in, damage, is_whole
from litlab.data.images.augment import Augment, augmented, centre, normalise
from litlab.data.images.catalog import Catalog, check_same
from litlab.data.images.decode import ImageFormat, Mode, Resize
from litlab.data.images.memory import StoredImages, mean_std
from litlab.data.images.predictions import ImageFiles, find_images, readable, write_csv
from litlab.data.images.sources import Source
from litlab.data.images.stored import load, store
from litlab.data.module import ExperimentData
from litlab.data.paths import user_path
from litlab.data.sampler import EpochBatches
from litlab.data.split import partition
from litlab.errors import UserError

_SPLITS = {"fit": ("train", "val"), "validate": ("val",), "test": ("test",)}


class ImageData(ExperimentData):
    """Images with one class each: a public data set, your own folder or CSV file, or generated.

    They are decoded once, into a cache, and stay in memory as uint8; batches are gathered, augmented and normalised
    as a whole. The model gets float32 images of shape (batch, channel, height, width) and int64 labels of shape
    (batch,); in prediction images only. Use the trainer with ``use_distributed_sampler=False``.

    Args:
        dataset: A public data set by its name, `folder` or `csv` for your own images, `generated` for made-up ones.
        path: Public sets: folder to download to (`data` where null). `folder`: the folder that holds train/<class>/,
            and optionally val/ and test/ like it. `csv`: the CSV file; its file names are relative to its folder.
        file_column: CSV column of the image file names.
        label_column: CSV column of the class names.
        split_column: CSV column that says train, val or test; null splits the rows 80/10/10, each class alike.
        image_size: Height and width that all images get; null takes them as they are, and they must be alike.
        mode: RGB or L (grey); null takes the images as they are, and they must be alike.
        resize: How to fit an image of another shape: crop what sticks out, stretch it, or pad it with black.
        batch_size: Images per batch and process.
        val_fraction: Share of the training images kept for validation where there is no validation split; 0 for none.
        bad_rows: Images that can't be decoded, and CSV rows that can't be used: `error` names them, `drop` goes on
            without them and says how many there are.
        seed: Seed of the order and the augmentation; that of the run (seed_everything) when left out. The split is the
            same for every seed.
        augment: Random changes to the training images.
        fallback: `generated` uses made-up images where a public set can't be had, and says so; null stops there.
        device_memory_fraction: The images are kept on the GPU when they fit into this share of its free memory.
        cache_dir: Folder for the decoded images.
        **loader: num_workers, pin_memory, persistent_workers and prefetch_factor, as of `ExperimentData`.

    Raises:
        UserError: A value makes no sense; later: the data is missing, incomplete or damaged.
    """

    def __init__(
        self,
        dataset: Literal["cifar10", "cifar100", "mnist", "fashion_mnist", "folder", "csv", "generated"] = "cifar10",
        path: str | None = None,
        file_column: str = "file",
        label_column: str = "label",
        split_column: str | None = None,
        image_size: tuple[int, int] | None = None,
        mode: Mode | None = None,
        resize: Resize = "crop",
        batch_size: int = 512,
        val_fraction: float = 0.1,
        bad_rows: Policy = "error",
        seed: int | None = None,
        augment: Augment = Augment(),  # noqa: B008 - it is frozen
        fallback: Literal["generated"] | None = None,
        device_memory_fraction: float = 0.25,
        cache_dir: str = "data/cache",
        **loader: Any,
    ) -> None:
        super().__init__(**loader)
        self.augment = Augment(**augment) if isinstance(augment, dict) else augment
        augment = asdict(self.augment)  # type: ignore[assignment]  # checkpoints hold plain values only
        self.save_hyperparameters(logger=False)  # the model has settings of the same names, perhaps from a checkpoint
        for name, value, good in (
            ("path", path, path is not None or dataset not in ("folder", "csv")),
            ("image_size", image_size, image_size is None or min(image_size) >= 1),
            ("batch_size", batch_size, batch_size >= 1),
            ("val_fraction", val_fraction, 0 <= val_fraction < 1),
        ):
            if not good:
                needed = f"; dataset {dataset} needs your folder or file" if name == "path" else ""
                raise UserError(f"data.{name}: {'null' if value is None else value} is not valid{needed}")
        size = None if image_size is None else (image_size[0], image_size[1])
        place = user_path(path or "data", "data.path")
        self.catalog = Catalog(dataset, place, file_column, label_column, split_column, size, mode, resize, bad_rows)
        self.cache_dir = user_path(cache_dir, "data.cache_dir")
        self.batch_size = batch_size
        self.val_fraction = val_fraction
        self.seed = seed or 0
        self.fallback: Literal["generated"] | None = fallback
        self.device_memory_fraction = device_memory_fraction

        self.generated = dataset == "generated"
        self.sizes: dict[str, int] = {}
        self._dropped = 0  # rows and images
        self._sets: dict[str, StoredImages] = {}
        self._predicted: list[Path] = []
        self._state: dict[str, Any] = {}  # see state_dict
        self._restored = False
        self._constants: tuple[Tensor, Tensor] | None = None  # mean and deviation on the device

    # ---- facts that are known before any image is decoded

    @property
    def class_names(self) -> list[str]:
        """Name of each class, in the order of the labels; those of the checkpoint where one was loaded."""
        if self._restored:
            return list(self._state["class_names"])
        return self._source.class_names if self.generated else self.catalog.class_names

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(channel, height, width) of the images that the model gets; of the checkpoint's where one was loaded."""
        if self._restored:
            channels, height, width = self._state["image_shape"]
            return channels, height, width
        return self.catalog.form.shape

    @property
    def mean(self) -> list[float]:
        """Mean of each channel, of pixels from 0 to 1, that normalisation takes away; known after `setup`."""
        return list(self._state["mean"])

    @property
    def std(self) -> list[float]:
        """Standard deviation of each channel, of pixels from 0 to 1, that normalisation divides by; after `setup`."""
        return list(self._state["std"])

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
        name = self.catalog.describe(self.generated)
        counts = " / ".join(f"{count:,} {split}" for split, count in self.sizes.items())
        shape = " x ".join(map(str, self.image_shape))
        facts = f"images of {shape}, {self.num_classes} classes{count_text(self._dropped)}"
        return f"{name}: {counts + ' ' if counts else ''}{facts}"

    @property
    def _source(self) -> Source:
        return self.catalog.stand_in if self.generated else self.catalog.source

    @property
    def fingerprint(self) -> str:
        """Changes whenever the data or their preparation do."""
        return self._source.folder(self.cache_dir).name

    # ---- from files to memory

    def prepare_data(self) -> None:
        """Download and decode what is not in the cache yet, or resort to generated images. Runs on one process."""
        if self.trainer is not None and self.trainer.predicting:
            return
        if damage(self._source.folder(self.cache_dir)) is not None:
            with alone_in(self.cache_dir):
                self._fill_cache()

    def _fill_cache(self) -> None:
        stored = is_whole(self._source.folder(self.cache_dir))
        if not stored and not self.generated and not self.catalog.ensure_downloaded(self.fallback):
            self.generated = True
            stored = is_whole(self._source.folder(self.cache_dir))
        if not stored:
            store(self._source, self.cache_dir)

    def setup(self, stage: str | None = None) -> None:
        """Open the cache, split, and bring into memory what the stage needs.

        Args:
            stage: "fit", "validate", "test" or "predict"; None: all but prediction.

        Raises:
            UserError: There are no images for this stage.
        """
        if stage == "predict":
            return
        if self.trainer is not None:
            self.generated = self.trainer.strategy.broadcast(self.generated)
        stored = load(self._source, self.cache_dir)
        self._dropped = stored.dropped
        for note in stored.notes:
            rank_zero_info(note)
        self.augment.check(stored.shape)
        test_fraction = 0.1 if self.catalog.unsplit and not self.generated else 0.0
        rows = partition(stored.labels, self.val_fraction, test_fraction, seed=0)
        self.sizes = {split: len(part) for split, (_, part) in rows.items()}
        if not self._restored:
            origin, part = rows["train"]
            mean, std = mean_std(stored.sums[origin][part.numpy()], stored.shape[1] * stored.shape[2])
            self._state = {
                "class_names": stored.class_names,
                "mean": mean,
                "std": std,
                "image_shape": list(stored.shape),
                "mode": self.catalog.form.mode,
                "resize": self.catalog.resize,
                "generated": self.generated,
            }
        processes = 1 if self.trainer is None else max(1, self.trainer.num_devices)
        device = torch.device("cpu") if self.trainer is None else self.trainer.strategy.root_device
        for split in _SPLITS[stage] if stage else ("train", "val", "test"):
            if split in rows:
                origin, part = rows[split]
                whole = len(part) == len(stored.labels[origin])
                images = StoredImages(stored.images[origin], stored.labels[origin][part], None if whole else part)
                images = images.in_memory(self.augment.crop if split == "train" else 0, processes)
                self._sets[split] = images.on_device(device, self.device_memory_fraction)
            elif stage == split or (stage, split) == ("validate", "val"):
                remedy = " or set data.val_fraction above 0" if split == "val" else ""
                raise UserError(f"data.path: {self.catalog.path} has no {split} images; add some{remedy}")

    def teardown(self, stage: str) -> None:
        """Let go of the images.

        Args:
            stage: What has ended.
        """
        self._sets.clear()

    # ---- batches

    def train_dataloader(self) -> DataLoader[Any]:
        """Batches of the training images, in an order that depends on (seed, epoch) only."""
        return self._loader(self._sets["train"], "train")

    def val_dataloader(self) -> DataLoader[Any] | list[Any]:
        """Batches of the validation images; none where there is no validation split."""
        if "val" in self._sets:
            return self._loader(self._sets["val"], "val")
        return self.no_loader()

    def test_dataloader(self) -> DataLoader[Any]:
        """Batches of the test images."""
        return self._loader(self._sets["test"], "test")

    def predict_dataloader(self) -> DataLoader[Any]:
        """Batches of the images that `predict_input` names, decoded when they are needed."""
        source = self.check_prediction(self._restored, "a folder, a file or a pattern")
        _, height, width = self.image_shape
        form = ImageFormat(height, width, self._state["mode"], self._state["resize"], convert=True)
        self._predicted = find_images(source)
        if self.catalog.bad_rows == "drop" or self.num_workers:  # an error in a worker would come with its traceback
            self._predicted = readable(self._predicted, form, source, self.catalog.bad_rows)
        return self._loader(ImageFiles(self._predicted, form, source), "predict")

    def _loader(self, dataset: StoredImages | ImageFiles, split: str) -> DataLoader[Any]:
        sampler = EpochBatches(len(dataset), self.batch_size, **self.sampler_options(split, "images"))
        in_host_memory = not isinstance(dataset, StoredImages) or dataset.images.device.type == "cpu"
        return self.loader(dataset, sampler, in_host_memory)

    def on_after_batch_transfer(self, batch: dict[str, Tensor], dataloader_idx: int) -> Any:
        """Augment (in training only) and normalise a batch on the device where it is used.

        Args:
            batch: What the data set returned.
            dataloader_idx: Number of the loader.

        Returns:
            Images, float32 of shape (batch, channel, height, width), and labels, int64 of shape (batch,); in
            prediction the images alone.
        """
        images = batch["image"]
        _, height, width = self.image_shape
        if self._constants is None or self._constants[0].device != images.device:
            mean, std = (torch.tensor(self._state[key], device=images.device) for key in ("mean", "std"))
            self._constants = mean, std
        if self.trainer is not None and self.trainer.training:
            images = augmented(
                images,
                batch["index"],
                self.augment,
                (height, width),
                *self._constants,
                seed=self.seed,
                epoch=self.trainer.current_epoch,
            )
        else:  # padded are the training images only; somebody may evaluate on them
            images = normalise(centre(images, height, width), *self._constants)
        return (images, batch["label"]) if "label" in batch else images

    # ---- what a checkpoint needs to serve raw images

    def state_dict(self) -> dict[str, Any]:
        """Class names, mean and deviation (on a scale of 0 to 1), image shape, mode, resize, whether generated."""
        return dict(self._state)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what the checkpoint was trained with.

        Args:
            state_dict: What `state_dict` returned.

        Raises:
            UserError: The data at hand have other classes or another shape.
        """
        if self._state:
            check_same(state_dict, self._state)
        self._state = dict(state_dict)
        self._restored = True
        self._constants = None

    def write_predictions(self, outputs: list[Tensor], path: str) -> None:
        """Write a CSV file with a row per image of `predict_input`: its class, and the probability of every class.

        Args:
            outputs: Probabilities of the batches in order, each of shape (batch, class).
            path: The file; one that is there is replaced.

        Raises:
            UserError: It can't be written.
        """
        write_csv(Path(path), self._predicted, self.class_names, torch.cat([output.cpu() for output in outputs]))
