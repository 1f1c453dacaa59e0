"""The schema accepts what the command line accepts, and names what is wrong with the rest."""

import pytest
from jsonschema import Draft202012Validator

from tests.litlab.commands.editor.schemas import find_mistake
from tests.litlab.conftest import CONFIGS

RIGHT = [
    "trainer.max_epochs: 3",
    "base: [images.yaml, with/smoke.yaml]",
    "trainer: {max_epochs: -1, precision: 16, callbacks: {class_path: EMA}, logger: false, profiler: simple}",
    "trainer: {callbacks+: [EMA, {class_path: mine.Callback, init_args: {anything: 1}}]}",
    "trainer: {callbacks: [{class_path: lightning.pytorch.callbacks.EarlyStopping, init_args: {monitor: a}}]}",
    "trainer: {logger: [{class_path: CSVLogger, init_args: {save_dir: a}, dict_kwargs: {b: 1}}]}",
    "model: Classifier",
    "model: mine.models.Model",
    "model: {class_path: mine.models.Model, init_args: {anything: {at: all}}}",
    "model: {init_args: {label_smoothing: 0.1, optimizer: {init_args: {fused: true}}}}",
    "model: {init_args: {optimizer: {class_path: torch.optim.adamw.AdamW, init_args: {lr: 1e-3}}}}",
    "model: {init_args: {network: {class_path: torchvision.models.resnet18, init_args: {weights: IMAGENET1K_V1}}}}",
    "model: {init_args: {network: torch.nn.Flatten}}",
    "model: {init_args: {metrics: {auc: {class_path: torchmetrics.AUROC, init_args: {task: multiclass}}}}}",
    "model: {init_args: {param_groups: {rules: [{params: '*', lr_scale: 0.1}]}}}",
    "data: {class_path: TabularData, init_args: {batch_size: 1, seed: null}}",
    "{ema: {decay: 0.9}, swa: null, compile: {class_path: Compile, init_args: {mode: null}}}",
    "{seed_everything: true, threads: 1, resume: last, check: true, ckpt_path: best}",
]
WRONG = {
    # keys
    "modle: {}": ": 'modle' does not match",
    "modle.width: 3": ": 'modle.width' does not match",
    "allow_modules: mine": ": 'allow_modules' does not match",
    "trainer: {max_epoch: 3}": "trainer: Additional properties are not allowed ('max_epoch' was unexpected)",
    "trainer: {max_epochs+: [3]}": "trainer: Additional properties are not allowed ('max_epochs+'",
    "checkpoint: {init_args: {montor: val/acc}}": "checkpoint.init_args: Additional properties are not allowed",
    "checkpoint: {montor: val/acc}": "checkpoint: ",
    "freeze: {rules: [{param: a}]}": "freeze.rules.0: Additional properties are not allowed ('param'",
    "model: {init_arg: {}}": "model: ",
    "model: {class_path: SmallCNN, width: 3}": "model: Additional properties are not allowed ('width'",
    "model: {class_path: mine.Model, width: 3}": "model: ",
    "model: {init_args: {label_smothing: 0.1}}": "model: ",
    "model: {class_path: SmallCNN, init_args: {widht: 8}}": "model.init_args: Additional properties",
    "trainer: {callbacks+: [{class_path: EMA, init_args: {dcay: 1}}]}": "trainer.callbacks+.0.init_args: Additional",
    # settings of another class
    "model: {class_path: SmallCNN, init_args: {hidden_size: 3}}": "model.init_args: Additional properties",
    "trainer: {callbacks: [{class_path: EMA, init_args: {monitor: a}}]}": "trainer.callbacks.0.init_args: Additional",
    # class names
    "model: SmallCNNN": "model: 'SmallCNNN' is not valid",
    "data: {class_path: SeriesDta}": "data.class_path: 'SeriesDta' is not valid",
    "trainer: {callbacks: [EMMA]}": "trainer.callbacks.0: 'EMMA' is not valid",
    "model: {init_args: {optimizer: {class_path: SDG}}}": "model: ",
    # types, bounds and choices
    "trainer: 5": "trainer: 5 is not of type 'object'",
    "trainer: {max_epochs: three}": "trainer.max_epochs: 'three' is not of type 'integer', 'null'",
    "model: {class_path: SmallCNN, init_args: {width: 8.5}}": "model.init_args.width: 8.5 is not of type 'integer'",
    "model: {class_path: null}": "model.class_path: None is not of type 'string'",
    "test_after_fit: maybe": "test_after_fit: 'maybe' is not of type 'boolean'",
    "channels_last: null": "channels_last: None is not of type 'boolean'",
    "threads: 0": "threads: 0 is less than the minimum of 1",
    "ema: {decay: 1}": "ema.decay: 1 is greater than or equal to the maximum of 1",
    "checkpoint: {init_args: {mode: maximum}}": "checkpoint.init_args.mode: 'maximum' is not ",
    "model: {class_path: SmallForecaster, init_args: {activation: RELU}}": "model.init_args.activation: 'RELU' is not ",
}


@pytest.fixture(scope="module")
def validator(schema) -> Draft202012Validator:
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@pytest.mark.parametrize("text", RIGHT)
def test_what_is_right_is_accepted(validator, text):
    assert find_mistake(validator, text) == ""


@pytest.mark.parametrize("config", sorted(CONFIGS.rglob("*.yaml")), ids=lambda path: path.stem)
def test_configs_are_accepted(validator, config):
    assert find_mistake(validator, config.read_text()) == ""


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_named(validator, text):
    assert find_mistake(validator, text).startswith(WRONG[text])


def test_classes_are_offered_with_their_settings(schema):
    callbacks = schema["$defs"]["Callback"]
    names = callbacks["then"]["anyOf"][0]["enum"]
    assert {"Pictures", "EMA", "EarlyStopping"} <= set(names)
    rule = next(rule for rule in callbacks["else"]["allOf"] if "'EMA'" in str(rule))
    decay = rule["then"]["properties"]["init_args"]["properties"]["decay"]
    assert (decay["default"], decay["minimum"], decay["exclusiveMaximum"]) == (0.999, 0, 1)
    assert decay["description"].startswith("Share of the old average")


def test_a_folder_that_cannot_be_written_is_one_line(run, tmp_path):
    (tmp_path / ".vscode").write_text("")
    done = run("schema")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: schema: ")
