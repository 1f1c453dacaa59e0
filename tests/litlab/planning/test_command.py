"""``fit --plan`` on the command line."""

from types import SimpleNamespace

import pytest
import torch

from litlab.data.series import SeriesData
from litlab.errors import UserError
from litlab.planning.batch import training_batch, without_download
from litlab.planning.layout import Devices, Layout, of_strategy, others, parse
from litlab.planning.plan import _devices
from tests.litlab.conftest import CONFIGS

DEVICES = Devices(2, 8, 2**30, gpus=True)


def test_tables_and_nothing_else(run, short, tmp_path):
    config = CONFIGS / "text.yaml"
    before = {path for path in tmp_path.rglob("*") if "cache" not in path.parts}
    done = run("fit", "--config", config, *short(config), "--plan", "1x2", "--plan_memory", "0.001")
    assert done.code == 0, done.err
    assert "Plan for 1 x 2 processes of 1.0 MiB. Nothing is run." in done.out
    for row in ("optimizer state", "DDP's buckets", "all-reduce", "fsdp2.yaml", "no"):
        assert row in done.out
    after = {path for path in tmp_path.rglob("*") if not {"cache", "data"} & set(path.parts)}
    assert after <= before


@pytest.mark.parametrize("text", ["8", "0x8", "2x", "x", "2x8x8", "-1x2"])
def test_sizes_that_are_none(text):
    with pytest.raises(UserError, match=r"--plan: .* is not valid; give nodes x devices of each, such as 1x8"):
        parse(text)


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--plan=1x2", "--check"], "--plan: it looks at a fit from its start; leave --resume, --ckpt_path and"),
        (["--plan=1x2", "--ckpt_path=last.ckpt"], "--plan: it looks at a fit from its start; leave"),
        (["--plan=1x2", "--seeds=0,1"], "--seeds: it doesn't go together with --resume, --check, --plan"),
        (["--plan=8"], "--plan: '8' is not valid; give nodes x devices of each"),
        (["--plan="], "--plan: '' is not valid"),
        (["--plan=1x2", "--plan_memory=inf"], "plan_memory: inf is not valid"),
        (["--plan=1x2", "--trainer.strategy=deepspeed"], "trainer.strategy: --plan does not know deepspeed"),
        (
            ["--plan=1x2", "--trainer.strategy=fsdp2", "--agc.factor=0.1", "--trainer.precision=16-mixed"],
            "trainer.strategy: it divides the model, for which fit needs --agc null --trainer.precision bf16-mixed",
        ),
    ],
)
def test_what_does_not_go_together_is_one_line(run, short, tmp_path, flags, line):
    config = CONFIGS / "text.yaml"
    done = run("fit", "--config", config, *short(config), *flags)
    assert (done.code, done.err.count("error:"), done.out) == (2, 1, ""), done.err
    assert f"error: {line}" in done.err
    assert not (tmp_path / "lightning_logs").exists()


def test_devices_are_the_gpus_of_this_machine_unless_their_memory_is_given(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)  # there is none
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: SimpleNamespace(total_memory=24 * 2**30))
    assert _devices("2x4", None, "auto") == Devices(2, 4, 24 * 2**30, gpus=True)
    assert _devices("2x4", 80, "auto") == Devices(2, 4, 80 * 2**30, gpus=True)
    assert not _devices("2x4", None, "cpu").gpus


def test_data_is_loaded_without_processes_of_its_own():
    data = SeriesData("generated", targets=["sine"], context_length=48, horizon=24, batch_size=4, num_workers=2)
    without_download(data)
    batch, _ = training_batch(data)
    assert data.num_workers == 0
    assert len(batch["past"]) == 4


def test_strategies_of_configs():
    def layout(strategy) -> Layout:
        return of_strategy(strategy, DEVICES)

    assert layout("auto") == layout("ddp_find_unused_parameters_true") == Layout("ddp")
    assert layout("fsdp") == layout("fsdp2") == Layout("sharded")
    arguments = {"tensor_parallel_size": 4, "cpu_offload": True}
    path = {"class_path": "litlab.parallel.ShardedStrategy", "init_args": arguments}
    assert layout(path) == Layout("sharded", 4, offload=True)
    with pytest.raises(UserError, match="--plan does not know deepspeed; it knows ddp"):
        layout("deepspeed")
    with pytest.raises(UserError, match="tensor_parallel_size is 3, which does not divide 16 devices"):
        layout({**path, "init_args": {"tensor_parallel_size": 3}})
    with pytest.raises(UserError, match="tensor_parallel_size is 0"):
        layout({**path, "init_args": {"tensor_parallel_size": 0}})


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
    layout = Layout("sharded", 4, checkpointing=True)
    assert layout.overlays(DEVICES) == ["fsdp2_tensor_parallel", "activation_checkpointing"]
    assert layout.settings() == ["--trainer.strategy.tensor_parallel_size", "4"]
    assert Layout("sharded", offload=True).overlays(DEVICES) == ["offload"]
