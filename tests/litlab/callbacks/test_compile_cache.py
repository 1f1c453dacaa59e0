"""The folder in which an experiment's compiled code is kept."""

import os

import pytest
import torch
from torch import nn

from litlab.callbacks import Compile
from litlab.callbacks.compile_cache import VARIABLE, CompileCache, is_chosen_by_user
from litlab.cli.trainer import find_compile_cache
from litlab.errors import UserError
from litlab.runs.find import all_runs
from litlab.runs.folder import new_run, write_json
from tests.litlab.callbacks.tiny import Tiny, TinyData, make_trainer


@pytest.fixture(autouse=True)
def torchs_own(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.mark.matrix
@pytest.mark.filterwarnings("ignore:.*does not have many workers")
def test_the_second_run_starts_warm_and_trains_the_same(tmp_path):
    """With inductor and dropout; each run compiles anew, as a process of its own would."""
    reports, weights = [], []
    for _ in range(2):
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = Tiny(network=nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(192, 4)))
        compile = Compile("default")
        compile.cache = tmp_path / "cache"
        trainer = make_trainer(tmp_path, callbacks=[compile], num_sanity_val_steps=0, limit_val_batches=0)
        try:
            trainer.fit(model, TinyData(8))
        except UserError as error:  # no C++ compiler
            pytest.skip(str(error))
        reports.append(compile.report())
        weights.append(model.state_dict())
        assert compile.seconds > 0
        assert not is_chosen_by_user()
    torch._dynamo.reset()
    assert reports[0].endswith(" s cold")
    assert reports[1].endswith(" s warm")
    assert list((tmp_path / "cache").rglob("*.so"))
    assert all(torch.equal(one, other) for one, other in zip(*(w.values() for w in weights), strict=True))


def test_the_folder_is_private_and_the_compilers_until_it_is_closed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, "before")
    cache = CompileCache(find_compile_cache("mine"))
    assert os.environ[VARIABLE] == str(tmp_path / "lightning_logs/compile_cache/mine")
    assert cache.folder.stat().st_mode & 0o077 == 0
    cache.close()
    assert os.environ[VARIABLE] == "before"


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_folder_that_others_can_write_to_is_refused(tmp_path, mode):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(mode)
    with pytest.raises(UserError, match=f"cache holds code .* others can write to it; remove it, .*{VARIABLE}"):
        CompileCache(tmp_path / "cache")
    assert VARIABLE not in os.environ


def test_a_folder_that_can_not_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=rf"compile: .*cache can't be made \(Not a directory\); .*{VARIABLE}"):
        CompileCache(tmp_path / "file/cache")


def test_the_users_own_folder_is_left_to_them(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "own"))
    compile = Compile("default")
    compile.cache = tmp_path / "cache"
    torch._dynamo.reset()
    try:
        compile.setup(make_trainer(tmp_path), Tiny(), "fit")
    except UserError as error:
        pytest.skip(str(error))
    finally:
        compile.teardown(make_trainer(tmp_path), Tiny(), "fit")
    assert os.environ[VARIABLE] == str(tmp_path / "own")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("experiment", "folder"), [("a/b", "a-b"), ("../../others/run", "others-run"), ("/etc", "etc"), ("..", "default")]
)
def test_no_name_of_an_experiment_leads_out_of_the_folder(experiment, folder):
    """A run of somebody else says what its experiment is called; its folder may hold code."""
    assert find_compile_cache(experiment).as_posix() == f"lightning_logs/compile_cache/{folder}"


def test_the_folder_is_no_experiment(tmp_path):
    for run in ("mine/version_0", "compile_cache/mine/version_0"):
        write_json(tmp_path / run / "status.json", {})
    assert [run.path.relative_to(tmp_path).as_posix() for run in all_runs(tmp_path)] == ["mine/version_0"]
    with pytest.raises(UserError, match="experiment: 'compile_cache' is not a name"):
        new_run(tmp_path, "compile_cache")


def test_a_folder_grown_too_large_is_emptied_by_who_has_it_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("litlab.callbacks.compile_cache.LIMIT", 1000)
    first = CompileCache(tmp_path / "cache")
    (first.folder / "ab").mkdir()
    (first.folder / "ab/code.so").write_bytes(b"0" * 1001)
    second = CompileCache(first.folder)  # the first still uses it
    assert (first.folder / "ab/code.so").exists()
    second.close()
    first.close()
    CompileCache(first.folder).close()
    assert [path.name for path in first.folder.iterdir()] == [".lock"]
    (first.folder / "code.so").write_bytes(b"0" * 999)
    CompileCache(first.folder).close()
    assert (first.folder / "code.so").exists()


def test_a_folder_that_can_not_be_emptied_is_shared_all_the_same(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("litlab.callbacks.compile_cache.LIMIT", 10)
    cache = CompileCache(tmp_path / "cache")
    (cache.folder / "code").mkdir()
    (cache.folder / "code/code.so").write_bytes(b"0" * 11)
    cache.close()

    def busy(path):
        raise OSError("Directory not empty")

    monkeypatch.setattr("litlab.callbacks.compile_cache.shutil.rmtree", busy)
    first = CompileCache(tmp_path / "cache")
    second = CompileCache(tmp_path / "cache")  # waits for ever if the first one has the folder to itself
    second.close()
    first.close()
    assert "can't be emptied (Directory not empty)" in caplog.text
