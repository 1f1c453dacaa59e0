"""The pre-trained text encoder, with a tiny random BERT in a folder, through the command line."""

import pandas as pd
import pytest
import torch

from litlab.commands.export import export_run
from litlab.errors import UserError
from litlab.nn import PretrainedText
from litlab.runs.folder import read_json
from tests.conftest import CONFIGS
from tests.litlab.runs.conftest import error

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def bert(tmp_path_factory, texts):
    """A folder with a BERT of two layers, and a tokenizer whose padding is not 0."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

    folder = tmp_path_factory.mktemp("bert")
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = ["[CLS]", "[SEP]", "[UNK]", "[PAD]"]
    tokenizer.train([str(texts)], trainers.WordLevelTrainer(special_tokens=special))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 1), ("[CLS]", 0))
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]"
    )
    fast.save_pretrained(folder)

    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(fast), hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=64, pad_token_id=3,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture
def flags(bert, texts):
    return f"""
        --config={CONFIGS}/text_pretrained.yaml --data.dataset=csv --data.path={texts}
        --data.max_tokens=40 --data.tokenizer={bert} --model.network.name={bert}
        --data.batch_size=20 --trainer.precision=32-true --trainer.log_every_n_steps=1
        --model.optimizer.lr=0.01
    """


def test_it_is_trained_deployed_and_exported(run, tmp_path, bert, flags, monkeypatch):
    # In the first epoch the head alone is trained.
    rules = "[{params: network.head, epochs: 0}, {params: network, epochs: 1}]"
    more = [f"--freeze.rules={rules}", "--trainer.max_epochs=2", "--checkpoint.save_top_k=-1"]
    run(f"fit {flags}", *more).check()
    folder = tmp_path / "lightning_logs/text_pretrained/version_0"
    encoder = transformers.AutoModel.from_pretrained(bert).state_dict()
    name = "encoder.layer.0.attention.self.query.weight"
    for file, is_frozen in (("epoch=0*.ckpt", True), ("last.ckpt", False)):
        [path] = (folder / "checkpoints").glob(file)
        weights = torch.load(path, weights_only=True)["state_dict"]
        assert weights[f"network.encoder.{name}"].equal(encoder[name]) == is_frozen

    # Padding changes nothing: a text has the same prediction alone and beside a longer one.
    (tmp_path / "one.txt").write_text("sun word1\n")
    (tmp_path / "two.txt").write_text("sun word1\nrain" + " word2" * 20)
    for name in ("one", "two"):
        run(f"predict --run=last --input={name}.txt --output={name}.csv").check()
    one, two = (float(pd.read_csv(f"{name}.csv")["probability"][0]) for name in ("one", "two"))
    assert one == pytest.approx(two, abs=1e-6)

    monkeypatch.setattr(export_run, "SECONDS", 0.001)
    # Weights are in the checkpoint: of the folder only the config is read.
    (bert / "model.safetensors").rename(bert / "elsewhere")
    run("export --run=last --format=onnx").check()
    manifest = read_json(folder / "exported/onnx/manifest.json")
    assert manifest["parity"]["difference"] < export_run.TOLERANCE["onnx"]
    before, after = manifest["metrics"].values()
    assert {name: before[name] for name in after} == pytest.approx(after, abs=1e-4)
    (bert / "elsewhere").rename(bert / "model.safetensors")


REFUSED = {
    "--data.tokenizer=word": "set data.tokenizer to the same name",
    "--data.max_tokens=65": "lower data.max_tokens",
    "--data.tokenizer=nothing_here": "data.tokenizer: nothing_here can't be loaded",
    "--model.network.name=nothing_here": "model.network.name: nothing_here can't be loaded",
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_refusals(run, flags, monkeypatch, wrong):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert REFUSED[wrong] in error(run(f"fit {flags} {wrong}"))


def test_layer_decay_takes_each_block_of_the_encoder_for_a_layer(run, flags):
    done = run(f"fit {flags} --freeze=null --check").check()
    assert "0.00729" in done.out  # 0.01 x 0.9^3: embeddings, two blocks, head


def test_positions_of_roberta_begin_behind_that_of_the_padding(tmp_path):
    config = transformers.RobertaConfig(
        vocab_size=9, hidden_size=4, intermediate_size=4, num_hidden_layers=1,
        num_attention_heads=1, max_position_embeddings=20,
    )  # fmt: skip
    transformers.RobertaModel(config).save_pretrained(tmp_path)
    data = {"vocab_size": 9, "padding": 1, "num_classes": 2}
    network = PretrainedText(str(tmp_path), longest=18, **data)
    assert network(torch.full((1, 18), 5)).shape == (1, 2)
    with pytest.raises(UserError, match="texts of up to 18"):
        PretrainedText(str(tmp_path), longest=19, **data)
