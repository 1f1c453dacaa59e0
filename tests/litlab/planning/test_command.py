"""``fit --plan`` on the command line."""

import pytest

from litlab.errors import UserError
from litlab.planning.layout import Devices, Layout, of_strategy, others, parse
from tests.litlab.conftest import CONFIGS

DEVICES = Devices(2, 8, 2**30, gpus=True)


def test_tables_and_nothing_else(run, short, tmp_path):
    config = CONFIGS / "text.yaml"
    before = {path for path in tmp_path.rglob("*") if "cache" not in path.parts}
    done = run("fit", "--config", config, *short(config), "--plan", "1x2", "--plan_memory", "0.001")
    assert done.code == 0, done.err
    assert "Plan for 1 x 2 processes of 1.0 MiB. Nothing is run." in done.out
    for row in ("optimizer state", "DDP's buckets", "all-reduce", "fsdp2.yaml", "--ema null"):
        assert row in done.out
    after = {path for path in tmp_path.rglob("*") if not {"cache", "data"} & set(path.parts)}
    assert after <= before


@pytest.mark.parametrize("text", ["8", "0x8", "2x", "x", "2x8x8", "-1x2"])
def test_sizes_that_are_none(text):
    with pytest.raises(UserError, match=r"--plan: .* is not valid; give nodes x devices of each, such as 1x8"):
        parse(text)


def test_not_with_a_check(run, short):
    config = CONFIGS / "text.yaml"
    done = run("fit", "--config", config, *short(config), "--plan=1x2", "--check")
    assert (done.code, done.err.count("error:"), done.out) == (2, 1, "")
    assert "leave --resume, --ckpt_path and --check out" in done.err


def test_strategies_of_configs():
    def layout(strategy) -> Layout:
        return of_strategy(strategy, DEVICES, checkpointing=False)

    assert layout("auto") == layout("ddp_find_unused_parameters_true") == Layout("ddp")
    assert layout("fsdp") == layout("fsdp2") == Layout("sharded")
    arguments = {"tensor_parallel_size": 4, "cpu_offload": True}
    path = {"class_path": "litlab.parallel.ShardedStrategy", "init_args": arguments}
    assert layout(path) == Layout("sharded", 4, offload=True)
    with pytest.raises(UserError, match="--plan does not know deepspeed; it knows ddp"):
        layout("deepspeed")
    with pytest.raises(UserError, match="tensor_parallel_size is 3, which does not divide 16 devices"):
        layout({**path, "init_args": {"tensor_parallel_size": 3}})


def test_ways_to_compare_with():
    ways = list(others(Layout("ddp"), DEVICES, divisible=True))
    assert [way.tensor for way in ways if way.kind == "sharded" and not (way.checkpointing or way.offload)] == [
        1,
        2,
        4,
        8,
    ]
    assert Layout("ddp") not in ways
    assert {way.tensor for way in others(Layout("ddp"), DEVICES, divisible=False)} == {1}
    assert Layout("sharded", 4).flags(DEVICES) == (
        "fsdp2_tensor_parallel.yaml --trainer.strategy.tensor_parallel_size 4"
    )
