"""Texts in shards: written, read by any number of processes and workers, cropped, damaged, of another tokenizer."""

import shutil

import numpy as np
import pytest
import torch

from litlab.data import StreamedTexts, TextData
from litlab.data.shard_batches import ShardBatches
from litlab.data.shards import write_about
from litlab.data.store import new_folder
from tests.litlab.conftest import CONFIGS
from tests.litlab.data.conftest import prepared, refusal
from tests.litlab.data.text.conftest import make_rows, write_csv

SIZES = {20: 500, 3: 3_900, 1: 10_000_000}  # shards of the training texts: bytes of a shard
TEXTS = 160  # to train on
# litdata leaves files open that it has read.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def write(data, folder, size=10_000_000):
    with new_folder(folder) as staging:
        prepared(data).write_shards(staging, size)
    return folder


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Texts of 2 to 20 words: 160 to train on, 20 each for val and test."""
    folder = tmp_path_factory.mktemp("texts")
    file = write_csv(folder / "reviews.csv", [["text", "label"], *make_rows(200)])
    return prepared(TextData(path=str(file), cache_dir=str(folder / "cache"), max_tokens=8, vocab_size=40))


@pytest.fixture(scope="module")
def shards(original, tmp_path_factory):
    """Folders of shards by how many there are."""
    place = tmp_path_factory.mktemp("shards")
    return {count: write(original, place / str(count), size) for count, size in SIZES.items()}


def load(folder, split="train", **settings):
    data = StreamedTexts(str(folder), **{"batch_size": 7, "shuffle_shards": 2, **settings})
    data.setup()
    return data, data.samples(split)


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
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("ranks", [1, 3])
def test_every_text_once_whatever_the_shards_ranks_and_workers(shards, original, count, ranks, workers):
    data, samples = load(shards[count], num_workers=workers, max_tokens=100)
    sizes = data.shards.sizes("train")
    assert abs(len(sizes) - count) <= count // 5
    batches = []
    for rank in range(ranks):
        sampler = ShardBatches(sizes, 7, 2, samples.lengths, train=True, seed=1, rank=rank, world_size=ranks)
        batches += [samples[index] for index in sampler]
    if ranks == 1:
        assert list_texts(data.train_dataloader()) == list_texts(batches)
    texts, labels = original.samples("train").read(torch.arange(TEXTS)), original.labels("train").tolist()
    expected = sorted((label, ids.tolist()) for ids, label in zip(texts, labels, strict=True))
    assert data.labels("train").bincount().equal(original.labels("train").bincount())
    assert list_texts(batches) == expected


@pytest.mark.parametrize("long_texts", ["truncate", "crop"])
@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_batches_are_those_of_texts_in_memory(shards, original, split, long_texts):
    memory = prepared(TextData(**{**original.hparams, "long_texts": long_texts}))
    data, samples = load(shards[3], split, long_texts=long_texts)
    numbers = {tuple(text): number for number, (_, text) in enumerate(whole_texts(data, split))}
    order = torch.tensor([numbers[tuple(text)] for _, text in whole_texts(memory, split)])
    index = torch.arange(0, 20, 3)
    (here, labels), (there, others) = samples[order[index]], memory.samples(split)[index]
    assert here["ids"].equal(there["ids"])
    assert labels.equal(others)


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("ranks", [1, 3])
def test_texts_of_a_batch_are_of_about_the_same_length_and_those_of_a_step_too(train, ranks):
    lengths = np.random.default_rng(0).integers(5, 500, 9001)
    orders = []
    for epoch in (0, 1):
        batches = []
        for rank in range(ranks):
            sampler = ShardBatches([1000] * 9 + [1], 10, 3, lengths, train=train, rank=rank, world_size=ranks)
            sampler.set_epoch(epoch)
            batches.append(list(sampler))
        together = [batch for own in batches for batch in own]
        assert torch.cat(together).sort().values.tolist() == list(range(9001))
        assert {len(batch) for batch in together} <= {9, 10, 11}
        assert sum(int(lengths[batch].max()) * len(batch) for batch in together) < 1.1 * lengths.sum()
        longest = torch.tensor([[int(lengths[batch].max()) for batch in own] for own in batches])  # (ranks, batches)
        assert (longest.max(0).values - longest.min(0).values).float().mean() < 40
        orders.append([batch.tolist() for batch in batches[0]])
    assert (orders[0] != orders[1]) == train


def test_what_is_known_of_the_texts_is_known_of_the_shards(shards, original, tmp_path, few_generated):
    data, _ = load(shards[3])
    assert data.state_dict() == original.state_dict()
    assert (data.has_test, data.num_classes, data.vocab_size, data.baselines()) == (True, 2, 40, {})
    assert "160 train / 20 val / 20 test texts of up to 8 tokens, 2 classes" in data.description
    assert data.fingerprint == load(shards[3])[0].fingerprint != load(shards[20])[0].fingerprint
    made = TextData("generated", cache_dir=str(tmp_path))
    data, _ = load(write(made, tmp_path / "made"))
    assert data.generated
    assert data.description.startswith(f"GENERATED texts in {tmp_path / 'made'}: 36 train")


@pytest.mark.parametrize("tokenizer", ["word", "bpe"])
def test_callbacks_find_the_texts_of_a_batch(original, tmp_path, tokenizer):
    memory = TextData(**{**original.hparams, "tokenizer": tokenizer, "vocab_size": 400})
    data, samples = load(write(memory, tmp_path / "shards"), "test")
    sampler = data.sampler(samples, "test")
    known = {f"w{number}" for number in range(30)} | {"good", "bad"}
    for number, index in enumerate(sampler.batches()):
        assert torch.equal(data.sample_index("test", number), index)
        for text in index.tolist():
            words = memory.text("test", text).split()
            read = [word if word in known or tokenizer == "bpe" else "[UNK]" for word in words]
            assert data.text("test", text) == " ".join(read)


def test_from_a_file_to_predictions(run, texts, tmp_path):
    source = ("--data.dataset=csv", f"--data.path={texts}", "--data.max_tokens=16")
    done = run("shards", "--config", CONFIGS / "text.yaml", *source, "--output", "shards", "--shard_mb=1")
    assert done.code == 0, done.err
    assert done.out.startswith("Written: shards (128 train / 16 val / 16 test texts)")
    fit = ("fit", "--config", CONFIGS / "text.yaml", "--data=StreamedTexts", "--data.path=shards")
    done = run(*fit, "--data.num_workers=2", "--trainer.accelerator=cpu", "--trainer.max_epochs=1")
    assert done.code == 0, done.err
    assert run("test", "--run", "text").code == 0
    shutil.rmtree(tmp_path / "shards")
    done = run("predict", "--run", "text", "--input", texts, "--output", "classes.csv")
    assert done.code == 0, done.err
    assert len((tmp_path / "classes.csv").read_text().splitlines()) == 161
    done = run(*fit, "--data.balance=even")  # it needs all texts at hand
    assert (done.code, "StreamedTexts has no 'balance'" in done.err) == (2, True)


def test_what_does_not_fit_is_refused(shards, original, tmp_path):
    write_about(tmp_path / "made", {"kind": "images", "splits": {}, "metadata": {}})
    assert "holds images of version 3, not texts" in refusal(StreamedTexts(str(tmp_path / "made")).setup)

    trained = {**original.state_dict(), "max_tokens": 6}
    data = StreamedTexts(str(shards[1]))
    data.load_state_dict(trained)
    data.setup()
    assert data.max_tokens == 6
    folder = write(TextData(**{**original.hparams, "vocab_size": 20}), tmp_path / "shards")
    other = StreamedTexts(str(folder))
    other.load_state_dict(trained)
    assert refusal(other.setup).endswith("has other tokens than the checkpoint; use those of its run")


def test_a_checkpoint_is_enough_to_serve(original, tmp_path):
    data = StreamedTexts(str(tmp_path / "gone"))
    data.load_state_dict(original.state_dict())
    assert data.serving().facts()["max_tokens"] == data.max_tokens == 8
    (tmp_path / "new.txt").write_text("good w1\nw2 w3 w4\n")
    assert data.open_input(str(tmp_path / "new.txt")).lengths.tolist() == [2, 3]
