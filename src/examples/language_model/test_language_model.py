"""The language model: its windows, its baseline, what it learns, and prompts that it continues."""

import csv
import json
import math
from pathlib import Path

import pytest
import torch

from examples.language_model.data import NO_TARGET, TextFile
from examples.language_model.ngrams import score_ngrams
from litlab.testing import ModuleContract

CONFIG = Path(__file__).with_name("config.yaml")
SMALL = (
    "--data.path=text.txt", "--data.context_length=32", "--data.batch_size=16",
    "--model.network.embed_dim=32", "--model.network.num_layers=1", "--model.length=12",
    "--trainer.precision=32-true",
)  # fmt: skip


@pytest.fixture
def text(run, tmp_path):
    """A text in which two letters tell the next one."""
    letters = "".join("abcde"[(number * number) % 5] for number in range(20_000))
    (tmp_path / "text.txt").write_text(letters)
    (tmp_path / "prompts.txt").write_text(letters[:40] + "\n" + letters[2:9] + "\n")
    return letters


class TestLanguageModel(ModuleContract):
    config = CONFIG
    settings = ("--data.batch_size=8", "--data.context_length=32", "--trainer.callbacks=[]")
    loss_at_start = math.log(35)
    tolerance = 0.2


def test_each_token_is_scored_once(text):
    data = TextFile("text.txt", context_length=16)
    batches = [following for _, following in data.batches("val")]
    scored = torch.cat(batches)[torch.cat(batches) != NO_TARGET]
    assert scored.tolist() == data.ids["val"][1 : 1 + len(scored)].tolist()
    assert len(scored) > 1_980


def test_ngrams_know_what_two_letters_tell(text):
    assert score_ngrams(text, text[:500], 3) < 0.05
    assert score_ngrams(text, text[:500], 1) > 1


def test_it_learns_and_continues_prompts(run, text, tmp_path):
    assert run("fit", "--config", CONFIG, *SMALL).code == 0
    folder = tmp_path / "lightning_logs/language_model/version_0"
    metrics = json.loads((folder / "metrics.json").read_text())["test"]
    assert metrics["test/bits_per_character"] < 0.5
    assert "6-grams" in json.loads((folder / "baselines.json").read_text())
    for name in ("a.csv", "b.csv"):
        done = run("predict", "--run=last", "--input=prompts.txt", f"--output={name}")
        assert done.code == 0, done.err
    rows = list(csv.DictReader(Path("a.csv").read_text().splitlines()))
    assert Path("a.csv").read_bytes() == Path("b.csv").read_bytes()
    expected = text[40:52]
    hits = sum(mine == true for mine, true in zip(rows[0]["continuation"], expected, strict=True))
    assert hits >= 10


def test_a_causal_model_of_transformers_is_fine_tuned(run, text, tmp_path):
    transformers = pytest.importorskip("transformers")
    from examples.language_model.data import train_tokenizer

    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=train_tokenizer(text))
    fast.save_pretrained(tmp_path / "gpt")
    config = transformers.GPT2Config(
        vocab_size=len(fast), n_embd=16, n_layer=1, n_head=2, n_positions=32, bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path / "gpt")
    network = ["--model.network=PretrainedCausal", "--model.network.name=gpt"]
    tokens = ["--data.tokenizer=gpt", "--data.path=text.txt", "--data.context_length=32"]
    short = [
        "--trainer.max_epochs=1",
        "--trainer.log_every_n_steps=1",
        "--trainer.limit_train_batches=3",
        "--model.length=5",
    ]
    done = run("fit", "--config", CONFIG, *network, *tokens, *short)
    assert done.code == 0, done.err
    done = run("fit", "--config", CONFIG, *network, *tokens, "--data.context_length=64")
    assert (done.code, "data.context_length: 64 is more than the 32" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("content", "message"),
    [("abc", "has 2 tokens; give more"), (None, "there is no file text.txt")],
)
def test_what_is_refused(run, content, message):
    if content is not None:
        Path("text.txt").write_text(content)
    done = run("fit", "--config", CONFIG, "--data.path=text.txt")
    assert (done.code, message in done.err) == (2, True), done.err


def test_other_letters_in_a_prompt_are_one_unknown_token(text):
    data = TextFile("text.txt", context_length=16)
    data.setup()
    assert data.facts.vocab_size == 4  # three squares modulo 5, and all others
