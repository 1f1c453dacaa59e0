"""Folders that belong to one run, and the locks on them."""

import threading
from types import SimpleNamespace

import pytest
from torch.utils.tensorboard import SummaryWriter

from litlab.errors import UserError
from litlab.runs import claim, lock
from litlab.runs.find import owner_of
from litlab.runs.folder import RunFolder
from tests.litlab.runs.conftest import held_by_another
from tests.litlab.runs.make import write_run


@pytest.fixture(autouse=True)
def _release():
    yield
    claim.release()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "is not a valid folder name"),
        (" ", "is not a valid folder name"),
        (".", "is not a valid folder name"),
        ("/tmp/x", "is not a valid folder name"),
        ("a/../../b", "is not a valid folder name"),
        ("a\0b", "is not a valid folder name"),
        ("img/version_0", "folders called 'version_0' belong to runs"),
        ("version_3", "folders called 'version_3' belong to runs"),
        ("img/version_12/again", "folders called 'version_12' belong to runs"),
        ("checkpoints", "folders called 'checkpoints' belong to runs"),
        ("img/checkpoints/x", "folders called 'checkpoints' belong to runs"),
        ("odd", "is inside the run"),
        ("odd/inner", "is inside the run"),
        ("last", "means another run on the command line"),
        ("auto", "means another run on the command line"),
        ("$HOME", "holds a variable"),
        ("~/x", "holds a variable"),
        ("x" * 300, "can't be made (File name too long)"),
        ("file/x", "can't be made (Not a directory)"),
    ],
)
def test_names_of_experiments_that_can_not_be(tmp_path, name, says):
    write_run(tmp_path, "odd")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"^experiment: ") as error:
        claim.new_run(tmp_path, name)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["cifar", "night/text", "version_a", "ä b", "a/checkpoints2"])
def test_each_new_run_has_a_folder_of_its_own(tmp_path, name):
    first, second = claim.new_run(tmp_path, name), claim.new_run(tmp_path, name)
    assert [first.path, second.path] == [tmp_path / name / f"version_{number}" for number in (0, 1)]
    second.status.write_text("{}")  # it becomes a run, the other one doesn't
    claim.release()
    assert not first.path.exists()
    assert claim.new_run(tmp_path, name).path.name == "version_2"


def test_a_run_that_never_began_leaves_nothing(tmp_path):
    claim.new_run(tmp_path / "logs", "a/b")
    SummaryWriter(str(claim.new_run(tmp_path / "logs", "a/b").path)).close()
    claim.release()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["events.out.tfevents.1.host.1.0", "notes.txt"])
def test_what_others_put_into_a_folder_stays(tmp_path, name):
    claim.own_folder(tmp_path / "mine")
    (tmp_path / "mine" / name).write_text("")
    claim.release()
    assert (tmp_path / "mine" / name).exists()


def test_a_lock_is_held_by_a_living_process_only(tmp_path, monkeypatch):
    monkeypatch.setattr(claim, "SECONDS_TO_END", 0.0)
    run = write_run(tmp_path, "cifar/version_0")
    with held_by_another(run.path) as process:
        assert lock.is_held_elsewhere(run.path)
        with pytest.raises(UserError, match=r"^cifar/version_0 is still running \(another process has locked it\)"):
            claim.hold(run)
        process.kill()  # the worker that it had forked lives on
        process.wait()
        assert not lock.is_held_elsewhere(run.path)
        claim.hold(run)
    claim.hold(run)  # what this process has, it may take again


def test_one_process_at_a_time_looks_at_a_folder(tmp_path):
    order: list[str] = []

    def look(name: str) -> None:
        for _ in range(20):
            with lock.folder_lock(tmp_path):
                order.extend([name, name])

    threads = [threading.Thread(target=look, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(first == second for first, second in zip(order[::2], order[1::2], strict=True))
    assert list(tmp_path.iterdir()) == []


def test_ranks_beside_the_first_take_no_lock(tmp_path, monkeypatch):
    run = write_run(tmp_path, "cifar/version_0")
    with held_by_another(run.path):
        for variable in ("GROUP_RANK", "NODE_RANK", "RANK", "LOCAL_RANK", "SLURM_PROCID"):
            monkeypatch.setenv(variable, "1")
            claim.hold(run)
            monkeypatch.delenv(variable)
        monkeypatch.setattr(lock.rank_zero_only, "rank", 1)
        claim.hold(run)


def test_a_file_system_without_locks_is_no_obstacle(tmp_path, monkeypatch, capsys):
    def unsupported(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(lock.fcntl, "flock", unsupported)
    claim.hold(write_run(tmp_path, "cifar/version_0"))
    assert "can't be locked (Operation not supported): make sure that only one process" in capsys.readouterr().err


class TestOwnCheckpoints:
    @pytest.fixture
    def own(self, tmp_path):
        runs = {name: write_run(tmp_path / "lightning_logs", name) for name in ("a/version_0", "b/version_0")}

        def take(name: str, folder: str = "kept", resumes: bool = False) -> RunFolder:
            callbacks = [SimpleNamespace(dirpath=str(tmp_path / folder)), SimpleNamespace(dirpath=None)]
            claim.own_checkpoints(callbacks, runs[name], resumes)
            return runs[name]

        return take

    def test_a_folder_is_that_of_one_run(self, own, tmp_path):
        run = own("a/version_0")
        (tmp_path / "kept/last.ckpt").touch()
        own("a/version_0", resumes=True)
        with pytest.raises(UserError, match=r"holds the checkpoints of .*a/version_0; .*kept/b/version_0, or leave"):
            own("b/version_0")
        with pytest.raises(UserError, match=r"holds the checkpoints of .*a/version_0"):
            own("b/version_0", resumes=True)
        assert owner_of(tmp_path / "kept/last.ckpt") == run

    def test_a_run_that_was_moved_takes_its_folder_along(self, own, tmp_path):
        run = own("a/version_0")
        (tmp_path / "kept/last.ckpt").touch()
        run.path.rename(run.path.with_name("moved"))
        own("b/version_0", resumes=True)  # which is where it is now
        write_run(tmp_path / "lightning_logs", "a/version_0")
        with pytest.raises(UserError, match=r"holds the checkpoints of .*b/version_0"):
            own("a/version_0")

    def test_a_run_without_a_checkpoint_has_nothing_to_lose(self, own):
        own("a/version_0")
        own("b/version_0")

    def test_checkpoints_of_nobody_knows_which_run(self, own, tmp_path):
        (tmp_path / "kept").mkdir()
        (tmp_path / "kept/mine.ckpt").touch()
        with pytest.raises(UserError, match=r"holds the checkpoints of another run \(mine\.ckpt\)"):
            own("a/version_0")

    def test_folders_of_other_runs(self, own):
        with pytest.raises(UserError, match=r"is inside the run a/version_0"):
            own("b/version_0", "lightning_logs/a/version_0/checkpoints")
        own("a/version_0", "lightning_logs/a/version_0/best")
