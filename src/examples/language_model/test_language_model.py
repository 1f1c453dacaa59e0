"""The language model: its windows, its baseline, what it learns, and prompts that it continues."""

import math
from pathlib import Path

import pandas as pd
import pytest
import torch

from examples.language_model.data import NO_TARGET, TextFile, train_tokenizer
from examples.language_model.ngrams import score_ngrams
from litlab.runs.folder import read_json
from litlab.testing import ModuleContract
from tests.conftest import BRIEF
from tests.litlab.runs.conftest import error

CONFIG = Path(__file__).with_name("config.yaml")
FIT = f"fit --config {CONFIG} --data.path=text.txt --data.context_length=32"


@pytest.fixture
def text(run, tmp_path):
    """A text in which two letters tell the next one."""
    letters = "".join("abcde"[(number * number) % 5] for number in range(20_000))
    (tmp_path / "text.txt").write_text(letters)
    (tmp_path / "prompts.txt").write_text(letters[:40] + "\n" + letters[2:9] + "\n")
    return letters


@pytest.mark.usefixtures("text")
class TestLanguageModel(ModuleContract):
    config = CONFIG
    settings = (
        "--data.path=text.txt", "--data.batch_size=8", "--data.context_length=32",
        "--model.network.embed_dim=32", "--trainer.callbacks=[]",
    )  # fmt: skip
    loss_at_start = math.log(4)  # three letters, and all others
    tolerance = 0.2
    overfit_steps = 30


def test_each_token_is_scored_once(text):
    data = TextFile("text.txt", context_length=16)
    following = torch.cat([following for _, following in data.batches("val")])
    scored = following[following != NO_TARGET]
    assert scored.tolist() == data.ids["val"][1 : 1 + len(scored)].tolist()
    assert len(scored) > 1_980


def test_ngrams_know_what_two_letters_tell(text):
    assert score_ngrams(text, text[:500], 3) < 0.05
    assert score_ngrams(text, text[:500], 1) > 1


def test_it_learns_and_continues_prompts(run, text, tmp_path):
    small = "--data.batch_size=16 --model.network.embed_dim=32 --model.network.num_layers=1"
    run(f"{FIT} {small} --model.length=12 --trainer.precision=32-true").check()
    folder = tmp_path / "lightning_logs/language_model/version_0"
    assert read_json(folder / "metrics.json")["test"]["test/bits_per_character"] < 0.5
    assert "6-grams" in read_json(folder / "baselines.json")
    for name in ("a.csv", "b.csv"):
        run(f"predict --run=last --input=prompts.txt --output={name}").check()
    assert Path("a.csv").read_bytes() == Path("b.csv").read_bytes()
    written = pd.read_csv("a.csv")["continuation"][0]
    assert sum(mine == true for mine, true in zip(written, text[40:52], strict=True)) >= 10


def test_a_causal_model_of_transformers_is_fine_tuned(run, text, tmp_path):
    transformers = pytest.importorskip("transformers")
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=train_tokenizer(text))
    fast.save_pretrained(tmp_path / "gpt")
    config = transformers.GPT2Config(
        vocab_size=len(fast), n_embd=16, n_layer=1, n_head=2, n_positions=32, bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path / "gpt")
    fit = f"{FIT} --model.network=PretrainedCausal --model.network.name=gpt --data.tokenizer=gpt"
    run(f"{fit} --trainer.limit_train_batches=3 --model.length=5", *BRIEF).check()
    refused = error(run(f"{fit} --data.context_length=64"))
    assert "data.context_length: 64 is more than the 32" in refused


def test_what_is_refused(run):
    assert "there is no file text.txt" in error(run(FIT))
    Path("text.txt").write_text("abc")
    assert "has 2 tokens; give more" in error(run(FIT))


def test_other_letters_in_a_prompt_are_one_unknown_token(text):
    data = TextFile("text.txt", context_length=16)
    data.setup()
    assert data.facts.vocab_size == 4  # three squares modulo 5, and all others
