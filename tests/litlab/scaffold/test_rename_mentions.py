"""Where a word is the package and where it is only a word: `work`, which becomes `play`."""

import pytest

from litlab.scaffold.mentions import Mentions

MEANT = """\
python -m work fit --config configs/mine.yaml
$(BIN)/python -m work
`python -m work`, and torchrun --nproc_per_node 2 -m work fit
ENTRYPOINT ["python", "-m", "work"]
words = [sys.executable, "-m", "work", *more]
python -m work rename work
python -m work.ops.build
import work
import work.models.mine as mine
import work as w
    from work import data
from work.data.mine import Mine
>>> from work.data import mine
"from work.models import mine\\n", "import work\\n",
from tests.work.short.Mine import settings
COPY src/work /app/src/work
[mine](../src/work/models/mine.py)
`src/work/`: yours
rm src/work/data/mine.py tests/work/data/test_mine.py
path = ROOT / f"src/work/{name}.py"
{class_path: work.models.mine.Mine}
--model.activation=work.ops.squared_relu.SquaredReLU
{"$ref": "#/definitions/work.models.mine.Mine()"}
`work.models` and `work/models/`, `work`, `work/__main__.py`, ``work``
work/__main__.py calls it
importlib.import_module(f"work.{path.stem}")
name = "work"
"work.ops" = ["csrc/*"]
dev = ["work[export,serve]", "pytest"]
pip install 'work[serve]' && pip uninstall --yes work
use_package("work")
packages = ["litlab", 'work']
if name == "work": pass
sys.argv = ["work", "fit"]
"module": "work",
known = {"work"}
PACKAGE := work
package: work
pytest --cov=work
  work --> callbacks
  callbacks --> work
torch.ops.work.masked_softmax(scores)
"work::masked_softmax", `work::masked_softmax`
STABLE_TORCH_LIBRARY_IMPL(work, CPU, library) {
"""
A_WORD = """\
This work is yours: work on it, at work; the work's end (work, mostly). Does it work? work.
homework, work_dir, working, WORK, teamwork/data, work-in-progress
[work]
[work.optional-dependencies]
from common import CONFIGS, work, save
def work(folder: Path, *arguments: object) -> None:
    work(folder, "fit")
WandbLogger(work="mine", name="mine")
{"work": "mine"}
    "work": "mine",
logger = {class_path: WandbLogger, init_args: {work: mine}}
settings["work"], settings.get("work"), settings.pop("work")
import the work of others, from work to play; pip install --editable the work
package = work.source; module = work()
https://github.com/somebody/work
a module of work, a package for work
"""
LEFT = {
    '"/opt/work"': '"/opt/work"',
    "docker build -t work:latest .": "docker build -t work:latest .",
    "image: work": "image: work",
    "This work, at work.": None,
    "work(folder), work = 3, {'work': 1}, x['work'], x = work.files, x == work['a']": None,
    "[work.optional-dependencies]": None,
    f"{'a' * 500} '/opt/work' {'b' * 500}": f"{'a' * 44} '/opt/work' {'b' * 48}",
}


@pytest.fixture
def mentions() -> Mentions:
    return Mentions(["work"], "play", ["models", "data", "ops", "optional"])


@pytest.mark.parametrize("line", MEANT.splitlines())
def test_the_package_is_renamed(mentions, line):
    assert mentions.replaced(line) == (line.replace("work", "play"), line.count("work"))


@pytest.mark.parametrize("line", A_WORD.splitlines())
def test_the_word_stays(mentions, line):
    assert mentions.replaced(f"\n{line}") == (f"\n{line}", 0)


@pytest.mark.parametrize(("line", "shown"), LEFT.items())
def test_what_may_be_a_mention_is_listed(mentions, line, shown):
    assert mentions.replaced(line) == (line, 0)
    assert mentions.left(f"first\n{line}") == ([(2, shown)] if shown else [])


def test_where_the_package_is_imported_its_attributes_are_meant(mentions):
    assert mentions.replaced("import work\nprint(work.__file__, self.work.do)") == (
        "import play\nprint(play.__file__, self.work.do)", 2
    )  # fmt: skip
    assert mentions.replaced("work = here()\nprint(work.files)") == ("work = here()\nprint(work.files)", 0)


def test_several_names_become_one():
    mentions = Mentions(["work", "toil"], "play", ["data"])
    assert mentions.replaced('import work\nfrom toil.data import x\nnames = "work", "toil"\n') == (
        'import play\nfrom play.data import x\nnames = "play", "play"\n', 4
    )  # fmt: skip


def test_what_stands_in_columns_stays_there():
    mentions = Mentions(["toils"], "work", ["data"])
    text = "src/toils/    yours\ndata/         its files\npython -m toils  # no column\n#   python -m toils\n"
    after = "src/work/     yours\ndata/         its files\npython -m work  # no column\n#   python -m work\n"
    assert mentions.replaced(text, in_columns=True)[0] == after
    back = Mentions(["work"], "toils", ["data"])
    assert back.replaced(after, in_columns=True)[0] == text
