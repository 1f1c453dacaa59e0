"""Texts in shards: written, read by any number of processes and workers, cropped, damaged, of another tokenizer."""

import csv
import shutil

import numpy as np
import pytest
import torch

from litlab.data import StreamedImages, StreamedTexts, TextData
from litlab.data.shards import new_shards, write_about
from litlab.data.text.shard_batches import TextShardBatches
from litlab.data.text.shard_files import id_type, write_text_shards
from tests.litlab.conftest import CONFIGS
from tests.litlab.data.conftest import refusal
from tests.litlab.data.text.conftest import make_rows, write_csv

SIZES = {20: 270, 3: 2_000, 1: 10_000_000}  # shards of the training texts: bytes of a shard
TEXTS = 160  # to train on
# litdata leaves files open that it has read.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
FIT = ("fit", "--config", CONFIGS / "text.yaml", "--data=StreamedTexts", "--data.batch_size=40")
BRIEF = ("--trainer.accelerator=cpu", "--trainer.max_epochs=1")


def written(data, folder, size=10_000_000):
    data.prepare_data()
    data.setup()
    with new_shards(folder) as staging:
        data.write_shards(staging, size)
    return folder


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Texts of 2 to 20 words: 160 to train on, 20 each for val and test."""
    folder = tmp_path_factory.mktemp("texts")
    file = write_csv(folder / "reviews.csv", [["text", "label"], *make_rows(200)])
    data = TextData("csv", str(file), cache_dir=str(folder / "cache"), max_tokens=8, vocab_size=40)
    data.prepare_data()
    data.setup()
    return data


@pytest.fixture(scope="module")
def shards(original, tmp_path_factory):
    """Folders of shards by how many there are."""
    place = tmp_path_factory.mktemp("shards")
    return {count: written(original, place / str(count), size) for count, size in SIZES.items()}


def loaded(folder, split="train", **settings):
    data = StreamedTexts(str(folder), **{"batch_size": 7, "shuffle_shards": 2, **settings})
    data.setup()
    return data, data.samples(split)


def contents(batches):
    """All texts with their classes, sorted."""
    return sorted(
        (int(label), [number for number in row if number])
        for inputs, labels in batches
        for row, label in zip(inputs["ids"].tolist(), labels, strict=True)
    )


def same(batch, other):
    return torch.equal(batch[0]["ids"], other[0]["ids"]) and torch.equal(batch[1], other[1])


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.matrix), 2])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_text_once_whatever_the_shards_ranks_and_workers(shards, original, count, ranks, workers):
    data, samples = loaded(shards[count], num_workers=workers, max_tokens=100)
    sizes = data.sizes_of_shards("train")
    assert abs(len(sizes) - count) <= count // 5
    batches = []
    for rank in range(ranks):
        sampler = TextShardBatches(samples.lengths, sizes, 7, 2, train=True, seed=1, rank=rank, world_size=ranks)
        batches += list(data.loading.loader(samples, sampler, None, 0))
    ids, offsets = original.stored.array("train", "ids"), original.stored.array("train", "offsets")
    labels = original.labels("train").tolist()
    expected = sorted((labels[n], ids[offsets[n] : offsets[n + 1]].tolist()) for n in range(TEXTS))
    assert contents(batches) == expected


@pytest.mark.parametrize("long_texts", ["truncate", "crop"])
@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_batches_are_those_of_texts_in_memory(shards, original, split, long_texts):
    memory = TextData(**{**original.hparams, "long_texts": long_texts})
    memory.prepare_data()
    memory.setup()
    _, samples = loaded(shards[3], split, long_texts=long_texts)
    here = {tuple(text[1]): number for number, text in enumerate(whole_texts(shards[3], split))}
    there = [here[tuple(text[1])] for text in whole_texts(shards[3], split, memory)]
    index = torch.arange(0, 20, 3)
    assert same(samples[torch.tensor(there)[index]], memory.samples(split)[index])


def whole_texts(folder, split, memory=None):
    """Class and tokens of each text, by its number in the shards or in memory."""
    data = TextData(**{**memory.hparams, "max_tokens": 100}) if memory else StreamedTexts(str(folder), max_tokens=100)
    data.setup()
    samples = data.samples(split)
    return [contents([samples[torch.tensor([number])]])[0] for number in range(len(samples))]


def test_a_crop_is_another_in_every_epoch_and_depends_on_nothing_else(shards):
    texts = [text for _, text in whole_texts(shards[3], "train")]
    pieces = {}
    for workers, ranks in ((0, 1), (2, 1), (0, 2)):
        for rank in range(ranks):
            data, samples = loaded(shards[3], max_tokens=4, long_texts="crop", num_workers=workers)
            sampler = data.sampler(samples, "train")
            sampler.rank, sampler.world_size = rank, ranks
            loader = data.loading.loader(samples, sampler, None, 0)
            for epoch in range(3):
                sampler.set_epoch(epoch)
                for index, (inputs, _) in zip(sampler.batches(), loader, strict=True):
                    for number, row in zip(index.tolist(), inputs["ids"].tolist(), strict=True):
                        piece = [token for token in row if token]
                        assert pieces.setdefault((epoch, number), piece) == piece
                        text = texts[number]
                        assert any(text[i : i + 4] == piece for i in range(max(1, len(text) - 3)))
    assert len(pieces) == 3 * TEXTS
    long = [number for number in range(TEXTS) if len(texts[number]) > 10]
    assert sum(pieces[0, number] != pieces[1, number] for number in long) > len(long) / 2


def test_an_epoch_goes_on_within_it(shards):
    (data, samples), (_, others) = (loaded(shards[20], num_workers=2, max_tokens=4, long_texts="crop") for _ in "ab")
    whole, rest = data.sampler(samples, "train"), data.sampler(others, "train")  # each samples crop by their sampler
    whole.set_epoch(2)
    rest.go_on_from(2, 5)
    expected = list(data.loading.loader(samples, whole, None, 0))[5:]
    assert len(expected) > 10
    assert all(map(same, data.loading.loader(others, rest, None, 0), expected))


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("ranks", [1, 3])
def test_texts_of_a_batch_are_of_about_the_same_length_and_those_of_a_step_too(train, ranks):
    lengths = np.random.default_rng(0).integers(5, 500, 9001)
    orders = {}
    for epoch in (0, 1):
        batches = []
        for rank in range(ranks):
            sampler = TextShardBatches(lengths, [1000] * 9 + [1], 10, 3, train=train, rank=rank, world_size=ranks)
            sampler.set_epoch(epoch)
            batches.append(list(sampler))
            assert len(batches[-1]) == len(sampler)
        assert sorted(torch.cat([batch for own in batches for batch in own]).tolist()) == list(range(9001))
        assert {len(batch) for own in batches for batch in own} <= {9, 10, 11}
        longest = torch.tensor([[int(lengths[batch].max()) for batch in own] for own in batches])  # (ranks, batches)
        assert sum(int(lengths[batch].max()) * len(batch) for own in batches for batch in own) < 1.06 * lengths.sum()
        assert (longest.max(0).values - longest.min(0).values).float().mean() < 40
        orders[epoch] = [batch.tolist() for batch in batches[0]]
    assert (orders[0] != orders[1]) == train


def test_what_is_known_of_the_texts_is_known_of_the_shards(shards, original, tmp_path):
    data, _ = loaded(shards[3])
    assert data.metadata is not None
    assert data.metadata.state_dict() == original.known_metadata.state_dict()
    assert (data.has_val, data.has_test, data.num_classes, data.vocab_size) == (True, True, 2, 40)
    assert "160 train / 20 val / 20 test texts of up to 8 tokens, 2 classes, in shards" in data.description
    assert data.fingerprint == loaded(shards[3])[0].fingerprint != loaded(shards[20])[0].fingerprint
    assert not data.generated
    made = TextData("generated", cache_dir=str(tmp_path))
    data, _ = loaded(written(made, tmp_path / "made"))
    assert data.generated
    assert f"test GENERATED texts of up to {made.max_tokens} tokens" in data.description


@pytest.mark.parametrize("tokenizer", ["word", "bpe"])
def test_callbacks_find_the_texts_of_a_batch(original, tmp_path, tokenizer):
    settings = {**original.hparams, "tokenizer": tokenizer, "vocab_size": 400}
    memory = TextData(**settings)
    data, samples = loaded(written(memory, tmp_path / "shards"), "test")
    sampler = data.sampler(samples, "test")
    known = {f"w{number}" for number in range(30)} | {"good", "bad"}
    for number, index in enumerate(sampler.batches()):
        assert torch.equal(data.sample_index("test", number), index)
        for text in index.tolist():
            words = memory.text("test", text).split()
            read = [word if word in known or tokenizer == "bpe" else "[UNK]" for word in words]
            assert data.text("test", text) == " ".join(read)


@pytest.mark.parametrize(("vocab_size", "kind"), [(65_536, "uint16"), (65_537, "int32")])
def test_ids_of_any_vocabulary_are_kept(original, tmp_path, vocab_size, kind):
    assert id_type(vocab_size) == kind
    ids, offsets = np.array([vocab_size - 1, 2, vocab_size - 2], np.int32), np.array([0, 1, 3])
    metadata = original.metadata_type(**{**original.state_dict(), "vocab_size": vocab_size})
    with new_shards(tmp_path / "shards") as folder:
        write_text_shards(folder, 1000, metadata, {"test": (ids, offsets, np.array([0, 1]))})
    _, samples = loaded(tmp_path / "shards", "test")
    assert contents([samples[torch.arange(2)]]) == [(0, [vocab_size - 1]), (1, [2, vocab_size - 2])]


def test_shards_from_elsewhere_are_kept(shards, tmp_path):
    """litdata copies what an address with `local:` names, as it downloads from object storage."""
    data, samples = loaded(f"local:{shards[20]}", cache_dir=str(tmp_path / "cache"))
    assert contents([samples[torch.arange(TEXTS)]]) == contents([loaded(shards[20])[1][torch.arange(TEXTS)]])
    assert len(list((tmp_path / "cache").rglob("chunk-*.bin"))) > len(data.sizes_of_shards("train"))


def test_from_a_file_to_predictions(run, texts, tmp_path):
    source = ("--data.dataset=csv", f"--data.path={texts}", "--data.max_tokens=16")
    done = run("shards", "--config", CONFIGS / "text.yaml", *source, "--output", "shards", "--shard_mb=1")
    assert done.code == 0, done.err
    assert done.out.startswith("Written: shards (128 train / 16 val / 16 test texts)")
    done = run(*FIT, "--data.path=shards", *BRIEF, "--data.num_workers=2", "--data.max_tokens=null")
    assert done.code == 0, done.err
    assert "of 128 training texts are longer than data.max_tokens (16) and are cut" in done.err
    assert run("test", "--run", "text").code == 0
    shutil.rmtree(tmp_path / "shards")
    done = run("predict", "--run", "text", "--input", texts, "--output", "classes.csv")
    assert done.code == 0, done.err
    with (tmp_path / "classes.csv").open(newline="") as stream:
        assert len(list(csv.reader(stream))) == 161


def damaged(shards, tmp_path, name):
    folder = tmp_path / "damaged"
    shutil.copytree(shards[3], folder)
    shard = folder / "train/chunk-0-1.bin"
    if name == "missing":
        shard.unlink()
    elif name == "truncated":
        shard.write_bytes(shard.read_bytes()[:1000])
    elif name == "changed":
        content = shard.read_bytes()
        shard.write_bytes(content[: len(content) // 2] + b"\xff" * (len(content) - len(content) // 2))
    elif name == "other ids":
        ids = np.array(whole_texts(shards[3], "train")[70][1], "<u2").tobytes()
        shard.write_bytes(shard.read_bytes().replace(ids, b"\xff" * len(ids)))
    else:
        (folder / "lengths/chunk-0-0.bin").unlink()
    return folder


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("missing", "train/chunk-0-1.bin is missing; copy the whole folder, or write it again"),
        ("truncated", "train/chunk-0-1.bin is damaged (1,000 bytes instead of "),
        ("changed", "train can't be read (unpack requires a buffer of "),
        ("other ids", "train: text 70 is damaged; write the shards again"),
        ("no lengths", "lengths/chunk-0-0.bin is missing; copy the whole folder, or write it again"),
    ],
)
def test_damaged_shards_are_told_in_one_line(run, shards, tmp_path, name, line):
    folder = damaged(shards, tmp_path, name)
    done = run(*FIT, f"--data.path={folder}", *BRIEF, "--data.num_workers=1")
    errors = [text for text in done.err.splitlines() if text.startswith("error: ")]
    assert (done.code, len(errors)) == (2, 1), done.err
    assert errors[0].startswith(f"error: data.path: {folder}")
    assert line in errors[0]
    assert "Traceback" not in done.err


def test_shards_of_something_else_are_refused(run, shards, tmp_path):
    folder = shards[1]
    assert refusal(StreamedImages(str(folder)).setup) == f"data.path: {folder} holds texts, not images"
    write_about(tmp_path / "made", {"kind": "images", "splits": {}})
    done = run(*FIT, "--data.path=made", *BRIEF)
    assert (done.code, done.err.splitlines()[-1]) == (2, "error: data.path: made holds images, not texts")


@pytest.mark.parametrize("setting", ["balance=even", "tokens_per_batch=100"])
def test_settings_that_need_all_texts_are_refused(run, shards, setting):
    done = run(*FIT, f"--data.path={shards[1]}", f"--data.{setting}")
    name = setting.partition("=")[0]
    assert done.code == 2
    assert done.err.startswith(f"error: data.{name}: StreamedTexts has no '{name}'")


def test_ids_of_another_tokenizer_are_refused(shards, original, tmp_path):
    trained = {**original.state_dict(), "max_tokens": 6}
    fits = StreamedTexts(str(shards[1]))
    fits.load_state_dict(trained)
    fits.setup()
    assert fits.max_tokens == 6
    other = StreamedTexts(str(written(TextData(**{**original.hparams, "vocab_size": 20}), tmp_path / "shards")))
    line = (
        "data.path: the checkpoint was trained with another tokenizer than the shards were written with; use the "
        "shards of its run"
    )
    other.setup()
    assert refusal(other.load_state_dict, trained) == line
    again = StreamedTexts(other.shards.where)
    again.load_state_dict(trained)
    assert refusal(again.setup) == line


def test_a_checkpoint_is_enough_to_serve(original, tmp_path):
    data = StreamedTexts(str(tmp_path / "gone"))
    data.load_state_dict(original.state_dict())
    assert data.serving().facts()["max_tokens"] == data.max_tokens == 8
    (tmp_path / "new.txt").write_text("good w1\nw2 w3 w4\n")
    assert data.open_input(str(tmp_path / "new.txt")).lengths.tolist() == [2, 3]
