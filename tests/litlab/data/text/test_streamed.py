"""Texts in shards: written, read by any number of processes and workers, cropped, of another tokenizer."""

import shutil

import pytest
import torch

from litlab.data import TextData
from litlab.data.shard_batches import ShardBatches
from litlab.data.shards import write_shards
from litlab.data.store import new_folder
from tests.litlab.conftest import CONFIGS
from tests.litlab.data.conftest import prepared, refusal
from tests.litlab.data.text.conftest import make_rows, write_csv

SIZES = {20: 360, 3: 3_000, 1: 10_000_000}  # shards of the training texts: bytes of a shard
TEXTS = 160  # to train on


def write(data, folder, size=10_000_000):
    with new_folder(folder) as staging:
        write_shards(prepared(data), staging, size)
    return folder


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """Makes data of texts of 2 to 20 words: 160 to train on, 20 each for val and test."""
    folder = tmp_path_factory.mktemp("texts")
    file = write_csv(folder / "reviews.csv", make_rows(200))

    def make_it(**settings):
        return TextData(path=str(file), cache_dir=str(folder), **{"max_tokens": 8, "vocab_size": 40, **settings})

    return make_it


@pytest.fixture(scope="module")
def shards(make, tmp_path_factory):
    """Folders of shards by how many there are."""
    place = tmp_path_factory.mktemp("shards")
    return {count: write(make(), place / str(count), size) for count, size in SIZES.items()}


def load(folder, **settings):
    return prepared(TextData("shards", str(folder), **{"batch_size": 7, "shuffle_shards": 2, **settings}))


def list_texts(batches):
    """All texts with their classes, sorted."""
    return sorted(
        (int(label), [number for number in row if number])
        for inputs, labels in batches
        for row, label in zip(inputs["ids"].tolist(), labels, strict=True)
    )


def whole_texts(data, split):
    """Class and tokens of each text by its number."""
    samples = data.samples(split)
    return [list_texts([samples[torch.tensor([number])]])[0] for number in range(len(samples))]


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize(("ranks", "workers"), [(1, 0), (1, 2), (3, 0)])
def test_every_text_once_whatever_the_shards_ranks_and_workers(shards, make, count, ranks, workers):
    data = load(shards[count], num_workers=workers, max_tokens=100)
    samples, sizes = data.samples("train"), data.shards.sizes("train")
    assert abs(len(sizes) - count) <= count // 5
    batches = []
    for rank in range(ranks):
        sampler = ShardBatches(sizes, 7, 2, samples.lengths, train=True, seed=1, rank=rank, world_size=ranks)
        batches += [samples[index] for index in sampler]
    if ranks == 1:
        assert list_texts(data.train_dataloader()) == list_texts(batches)
    original = prepared(make())
    texts, labels = original.samples("train").read(torch.arange(TEXTS)), original.labels("train").tolist()
    assert list_texts(batches) == sorted((label, ids.tolist()) for ids, label in zip(texts, labels, strict=True))


@pytest.mark.parametrize("long_texts", ["truncate", "crop"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_batches_are_those_of_texts_in_memory(shards, make, split, long_texts):
    memory, data = prepared(make(long_texts=long_texts)), load(shards[3], long_texts=long_texts, max_tokens=8)
    numbers = {tuple(text): number for number, (_, text) in enumerate(whole_texts(data, split))}
    order = torch.tensor([numbers[tuple(text)] for _, text in whole_texts(memory, split)])
    index = torch.arange(0, 20, 3)
    (here, labels), (there, others) = data.samples(split)[order[index]], memory.samples(split)[index]
    assert here["ids"].equal(there["ids"])
    assert labels.equal(others)
    assert data.labels(split).equal(memory.labels(split)) == (split == "test"), "a file can be sorted by class"


def test_what_is_known_of_the_texts_is_known_of_the_shards(shards, make, tmp_path, few_generated):
    data, original = load(shards[3], max_tokens=8), prepared(make())
    assert data.state_dict() == original.state_dict()
    assert (data.has_test, data.num_classes, data.vocab_size, data.baselines()) == (True, 2, 40, {})
    assert data.labels("train").bincount().equal(original.labels("train").bincount())
    assert data.description.startswith(f"shards {shards[3]}: 160 train / 20 val / 20 test texts of up to 8 tokens, 2")
    assert data.fingerprint == load(shards[3]).fingerprint != load(shards[20]).fingerprint
    assert load(write(TextData("generated", cache_dir=str(tmp_path)), tmp_path / "made")).generated
    # Callbacks find the texts of a batch.
    sampler = data.sampler(data.samples("test"), "test")
    for number, index in enumerate(sampler.batches()):
        assert torch.equal(data.sample_index("test", number), index)
        assert [data.text("test", text) for text in index.tolist()] == [original.text("test", text) for text in index]


def test_from_a_file_to_predictions(run, texts, tmp_path):
    source = ("--data.dataset=csv", f"--data.path={texts}")
    done = run("shards", "--config", CONFIGS / "text.yaml", *source, "--output", "shards", "--shard_mb=1")
    assert done.code == 0, done.err
    assert done.out.startswith(f"Written: shards, from csv {texts}: 128 train / 16 val / 16 test texts")
    fit = ("fit", "--config", CONFIGS / "text.yaml", "--data.dataset=shards", "--data.path=shards")
    done = run(*fit, "--data.num_workers=2", "--trainer.accelerator=cpu", "--trainer.max_epochs=1")
    assert done.code == 0, done.err
    assert run("test", "--run", "text").code == 0
    shutil.rmtree(tmp_path / "shards")
    done = run("predict", "--run", "text", "--input", texts, "--output", "classes.csv")
    assert done.code == 0, done.err
    assert len((tmp_path / "classes.csv").read_text().splitlines()) == 161


def test_what_does_not_fit_is_refused(shards, make, tmp_path):
    for setting in ({"fold": "0/5"}, {"balance": "even"}):
        assert refusal(load, shards[1], **setting).startswith("data.fold, data.balance: shards come as they were")
    data = load(write(make(vocab_size=20), tmp_path / "shards"))
    data.load_state_dict(prepared(make(max_tokens=6)).state_dict())
    assert data.max_tokens == 6
    assert refusal(data.samples, "test").endswith("has other tokens than the checkpoint; use those of its run")
