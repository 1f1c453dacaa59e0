"""The queue and its workers, with workers that are made up."""

import asyncio
import time
from typing import Any

import pytest

from litlab.commands.serve import pool as pool_module
from litlab.commands.serve.messages import Reply, Setup
from litlab.commands.serve.pool import Pool, Rules
from litlab.commands.serve.refusal import Refusal
from litlab.commands.serve.worker_process import Lost
from litlab.errors import UserError

SETUP = Setup("auks", "run", (), 1)


class Fake:
    """A worker that answers with the size of the batch; "hang" and "die" do what they say."""

    fail = 0  # starts to refuse

    def __init__(self) -> None:
        self.manifest: dict[str, Any] = {"kind": "texts"}
        self.gone = asyncio.Event()
        self.batches: list[int] = []

    @classmethod
    async def start(cls, setup: Setup) -> "Fake":
        if cls.fail > 0:
            cls.fail -= 1
            raise UserError("the checkpoint is gone")
        return cls()

    async def ask(self, requests: list[tuple[str, bytes]]) -> list[Reply]:
        self.batches.append(len(requests))
        if (b"hang") in [body for _, body in requests]:
            await asyncio.sleep(60)
        if b"die" in [body for _, body in requests]:
            self.gone.set()
            raise Lost
        await asyncio.sleep(0.01)
        return [Reply(200, str(len(requests)).encode()) for _ in requests]

    async def ended(self) -> None:
        await self.gone.wait()

    async def end(self) -> int:
        self.gone.set()
        return -9


@pytest.fixture
def with_pool(monkeypatch):
    """Runs a coroutine with a pool that has started."""
    monkeypatch.setattr(pool_module, "WorkerProcess", Fake)
    monkeypatch.setattr(pool_module, "SECONDS_BETWEEN_ATTEMPTS", 0.001)
    monkeypatch.setattr(Fake, "fail", 0)

    def run(use: Any, **rules: Any) -> Any:
        async def main() -> Any:
            pool = Pool(SETUP, Rules(**rules))
            await pool.start()
            try:
                async with asyncio.timeout(10):
                    return await use(pool)
            finally:
                await pool.stop()

        return asyncio.run(main())

    return run


async def ask(pool: Pool, body: bytes = b"x") -> int | bytes:
    """Status of a refusal, or the answer."""
    try:
        async with pool.place():
            return (await pool.ask("", body)).body
    except Refusal as refusal:
        return refusal.status


def test_batches_are_as_large_as_allowed(with_pool):
    async def use(pool: Pool) -> None:
        answers = await asyncio.gather(*(ask(pool) for _ in range(10)))
        assert answers == [b"4"] * 8 + [b"2"] * 2
        assert (pool.counts.requests, pool.counts.batches, pool.counts.largest_batch) == (10, 3, 4)
        assert pool.inside == 0

    with_pool(use, batch_size=4)


def test_an_idle_worker_can_wait_for_more(with_pool):
    async def use(pool: Pool) -> None:
        start = time.monotonic()
        first = asyncio.create_task(ask(pool))
        await asyncio.sleep(0.05)
        assert await asyncio.gather(first, ask(pool)) == [b"2", b"2"]
        assert time.monotonic() - start > 1

    with_pool(use, batch_wait=1)


def test_a_worker_that_hangs_is_replaced(with_pool, capsys):
    async def use(pool: Pool) -> None:
        assert await asyncio.gather(ask(pool, b"hang"), ask(pool)) == [504, 504]
        assert await ask(pool) in (b"1", 503)
        await asyncio.sleep(0.05)
        assert await ask(pool) == b"1"
        assert pool.counts.restarts == 1

    with_pool(use, timeout=0.2)
    assert "A worker ended (exit code -9); another one is started." in capsys.readouterr().err


def test_a_worker_that_dies_takes_its_batch_with_it_and_no_more(with_pool):
    async def use(pool: Pool) -> None:
        first = asyncio.create_task(ask(pool, b"die"))
        await asyncio.sleep(0)
        answers = await asyncio.gather(first, *(ask(pool) for _ in range(4)))
        assert answers[0] == 503
        assert set(answers[1:]) <= {503, b"1", b"2", b"3", b"4"}
        await asyncio.sleep(0.05)
        assert await ask(pool) == b"1"

    with_pool(use, batch_size=1)


def test_a_queue_that_is_full_refuses(with_pool):
    async def use(pool: Pool) -> None:
        answers = await asyncio.gather(*(ask(pool) for _ in range(5)))
        assert answers.count(503) == 2

    with_pool(use, queue=3)


def test_the_server_gives_up_when_no_worker_can_be_started(with_pool, monkeypatch):
    async def use(pool: Pool) -> None:
        monkeypatch.setattr(Fake, "fail", pool_module.ATTEMPTS)
        assert await ask(pool, b"die") == 503
        assert await pool.failed == "the checkpoint is gone"
        assert await ask(pool) == 503

    with_pool(use)


@pytest.mark.parametrize("bug", [OSError("no more processes"), ValueError("a bug")])
def test_a_place_that_stays_empty_ends_the_server(with_pool, monkeypatch, capsys, bug):
    async def use(pool: Pool) -> None:
        async def start(setup: Setup) -> Fake:
            raise bug

        monkeypatch.setattr(Fake, "start", start)
        assert await ask(pool, b"die") == 503
        assert str(bug) in await pool.failed

    with_pool(use)
    assert str(bug) in capsys.readouterr().err


def test_another_model_does_not_take_the_place_of_a_worker(with_pool, monkeypatch):
    """``--run cifar`` is the newest run, and there may be a newer one by now."""

    async def use(pool: Pool) -> None:
        async def start(setup: Setup) -> Fake:
            other = Fake()
            other.manifest = {"kind": "texts", "run": {"name": "newer"}}
            return other

        monkeypatch.setattr(Fake, "start", start)
        assert await ask(pool, b"die") == 503
        assert await pool.failed == "run is another model by now; start the server again"

    with_pool(use)


def test_a_start_that_fails_is_an_error(with_pool, monkeypatch):
    monkeypatch.setattr(Fake, "fail", 1)
    with pytest.raises(UserError, match="the checkpoint is gone"):
        with_pool(None, workers=2)
