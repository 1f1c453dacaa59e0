"""What an export says of its kind of data is not believed, and data that can't be served is refused
in one line; the example of segmentation has a kind of its own that all commands take.
"""

import pytest

from litlab.artifact.trusted import load_serving
from litlab.errors import UserError
from litlab.runs.folder import read_json
from tests.conftest import BRIEF
from tests.litlab.commands.serve.test_server import fork_server
from tests.litlab.runs.conftest import error

NAMED = """
    os.system torch.nn.Linear torch.nn.modules.linear.Linear auks.images.SmallCNN auks.images.torch
    auks.nothing.Serving litlab.data.TextData litlab.data.serving.TensorSpec
    litlab.data.serving.torch.nn.Linear litlab.cli.main.run_command litlab.errors.UserError
    TextServing
"""


@pytest.mark.parametrize("named", [*NAMED.split(), "", None, 3, ["litlab.data.text.TextServing"]])
def test_a_manifest_may_name_a_serving_alone(exported, named):
    """Of litlab or the team; whoever has made the folder says what it is."""
    manifest = read_json(exported / "manifest.json") | {"serving": named}
    with pytest.raises(UserError, match=rf"^{exported}/manifest.json: .* not a Serving in litlab"):
        load_serving(exported, manifest)


@pytest.mark.parametrize("facts", [{}, {"size": 3}, {"size": [24, 32], "more": 1}, [], None])
def test_facts_of_another_class_are_refused(exported, facts):
    manifest = read_json(exported / "manifest.json") | {"facts": facts}
    with pytest.raises(UserError, match=r"its facts do not fit TextServing .*; export the"):
        load_serving(exported, manifest)


TOKENS = """
    --model=Classifier --model.network=tests.litlab.parallel.tiny.Transformer
    --model.optimizer=torch.optim.SGD --model.optimizer.lr=0.1
"""


@pytest.mark.parametrize(
    ("data", "model", "refusal"),
    [
        ("tests.litlab.parallel.tiny.Tokens", TOKENS, "export: Tokens has no serving(); use"),
        (
            "lightning.pytorch.demos.boring_classes.BoringDataModule",
            "--model=lightning.pytorch.demos.boring_classes.BoringModel",
            "--run: BoringDataModule has no serving(), which export and serve need",
        ),
    ],
)
def test_data_without_serving_is_refused(run, tmp_path, data, model, refusal):
    """Where something is to be exported or served, not before."""
    run(f"fit --data={data} {model}", *BRIEF).check()
    run_again = ["--run=default", "--allow_modules=tests,lightning"]
    assert error(run("export --format=onnx", *run_again)).startswith(f"error: {refusal}")
    server = fork_server(*run_again, cwd=tmp_path)
    assert server.wait() == 2
    assert server.printed()[0].splitlines()[-1].startswith(f"error: {refusal}")
