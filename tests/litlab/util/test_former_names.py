"""A package that was renamed is the same package under its former names."""

import importlib
import pickle
import sys
from importlib.util import find_spec

import pytest

from litlab.util.former_names import former_names, formerly, path_of_now


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package `now_called` that was `once_called`, and before that `first_called`."""
    folder = tmp_path / "now_called/networks"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "mine.py").write_text("class Mine:\n    pass\n")
    before = set(sys.modules)
    (tmp_path / "now_called/__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("litlab.util.former_names._now", {})
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    formerly("now_called", "once_called", "first_called")
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize("name", ["once_called", "first_called"])
def test_modules_are_the_same_under_every_name(package, name):
    old = importlib.import_module(f"{name}.networks.mine")  # before the new name was imported
    new = importlib.import_module("now_called.networks.mine")
    assert old is new
    assert importlib.import_module(name) is sys.modules["now_called"]
    assert (new.__name__, new.__spec__.name, new.Mine.__module__) == ("now_called.networks.mine",) * 3
    assert find_spec(f"{name}.networks.mine").origin == new.__file__
    assert pickle.loads(f"c{name}.networks.mine\nMine\n.".encode()) is new.Mine  # as torch.load(weights_only=False)
    assert importlib.reload(new) is new


def test_what_is_not_there_is_missing_as_ever(package):
    assert find_spec("once_called.nothing") is None
    with pytest.raises(ModuleNotFoundError, match=r"once_called\.nothing"):
        importlib.import_module("once_called.nothing")
    with pytest.raises(ModuleNotFoundError, match="never_called"):
        importlib.import_module("never_called")


def test_paths_are_those_of_now_and_other_texts_stay(package):
    assert former_names("now_called") == ("once_called", "first_called")
    assert former_names("tests") == ()
    assert path_of_now("once_called.networks.mine.Mine") == "now_called.networks.mine.Mine"
    for text in ("once_called.csv", "once_called", "once_called/networks", "torch.nn.GELU", "once_called.networks.x y"):
        assert path_of_now(text) == text
