"""Random numbers of a stage, where it computes on a GPU: torch's calls are replaced, as there may be none."""

import torch
from torch import nn

from litlab.parallel.stages import Stage, devices_of


def test_a_stage_seeds_the_generator_of_its_gpu(monkeypatch):
    generators = [torch.Generator().manual_seed(7), torch.Generator().manual_seed(7)]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "default_generators", generators)
    stage = Stage(nn.Sequential(nn.Linear(2, 2), nn.Dropout()), 0, 1)
    stage.seed = 3
    stage.run(None, (torch.ones(1, 2),), {})
    assert generators[0].initial_seed() == 7
    assert generators[1].initial_seed() == torch.initial_seed() not in (3, 7)  # of the last block
    device = torch.device("cuda", 1)
    assert devices_of(device) == [device]
    assert devices_of(torch.device("cpu")) == []
