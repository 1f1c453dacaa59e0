"""Images and what is to be predicted of them, for training, evaluation and prediction."""

from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn

from litlab.data.files import Frame, UserFile, check_file, name_source
from litlab.data.generated import make_images
from litlab.data.images.augment import Augment, augment_batch, check_augment
from litlab.data.images.decode import (
    ImageMetadata,
    Mode,
    Resize,
    decode_good,
    drop_bad_images,
    examine,
    is_image,
    measure_depth,
)
from litlab.data.images.files import (
    TABLES,
    Listing,
    find_images,
    list_folder,
    list_parquet,
    list_table,
    warn_of_copies,
)
from litlab.data.images.public import PublicImages
from litlab.data.images.serving import ImageServing
from litlab.data.images.shards import ShardBatches, list_shards
from litlab.data.images.store import (
    LazyImages,
    StoredImages,
    decode_all,
    find_nearest_mean,
    measure_colours,
)
from litlab.data.predictions import name_rows
from litlab.data.sampler import EpochSampler
from litlab.data.split import SPLITS
from litlab.data.store import fill_cache, name_cache
from litlab.data.target import Classes
from litlab.data.user_data import Table, UserData
from litlab.errors import UserError
from litlab.types import HalfOpenUnitInterval, PositiveInt
from litlab.util.limits import find_memory

# Mean and deviation of red, green and blue, as torchvision states them
_IMAGENET = [[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]]
# What made-up images look like, where no public set says so
_MADE_UP = PublicImages("", "", (), tuple(f"class {number}" for number in range(10)), (3, 32, 32))
_VERSION = 8  # raise it when the arrays of the same source would come out different
_FLAT = 4.0  # grey levels: images that deviate by less were hardly saved as they were meant
_MEASURED = 2000  # images that colours are measured on, at most


class ImageData(UserData):
    """Images with a class, numbers or labels each: your own folder, table, Parquet or shards, a
    public set (in subclasses), or generated.

    They are decoded once, into a cache, and stay in memory as uint8, unless `cache` says otherwise;
    batches are gathered, augmented and normalised as a whole. The model gets float32 images of
    shape (batch, channel, height, width) and the target, for classes int64 of shape (batch,); in
    prediction images only. In Python, use a Trainer with ``use_distributed_sampler=False``, as the
    command line does.

    Args:
        dataset: `folder`, `csv` or `shards` for your own images, `generated` for made-up ones;
            null: what `path` tells, or the public data set that the class is named for.
        path: `folder`: the folder that holds train/<class>/, and optionally val/ and test/ like it;
            or <class>/ alone, split by the fractions below.
            `csv`: the CSV, Parquet, Excel or JSON lines file, or a frame; its file names are
            relative to its folder. Or Parquet that holds the images, one file, or a folder of
            train-*.parquet and test-*.parquet. `shards`: the folder of tar files, or a single one,
            as the command ``shards`` or WebDataset writes them. Public: folder to download to
            (`data` where null).
        file_column: Column of the image file names.
        image_size: Height and width that all images get; null takes them as they are, and they must
            be alike.
        mode: RGB or L (grey); null: L where none of 100 images has colours; others that have some
            can't be used then.
        resize: How to fit an image of another shape: crop what sticks out, stretch it, or pad it
            with black.
        normalize: What images are brought to mean 0 and deviation 1 by: `data`: mean and deviation
            of each channel over 2,000 training images; `imagenet`: those of ImageNet, as networks
            want them that were trained on it; or two lists of your own, of means and deviations of
            pixels from 0 to 1.
        batch_size: Images per batch and process.
        test_fraction: Fraction of the images kept for the test, where there is no test split; null:
            0.1, and none where folders or file names say what is for training.
        augment: Random changes to the training images, in whole batches.
        transform: Random changes to each training image in its original size, such as those of
            torchvision.transforms.v2; with `cache: none`, or shards.
        fallback: `generated` uses made-up images where a public set can't be downloaded, and says
            so; null stops there.
        cache: `decoded`: images are decoded once and stay in memory, or in the cache where it is
            too small; `none`: your own are decoded whenever they come into a batch, by
            `num_workers`, as those in shards always are. With `bad_rows: drop` they are looked at
            once before.
        cache_dir: Folder for the decoded images.
        shuffle_shards: How many shards are shuffled together: more is more random, and reads more
            files at once.
        **options: What is predicted, read and split, as of `UserData`.

    Raises:
        UserError: A value is not valid; later: the data is missing, incomplete or damaged.
    """

    public: ClassVar[PublicImages | None] = None
    item = kind = "images"
    metadata_type = ImageMetadata
    own_files = ("folder", "csv", "shards")
    own_flags = "--data.dataset folder --data.path DIR"

    _serving: Any = None

    def __init__(
        self,
        dataset: Literal["folder", "csv", "shards", "generated"] | None = None,
        path: UserFile | None = None,
        *,
        file_column: str = "file",
        image_size: tuple[PositiveInt, PositiveInt] | None = None,
        mode: Mode | None = None,
        resize: Resize = "crop",
        normalize: Literal["imagenet", "data"] | list[list[float]] = "data",
        batch_size: PositiveInt = 512,
        test_fraction: HalfOpenUnitInterval | None = None,
        augment: Augment = Augment(),  # noqa: B008 - it is frozen
        transform: list[nn.Module] = [],  # noqa: B006 - it is only read
        fallback: Literal["generated"] | None = None,
        cache: Literal["decoded", "none"] = "decoded",
        cache_dir: str = "data/cache",
        shuffle_shards: PositiveInt = 8,
        **options: Any,
    ) -> None:
        # What null stands for is known once the files are listed, see `_table`
        super().__init__(batch_size=batch_size, test_fraction=test_fraction or 0.0, **options)
        # Checkpoints hold plain values only: objects from Python are left out.
        objects = ["augment", "transform", *([] if isinstance(path, str | None) else ["path"])]
        self.save_hyperparameters(logger=False, ignore=objects)
        self.choose_source(dataset, path, fallback)
        self.settings: Any = self.hparams
        self.file_column, self.cache_dir = file_column, Path(cache_dir).expanduser()
        if self.dataset == "shards" and self.balance:
            raise UserError("data.balance: shards come as they were written; leave it out")
        self.is_lazy = self.dataset == "shards" or cache == "none"
        if transform and not self.is_lazy:
            raise UserError(
                "data.transform: it is for images that are decoded for each batch; add "
                "--data.cache none"
            )
        self.augment, self.transforms = augment, transform
        self.by_split: dict[str, Any] = {}  # `StoredImages` or `LazyImages`, after `setup`

    def _guess_dataset(self, source: Any) -> str | None:
        # Folders of classes may have anything beside them, so train/<class>/ comes first. Else tar
        # files or Parquet tell, or images in folders
        if isinstance(source, Path) and not any(source.glob("train/*/")):
            for kind, suffix in (("shards", ".tar"), ("csv", ".parquet")):
                inside = any(any(source.glob(pattern + suffix)) for pattern in ("*", "*/*"))
                if inside or source.suffix.lower() == suffix:
                    return kind
            if any(is_image(file.name) for file in source.glob("*/*")):
                return "folder"
        return super()._guess_dataset(source)

    @property
    def is_own(self) -> bool:
        """Whether the images are the user's own, not public or made up."""
        return self.dataset in self.own_files

    # ---- what is known before `setup`, without decoding all images

    @cached_property
    def listing(self) -> Listing:
        """The images, and what is known of them; public ones are there after `prepare_data`."""
        if self.dataset == "folder":
            return list_folder(self.path, self.file_column, self.targets[0])
        if self.dataset == "shards":
            return list_shards(self.path, self.cache_dir, self.file_column, self.targets[0])
        if self.dataset == "csv":
            return self._list_table(self.path, "data.path")
        return self._list_public(self.cache_folder())

    def _list_table(self, source: UserFile, setting: str) -> Listing:
        # Parquet may hold the images; any other table names their files
        folder = Path()
        if isinstance(source, Path):
            folder, parquet = source.parent, list_parquet(source, self.file_column)
            if parquet is not None:
                return parquet
        cells, where = self.read_cells(source, setting), name_source(source, setting)
        return list_table(cells, where, folder, self.file_column)

    def _list_public(self, cache: Path | None) -> Listing:
        """List public or made-up images, from the cache if there is one: then without images."""
        import pandas as pd

        if cache is not None:
            facts = pd.read_parquet(cache / "facts.parquet")
            # `given` is the split that the public set comes with
            return Listing(facts, None, [*facts.index], [], facts["given"].to_numpy())
        if self.generated or self.public is None:
            images, labels, predefined = make_images(self.num_classes, self.image_shape)
        else:
            images, labels, predefined = self.public.read(self.path)
        cells = pd.DataFrame({self.targets[0]: np.array(self.class_names)[labels]})
        return Listing(cells, images, [*cells.index], [], predefined)

    @cached_property
    def _table(self) -> Table:
        """Which of the images is in which split, and what is to be predicted of it."""
        cells, predefined = self.listing.cells, self.listing.predefined
        if not self.is_own:
            # The classes of a public set have a published order, which need not be alphabetic
            return self.split_known(cells, self._surveyed.target, predefined)
        # Without any word on what is for training, some images are kept for the test
        if self.settings.test_fraction is None and predefined is None:
            self.split = replace(self.split, test=0.1)
        return self.fit_table(cells, {self.file_column: "text"}, predefined)

    def survey(self) -> ImageMetadata:
        """Return what is known before `setup`: all but the colours."""
        return self._surveyed

    @cached_property
    def _surveyed(self) -> ImageMetadata:
        # What the images themselves say; the shape of a public set is known without them
        settings, depth = self.settings, None
        if self.is_own:
            described = self.describe_columns(self._table)
            count, is_resized = len(self.listing.names), settings.image_size is not None
            shape, is_deep = examine(self.listing.images, count, is_resized=is_resized)
            depth = self._find_depth() if is_deep else None
        else:
            self.check_public()
            public = self.public or _MADE_UP
            described: dict[str, Any] = {"target": Classes(self.targets, list(public.class_names))}
            shape = public.shape

        # What is set counts. Nobody chose the size of a public set: new images are fitted to it
        channels, *size = shape
        channels = {"L": 1, "RGB": 3, None: channels}[settings.mode]
        height, width = settings.image_size or size
        return ImageMetadata(
            **described,
            image_shape=(channels, height, width),
            resize=settings.resize if settings.image_size or not self.is_own else None,
            depth=depth,
            refuses_colours=self.is_own and channels == 1 and settings.mode is None,
            # Measured in `setup`, when the images are decoded
            mean=[],
            std=[],
        )

    def _find_depth(self) -> int:
        """Return the bits that are in use, by all images: looked for once."""
        images, names = self.listing.images, self.listing.names
        folder = self.cache_dir / name_cache("images", "depth", names, self.listing.status)
        depth = Path("depth.txt")

        def fill(folder: Path) -> None:
            (folder / depth).write_text(str(measure_depth(images, len(names))))

        fill_cache(folder, fill)
        return int((folder / depth).read_text())

    @property
    def description(self) -> str:
        """The data set in one line; with the numbers of images after `setup`."""
        shape = " x ".join(map(str, self.image_shape))
        return self.describe(f"images of {shape}, {self.facts.target.summary}")

    @property
    def fingerprint(self) -> str:
        """Changes whenever the data or their preparation do, wherever they lie: by names and sizes
        of the files.
        """
        marks = ["images", _VERSION, self._surveyed, self.bad_rows]
        if not self.is_own:  # a public set is known by checksum
            return name_cache(*marks, self.source_name)
        sizes = [status.partition(" ")[0] for status in self.listing.status]
        table = self._table
        cells = table.inputs.to_csv(), table.outcomes.to_csv()
        return name_cache(*marks, sizes, *cells, table.split.tolist())

    # ---- from files to memory

    def cache_folder(self) -> Path | None:
        """Return where decoded images are kept, or which can't be: those of the same files in the
        same format, whatever the splits and the target are.
        """
        # Images that stay as they are need no cache, but a list of those that can't be decoded
        if self.is_lazy and not (self.is_own and self.bad_rows == "drop"):
            return None
        metadata = self._surveyed
        form = metadata.image_shape, metadata.resize, metadata.depth, metadata.refuses_colours
        source = self.source_name, self.public
        if self.is_own:
            source = self.listing.names, self.listing.status
        return self.cache_dir / name_cache("images", _VERSION, self.is_lazy, *form, *source)

    def fill_cache(self, folder: Path) -> None:
        """Write ``images.npy``, and ``facts.parquet``: of each image the digest of its pixels, or
        what is wrong with it; of public ones also their classes and splits.
        """
        listing = self.listing if self.is_own else self._list_public(None)
        file = None if self.is_lazy else folder / "images.npy"
        facts = decode_all(listing.images, len(listing.names), self._surveyed, file)
        # Refused before anything is kept; images that are to be dropped are named in each `setup`
        if self.bad_rows == "error":
            self._drop_bad_images(facts, listing)
        # Public sets are not read again once they are in the cache
        if not self.is_own:
            facts = facts.join(listing.cells).assign(given=listing.predefined)
        facts.to_parquet(folder / "facts.parquet")

    def _drop_bad_images(self, facts: Frame, listing: Listing) -> None:
        problems = facts["problem"].dropna().to_dict()
        drop_bad_images(listing.names, problems, self._surveyed, self.bad_rows, "data.path")

    def open(self, stage: str | None) -> ImageMetadata:
        check_augment(self.augment, self._surveyed)  # before any image is decoded
        if not self.by_split:  # each stage has its setup
            self._divide()
        mean, std = self._choose_colours()
        if self.is_lazy:
            self.by_split["train"].transforms = self.transforms
        return replace(self._surveyed, mean=mean, std=std)

    def _divide(self) -> None:
        """Give each split its images; tell of those that can't be used, and of copies."""
        import pandas as pd

        # The images as files or bytes, which are decoded batch by batch
        folder, listing, table = self.cache_folder(), self.listing, self._table
        images, digests, split = listing.images, listing.digests, table.split
        kind: Any = partial(LazyImages, form=self._surveyed)
        # Rows that were bad are not in the table: for each that is, the number of its image
        numbers = listing.cells.index.get_indexer(table.outcomes.index)

        # Or as pixels in the cache
        if folder is not None:
            facts = pd.read_parquet(folder / "facts.parquet")
            # Images that can't be decoded are in no split
            self._drop_bad_images(facts, listing)
            split = np.where(facts["problem"].notna()[numbers], "", split)
            digests = facts["digest"].to_numpy()
            if not self.is_lazy:
                # "c": torch wants memory that can be written to, and the file stays as it is
                images = torch.from_numpy(np.load(folder / "images.npy", mmap_mode="c"))
                kind = StoredImages

        if digests is not None and self.is_own:
            names = np.array(listing.names, object)[numbers]
            rows = {"name": names, "digest": digests[numbers], "split": split}
            rows = pd.DataFrame(rows, table.outcomes.index)
            warn_of_copies(rows, table.outcomes, self.source_name)

        # Images and targets of each split that has some
        targets = self.facts.target.encode(table.outcomes)
        for name in SPLITS:
            is_in = split == name
            if is_in.any():
                positions = torch.from_numpy(numbers[is_in])
                self.by_split[name] = kind(images, positions, torch.from_numpy(targets[is_in]))
                self.sizes[name] = len(positions)
        # Whole splits may be lost where bad images are left out
        if "train" not in self.sizes:
            raise UserError("data.path: none of the training images can be used; replace them")

    def _choose_colours(self) -> list[list[float]]:
        """Return mean and deviation of each channel that images are normalised by."""
        # What is set
        normalize = self.settings.normalize
        if normalize != "data":
            colours = _IMAGENET if normalize == "imagenet" else normalize
            channels = self._surveyed.image_shape[0]
            if len(colours) != 2 or not min(colours[1], default=0) > 0:
                raise UserError(
                    f"data.normalize: {colours} is not valid; give two lists, the means and the "
                    "deviations, which are above 0"
                )
            if {*map(len, colours)} != {channels}:
                raise UserError(
                    f"data.normalize: it has means and deviations of {len(colours[0])} channels, "
                    f"and the images have {channels}; set --data.mode "
                    f"{'RGB' if channels == 1 else 'L'}, or as many as there are"
                )
            return colours

        # What a checkpoint has, or an earlier stage has measured
        if self.metadata is not None:
            return [self.metadata.mean, self.metadata.std]

        # What training images say; those that are not in the cache are decoded for it
        train = self.by_split["train"]
        positions = train.positions[:: 1 + len(train) // _MEASURED].numpy()
        if self.is_lazy:
            names, policy = self.listing.names, self.bad_rows
            decoded = decode_good(
                train.images, names, self._surveyed, positions, policy, "data.path"
            )
            mean, std = measure_colours(image for _, image in decoded)
        else:
            mean, std = measure_colours(train.images[positions].numpy())
        if max(std) < _FLAT / 255:
            rank_zero_info(
                f"warning: {self.source_name}: the images are almost of one value; look "
                "at some of them"
            )
        return [mean, std]

    def samples(self, split: str) -> StoredImages:
        images = self.by_split[split]
        if self.is_lazy:
            return images
        # A copy in memory, with the border that random crops need, unless it is too large: then
        # batches come from the file as they are needed. Processes of this machine share its memory
        size = images.images[0].nbytes * len(images)
        free = find_memory()[1] / getattr(self.trainer, "num_devices", 1)
        if size > free / 4:
            return images
        return images.copy(self.augment.crop if split == "train" else 0, self.choose_device(size))

    def sampler(self, samples: Any, split: str) -> EpochSampler:
        if self.dataset != "shards" or split == "predict":
            return super().sampler(samples, split)
        # How many samples of this split each shard has
        shards = self.listing.images.entries[samples.positions, 0]
        sizes = np.unique(shards, return_counts=True)[1].tolist()
        together = self.settings.shuffle_shards
        return ShardBatches(sizes, self.batch_size, together, **self.sampler_options(split))

    def labels(self, split: str) -> Tensor | None:
        return self.by_split[split].targets if self.class_names else None

    def baselines(self) -> dict[str, dict[str, float]]:
        """Test results of a guess; and for classes of the nearest mean of a class's images."""
        if "test" not in self.sizes:
            return {}
        train, test, target = self.by_split["train"], self.by_split["test"], self.facts.target
        truth = test.targets.numpy()
        guess = target.score_guess(train.targets.numpy(), truth)
        if self.is_lazy or not isinstance(target, Classes):
            return guess
        nearest = find_nearest_mean(train, test)
        return guess | {"nearest class mean": target.score(nearest, truth)}

    # ---- from batches to predictions

    def transform(self, batch: dict[str, Tensor], epoch: int | None) -> Any:
        """Augment (in training only) and normalise a batch.

        Returns:
            Images, float32 of shape (batch, channel, height, width), and their target; in
            prediction the images alone.
        """
        # The metadata of a checkpoint may have taken the place of what was measured
        if getattr(self._serving, "metadata", None) is not self.metadata:
            self._serving = ImageServing(self.metadata)
        images = batch["image"]
        serving = self._serving.to(images.device)
        if epoch is None:
            # Training images have a border, which is cut off where somebody evaluates on them
            images = serving.encode(*serving.raw(batch))
        else:
            images = augment_batch(images, batch["index"], self.augment, serving, self.seed, epoch)
        return (images, batch["target"]) if "target" in batch else images

    @property
    def served(self) -> ImageMetadata:
        """The metadata for new images: with `image_size` set, those of other sizes are fitted;
        those with colours become grey where the others are.
        """
        settings = self.settings
        resize = self.metadata.resize or (settings.resize if settings.image_size else None)
        return replace(self.metadata, resize=resize, refuses_colours=False)

    def serving(self) -> ImageServing:
        return ImageServing(self.served)

    def open_input(self, source: str) -> LazyImages:
        """Open what ``predict --input`` names: a folder, an image, or a table or Parquet as
        training has.
        """
        import pandas as pd

        # A table is listed as in training, with its ids; of files the name is all there is
        path, row_names = Path(source).expanduser(), {}
        if path.suffix in TABLES and not path.is_dir():
            listing = self._list_table(check_file(path, "--input"), "--input")
            row_names = name_rows(listing.cells, self.id_column, "--input")
        else:
            files = find_images(path) if path.is_dir() else [check_file(path, "--input")]
            cells = pd.DataFrame({self.file_column: files})
            listing = list_table(cells, "--input", Path(), self.file_column)
        images, names = listing.images, listing.names
        if not names:
            raise UserError(f"--input {source}: there are no images in it; name a folder or a file")

        # Those that are to be left out have to be known before the first batch, so all are decoded
        # once; else the first bad one ends the prediction when its batch is made
        positions = [*range(len(names))]
        if self.bad_rows == "drop":
            good = decode_good(images, names, self.served, positions, "drop", "--input")
            positions = [position for position, _ in good]
        self.row_names = {
            name: [cells[position] for position in positions]
            for name, cells in {**row_names, "file": names}.items()
        }
        return LazyImages(images, torch.tensor(positions), form=self.served)
