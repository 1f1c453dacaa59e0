"""The connections between the ranks of a run: strangers, a port that can't be reached, ranks that end."""

import json
import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest
from lightning.pytorch import Trainer
from torch.distributed import HashStore  # pyright: ignore[reportPrivateImportUsage]

from litlab.runs import rank_watch
from litlab.runs.rank_link import RankLink
from litlab.runs.rank_watch import RankWatch

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # links end with their process


@pytest.fixture
def store(monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    return HashStore()


def hear(link: RankLink) -> None:
    """All that has been sent."""
    for _ in range(50):
        link.wait(0.01)


def test_strangers_are_turned_away_and_ranks_are_heard(store):
    first = RankLink(store, 0, 3)
    port = json.loads(store.get("first"))["port"]
    said = [b'{"word": "guessed", "rank": 1}\n', b"[" * 100_000 + b"\n", b"x" * 100_000, b'{"rank": 1}\n', b"\xff\n5\n"]
    strangers = [socket.create_connection(("127.0.0.1", port), 5) for _ in said]
    for stranger, words in zip(strangers, said, strict=True):
        stranger.sendall(words)
    ranks = [RankLink(store, rank, 3) for rank in (1, 2)]
    strangers += [socket.create_connection(("127.0.0.1", port), 5) for _ in range(20)]
    hear(first)
    assert sorted(peer.said["rank"] for peer in first.peers) == [1, 2]
    ranks[0].say(failure="x" * 100_000)
    hear(first)
    assert [len(peer.said.get("failure", "")) for peer in first.peers if peer.said["rank"] == 1] == [100_000]
    with pytest.raises(ConnectionRefusedError):  # nobody else is to come
        socket.create_connection(("127.0.0.1", port))
    assert not first._unknown


def test_only_processes_of_the_machine_can_connect_where_all_are_on_it(store, monkeypatch):
    def bound() -> str:
        return RankLink(HashStore(), 0, 2)._server.getsockname()[0]

    assert bound() == "127.0.0.1"
    monkeypatch.setenv("MASTER_ADDR", socket.gethostname())
    assert bound() in ("::", "0.0.0.0")


def test_a_run_goes_on_where_a_port_can_not_be_reached(store, monkeypatch, capfd):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    store.set("first", json.dumps({"rank": 0, "host": "h", "pid": 1, "port": port, "word": "w"}))
    monkeypatch.setattr(rank_watch, "new_store", lambda prefix: store)
    launcher = SimpleNamespace(procs=[])
    trainer = cast(Trainer, SimpleNamespace(
        world_size=2, global_rank=1, local_rank=0, loggers=[], strategy=SimpleNamespace(launcher=launcher)
    ))  # fmt: skip
    watch = RankWatch()
    for _ in range(2):
        watch.begin(trainer)
        watch.pause()
    watch.stop(trainer, RuntimeError("gloo: connection closed"))
    printed = capfd.readouterr().err
    assert printed.count("warning: ") == 1
    assert f"can't connect to rank 0 at 127.0.0.1, port {port} " in printed


def test_a_rank_that_has_finished_its_stage_is_not_lost(store):
    watch, first = RankWatch(), RankLink(store, 0, 2)
    other: Any = RankLink(store, 1, 2)
    watch._stage, watch._in_stage = 1, True
    other.say(in_stage=True)
    other.say(in_stage=False, done=1)
    other.peers[0].close()
    hear(first)
    assert first.peers[0].gone
    assert watch._loss(first) is None
    watch._stage = 2  # which the other one never reaches
    loss = watch._loss(first)
    assert loss is not None
    assert loss.what == f"rank 1 on {socket.gethostname()} died"
