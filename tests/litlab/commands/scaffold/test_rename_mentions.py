"""Where a word is the package and where it is only a word: `craft`, which becomes `play`."""

import pytest

from litlab.commands.scaffold.mentions import Mentions

MEANT = """\
python -m craft fit --config configs/mine.yaml
$(BIN)/python -m craft
`python -m craft`, and torchrun --nproc_per_node 2 -m craft fit
ENTRYPOINT ["python", "-m", "craft"]
words = [sys.executable, "-m", "craft", *more]
python -m craft rename craft
python -m craft.ops.build
import craft
import craft.models.mine as mine
import craft as w
    from craft import data
from craft.data.mine import Mine
>>> from craft.data import mine
"from craft.models import mine\\n", "import craft\\n",
from tests.craft.short.Mine import settings
COPY src/craft /app/src/craft
[mine](../src/craft/models/mine.py)
`src/craft/`: yours
rm src/craft/data/mine.py tests/craft/data/test_mine.py
path = ROOT / f"src/craft/{name}.py"
{class_path: craft.models.mine.Mine}
--model.activation=craft.ops.squared_relu.SquaredReLU
{"$ref": "#/definitions/craft.models.mine.Mine()"}
`craft.models` and `craft/models/`, `craft`, `craft/__main__.py`, ``craft``
craft/__main__.py calls it
importlib.import_module(f"craft.{path.stem}")
name = "craft"
"craft.ops" = ["csrc/*"]
dev = ["craft[export,serve]", "pytest"]
pip install 'craft[serve]' && pip uninstall --yes craft
use_package("craft")
packages = ["litlab", 'craft']
if name == "craft": pass
sys.argv = ["craft", "fit"]
"module": "craft",
known = {"craft"}
PACKAGE := craft
package: craft
pytest --cov=craft
  craft --> callbacks
  callbacks --> craft
torch.ops.craft.masked_softmax(scores)
"craft::masked_softmax", `craft::masked_softmax`
STABLE_TORCH_LIBRARY_IMPL(craft, CPU, library) {
"""
A_WORD = """\
This craft is yours: craft it well, by craft; the craft's end (craft, mostly). Did they craft? craft.
witchcraft, craft_dir, crafting, CRAFT, witchcraft/data, craft-in-progress
[craft]
[craft.optional-dependencies]
from common import CONFIGS, craft, save
def craft(folder: Path, *arguments: object) -> None:
    craft(folder, "fit")
WandbLogger(craft="mine", name="mine")
{"craft": "mine"}
    "craft": "mine",
logger = {class_path: WandbLogger, init_args: {craft: mine}}
settings["craft"], settings.get("craft"), settings.pop("craft")
import the craft of others, from craft to play; pip install --editable the craft
package = craft.source; module = craft()
https://github.com/somebody/craft
a module of craft, a package for craft
"""
LEFT = {
    '"/opt/craft"': '"/opt/craft"',
    "docker build -t craft:latest .": "docker build -t craft:latest .",
    "image: craft": "image: craft",
    "This craft, at craft.": None,
    "craft(folder), craft = 3, {'craft': 1}, x['craft'], x = craft.files, x == craft['a']": None,
    "[craft.optional-dependencies]": None,
    f"{'a' * 500} '/opt/craft' {'b' * 500}": f"{'a' * 44} '/opt/craft' {'b' * 48}",
}


@pytest.fixture
def mentions() -> Mentions:
    return Mentions(["craft"], "play", ["models", "data", "ops", "optional"])


@pytest.mark.parametrize("line", MEANT.splitlines())
def test_the_package_is_renamed(mentions, line):
    assert mentions.replaced(line) == (line.replace("craft", "play"), line.count("craft"))


@pytest.mark.parametrize("line", A_WORD.splitlines())
def test_the_word_stays(mentions, line):
    assert mentions.replaced(f"\n{line}") == (f"\n{line}", 0)


@pytest.mark.parametrize(("line", "shown"), LEFT.items())
def test_what_may_be_a_mention_is_listed(mentions, line, shown):
    assert mentions.replaced(line) == (line, 0)
    assert mentions.left(f"first\n{line}") == ([(2, shown)] if shown else [])


def test_where_the_package_is_imported_its_attributes_are_meant(mentions):
    assert mentions.replaced("import craft\nprint(craft.__file__, self.craft.do)") == (
        "import play\nprint(play.__file__, self.craft.do)", 2
    )  # fmt: skip
    assert mentions.replaced("craft = here()\nprint(craft.files)") == ("craft = here()\nprint(craft.files)", 0)


def test_several_names_become_one():
    mentions = Mentions(["craft", "toil"], "play", ["data"])
    assert mentions.replaced('import craft\nfrom toil.data import x\nnames = "craft", "toil"\n') == (
        'import play\nfrom play.data import x\nnames = "play", "play"\n', 4
    )  # fmt: skip
