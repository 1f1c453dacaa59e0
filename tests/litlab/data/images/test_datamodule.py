"""ImageData as a whole: through a trainer, as a run uses it."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from litlab.data import Augment
from litlab.data.images import datamodule, stored
from litlab.errors import UserError
from tests.litlab.data.conftest import Recorder, a_rank
from tests.litlab.data.images.conftest import folder_data, pixels, write_image


def test_facts_are_known_before_anything_is_decoded(make_data, image_folder):
    data = folder_data(make_data, image_folder)
    assert data.num_classes == 2
    assert data.class_names == ["cat", "dog"]
    assert data.image_shape == (3, 8, 6)
    assert data.has_val
    assert data.has_test
    assert not data.generated
    assert not data.cache_dir.exists()
    assert make_data().image_shape == (3, 32, 32)
    assert make_data(dataset="mnist").image_shape == (1, 28, 28)
    assert make_data(dataset="mnist", mode="RGB", image_size=(32, 30)).image_shape == (3, 32, 30)
    assert make_data(dataset="cifar100").num_classes == 100


def test_folder_through_a_run(make_data, make_trainer, image_folder):
    data, model = folder_data(make_data, image_folder), Recorder()
    trainer = make_trainer(max_epochs=2)
    trainer.fit(model, data)
    assert data.description == (f"folder {image_folder}: 27 train / 3 val / 6 test images of 3 x 8 x 6, 2 classes")
    assert [len(images) for images, _ in model.seen["train", 0]] == [4] * 6  # the incomplete batch is dropped
    assert model.images("train").dtype == torch.float32
    assert model.images("train").is_contiguous()
    assert model.labels("train").dtype == torch.int64
    assert not model.images("train", 0).equal(model.images("train", 1))
    assert torch.bincount(model.labels("val")).tolist() == [2, 1]
    assert model.images("val", 0).equal(model.images("val", 1))
    trainer.test(model, data, verbose=False)
    assert torch.bincount(model.labels("test", 2)).tolist() == [4, 2]


def test_images_are_normalised_by_the_training_split(make_data, make_trainer, image_folder):
    data, model = folder_data(make_data, image_folder, batch_size=27), Recorder()
    trainer = make_trainer()
    trainer.fit(model, data)
    images = model.images("train").double()
    torch.testing.assert_close(images.mean((0, 2, 3)), torch.zeros(3).double(), atol=1e-5, rtol=0)
    torch.testing.assert_close(images.std((0, 2, 3), correction=0), torch.ones(3).double(), atol=1e-5, rtol=0)
    trainer.test(model, data, verbose=False)
    state = data.state_dict()
    mean, std = (torch.tensor(state[key])[:, None, None] for key in ("mean", "std"))
    first = model.images("test", 1)[0]
    torch.testing.assert_close(first, (pixels(image_folder / "test/cat/00.png") / 255 - mean) / std)


def test_augmentation_is_for_training_only(make_data, make_trainer, image_folder):
    augment = Augment(crop=2, flip="random", cutout=3)
    plain, changed = ((folder_data(make_data, image_folder, augment=a), Recorder()) for a in (Augment(), augment))
    for data, model in (plain, changed):
        trainer = make_trainer()
        trainer.fit(model, data)
        trainer.validate(model, data, verbose=False)
        trainer.test(model, data, verbose=False)
    assert plain[1].labels("train").equal(changed[1].labels("train"))
    assert not plain[1].images("train").equal(changed[1].images("train"))
    for stage, epoch in (("sanity", 0), ("val", 0), ("val", 1), ("test", 1)):
        assert plain[1].images(stage, epoch).equal(changed[1].images(stage, epoch))


def test_augmentation_follows_the_epoch(make_data, make_trainer, image_folder):
    augment = Augment(flip="alternating")
    data, model = folder_data(make_data, image_folder, augment=augment, batch_size=27), Recorder()
    make_trainer(max_epochs=2).fit(model, data)
    first, second = (model.images("train", epoch) for epoch in (0, 1))
    for image in second.flip(3):  # the order differs, but each image comes once, and mirrored
        assert (first == image).all((1, 2, 3)).sum() == 1


def test_training_images_can_be_evaluated(make_data, make_trainer, image_folder):
    """They are stored with a border, which must not show."""
    data = folder_data(make_data, image_folder, augment=Augment(crop=2))
    data.trainer = make_trainer()
    data.prepare_data()
    data.setup("fit")
    assert data.train_dataloader().dataset.images.shape == (27, 3, 12, 10)
    batch = data.on_after_batch_transfer(data.train_dataloader().dataset[torch.tensor([0])], 0)
    plain = folder_data(make_data, image_folder)
    plain.setup("fit")
    assert batch[0].equal(plain.on_after_batch_transfer(plain.train_dataloader().dataset[torch.tensor([0])], 0)[0])


def test_a_run_repeats_exactly_and_leaves_the_global_generator_alone(make_data, make_trainer, image_folder):
    augment = Augment(crop=2, flip="alternating", cutout=3, brightness=0.2)
    runs = []
    for noise in (1, 2):
        data, model = folder_data(make_data, image_folder, augment=augment, seed=5), Recorder()
        torch.manual_seed(noise)
        make_trainer(max_epochs=3).fit(model, data)
        runs.append((torch.cat([model.images("train", epoch) for epoch in range(3)]), torch.rand(1)))
    assert runs[0][0].equal(runs[1][0])
    torch.manual_seed(2)
    assert torch.rand(1) == runs[1][1]
    other = Recorder()
    make_trainer(max_epochs=3).fit(other, folder_data(make_data, image_folder, augment=augment, seed=6))
    assert not other.images("train").equal(runs[0][0][: len(other.images("train"))])


def test_without_validation(make_data, make_trainer, image_folder):
    data, model = folder_data(make_data, image_folder, val_fraction=0.0), Recorder()
    assert not data.has_val
    make_trainer().fit(model, data)
    assert {stage for stage, _ in model.seen} == {"train"}
    assert data.sizes == {"train": 30, "test": 6}
    with pytest.raises(UserError, match=r"has no val images; add some or set data\.val_fraction above 0$"):
        make_trainer().validate(model, data)


def test_validation_folder_is_used_as_it_is(make_data, image_folder):
    write_image(image_folder / "val" / "dog" / "a.png")
    data = folder_data(make_data, image_folder)
    data.prepare_data()
    data.setup("fit")
    assert data.sizes == {"train": 30, "val": 1, "test": 6}


def test_large_sets_stay_in_the_file(make_data, make_trainer, image_folder, monkeypatch):
    """Where memory is short, batches come from the mapped file and get their border one by one: the same images."""
    augment = Augment(crop=2, flip="random")
    models = [Recorder(), Recorder()]
    for model in models:
        data = folder_data(make_data, image_folder, augment=augment)
        trainer = make_trainer()
        trainer.fit(model, data)
        data.setup("fit")
        rows = data.train_dataloader().dataset.rows
        assert (rows is None) == (model is models[0])
        monkeypatch.setattr("psutil.virtual_memory", lambda: type("memory", (), {"available": 0}))
    assert models[0].images("train").equal(models[1].images("train"))
    assert models[0].images("val").equal(models[1].images("val"))


def test_runs_that_begin_at_once_decode_once(make_data, image_folder, monkeypatch):
    """As the first trials of a sweep with several workers do."""
    decoded = []

    def store(*arguments):
        decoded.append(1)
        time.sleep(0.2)
        stored.store(*arguments)

    monkeypatch.setattr(datamodule, "store", store)

    def begin(_: int) -> int:
        data = folder_data(make_data, image_folder)
        data.prepare_data()
        data.setup("fit")
        return data.sizes["train"]

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(begin, range(3))) == [27] * 3
    assert len(decoded) == 1


def test_generated_data_through_a_run(make_data, make_trainer, monkeypatch):
    monkeypatch.setattr("litlab.data.images.sources._GENERATED", {"train": 40, "test": 20})
    data, model = make_data(dataset="generated", image_size=(9, 8), mode="L"), Recorder()
    make_trainer().fit(model, data)
    assert data.generated
    assert data.description == "GENERATED images: 36 train / 4 val / 20 test images of 1 x 9 x 8, 10 classes"
    assert data.state_dict()["class_names"] == data.class_names
    assert data.state_dict()["generated"] is True


def test_a_csv_file_needs_its_path(make_data):
    with pytest.raises(UserError, match=r"^data\.path: null is not valid; dataset csv needs your file$"):
        make_data(dataset="csv")


def test_options_of_augmentation_are_checked_against_the_images(make_data, image_folder):
    data = folder_data(make_data, image_folder, augment=Augment(crop=6))
    data.prepare_data()
    with pytest.raises(UserError, match=r"^data\.augment\.crop: 6 is out of range for images of 8 x 6 pixels"):
        data.setup("fit")


def test_two_processes_share_the_work(make_data, image_folder):
    """Ranks 0 and 1 see every sample once in evaluation, and never the same one in training."""
    seen = []
    for rank in range(2):
        data = folder_data(make_data, image_folder, batch_size=4)
        data.prepare_data()
        data.trainer = a_rank(rank)
        data.setup()
        seen.append(
            {
                split: torch.cat([batch["index"] for batch in getattr(data, f"{split}_dataloader")()])
                for split in ("train", "val", "test")
            }
        )
    assert torch.cat([rank["test"] for rank in seen]).tolist() == list(range(6))
    assert torch.cat([rank["val"] for rank in seen]).tolist() == list(range(3))
    train = torch.cat([rank["train"] for rank in seen])
    assert len(train) == len(train.unique()) == 24


@pytest.mark.filterwarnings("ignore:.*no `validation_step`")
def test_overfitting_repeats_the_same_mixed_batches(make_data, image_folder):
    """Through Lightning: its ``overfit_batches`` exchanges samplers that it takes for random ones."""
    from lightning.pytorch import LightningModule, Trainer

    seen = []

    class Recorder(LightningModule):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(()))

        def training_step(self, batch, batch_idx):
            seen.append(batch[1].tolist())
            return self.weight * 1.0

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters())

    data = make_data(dataset="folder", path=str(image_folder), batch_size=4, val_fraction=0.0)
    Trainer(
        max_epochs=3, overfit_batches=2, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, use_distributed_sampler=False,
    ).fit(Recorder(), data)  # fmt: skip
    assert seen[:2] == seen[2:4] == seen[4:]
    assert len(set(seen[0] + seen[1])) > 1
