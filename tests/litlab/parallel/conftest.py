"""Fits by DDP, FSDP2, tensor parallelism, and both, in 2 or 4 processes, and by one process."""

from pathlib import Path

import pytest
import yaml

from tests.litlab.parallel import program

CASES = yaml.safe_load("""
shared:
  rich: &rich
    average: ema
    accumulate_grad_batches: 2
    gradient_clip_val: 0.1
    model: {optimizer: SGD, lr: 0.1, dropout: 0.2}  # AdamW makes much of rounding
  value: &value
    precision: bf16-mixed
    gradient_clip_val: 0.001
    gradient_clip_algorithm: value
    model: {optimizer: SGD, lr: 0.1}
  # The first rule counts: most weights have no gradients
  frozen: &frozen {freeze: {network.blocks.3: 0, "*": null}, gradient_clip_val: 0.1}
  thawed: &thawed {freeze: {network.blocks.*: 1}, gradient_clip_val: 0.1}
  swa: &swa {average: swa, model: {optimizer: SGD, lr: 0.1, norm: true}}

runs:  # one after the other, with the number of processes
- [1, {one_frozen: *frozen, one_thawed: *thawed, one_rich: *rich, one_value: *value}]
- - 2
  - ddp_thawed: {<<: *thawed, strategy: ddp}
    ddp_rich: {<<: *rich, strategy: ddp}
    ddp_swa: {<<: *swa, strategy: ddp}
    fsdp2_rich: &fsdp2_rich {<<: *rich, strategy: fsdp2, parts: true}
    fsdp2_resumed: {<<: *fsdp2_rich, resume: fsdp2_rich-4}  # within the second epoch
    fsdp2_swa: {<<: *swa, strategy: fsdp2, offload: true, validated: true}
    fsdp2_value: {<<: *value, strategy: fsdp2}
    ddp_resumed: {<<: *rich, strategy: ddp, resume: fsdp2_rich-4}
    tp_rich: {<<: *rich, strategy: tp}
    tp_resumed: {<<: *rich, strategy: tp, resume: tp_rich-4}
    tp_frozen: {<<: *frozen, strategy: tp}
- [4, {both: {<<: *rich, strategy: both, resume: fsdp2_rich-4, parts: true}}]
- - 1
  - one_resumed: {<<: *rich, resume: tp_rich-4}
    fsdp2_rich_test: {fitted: false, resume: fsdp2_rich}
    tp_rich_test: {fitted: false, resume: tp_rich}
    both_test: {fitted: false, resume: both}
""")


@pytest.fixture(scope="module")
def folder(make_once) -> Path:
    def fill(folder):
        for world, cases in CASES["runs"]:
            program.run(folder, world, cases)

    return make_once("strategies", fill)
