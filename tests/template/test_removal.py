"""An experiment is deleted by deleting its files, as docs/updates.md says; what is left runs,
as do its tests.
"""

import re

import pytest

from tests.clone import Clone, clone_tree
from tests.conftest import ROOT
from tests.processes import start_pytest

SECTION = re.search(
    r"## Removing an experiment\n(.*)", (ROOT / "docs/updates.md").read_text(), re.DOTALL
)
SOME = "test_nothing_is_imported_in_a_circle or test_cifar_muon or test_networks"


@pytest.fixture(scope="module")
def left(tmp_path_factory) -> Clone:
    """The tree without text and series."""
    clone = clone_tree(tmp_path_factory.mktemp("left"))
    assert SECTION is not None
    for block in re.findall(r"```bash\n(.*?)```", SECTION[1], re.DOTALL):
        clone.shell(block)
    return clone


def test_what_is_left_runs(left, short):
    names = {path.stem for path in (left.root / "src/project").rglob("*.py")}
    assert {"cifar_cnn", "whitened_cnn", "vgg"} <= names
    assert not {"transformer_classifier", "lstm_forecaster", "attention", "segment_rnn"} & names

    config = left.root / "configs/cifar.yaml"
    flags = " ".join(short(config))
    assert "test/acc" in left.call(f"project fit --config {config} {flags} --model.width=16")


def test_its_tests_are_found_and_pass(left):
    """All of them are imported; a few run: of litlab, whose tests know no experiment, and of what
    is left.
    """
    folders = [name for name in ("tests", "src/examples") if (left.root / name).is_dir()]
    process = start_pytest(left.root, *folders, "-k", SOME)
    printed, _ = process.communicate()
    assert (process.returncode, "error" in printed) == (0, False), printed
    assert int(re.search(r"(\d+) passed", printed)[1]) >= 4
