"""Tasks of few-shot regression: what they are, and what they follow from."""

import math

import torch

from project.data.sinusoids import Sinusoids


def test_a_task_is_a_sinusoid_of_the_papers_ranges():
    data = Sinusoids(shots=5, queries=15, batch_size=2000, train_tasks=2000)
    batch = next(data.batches("train"))
    assert (batch["support_x"].shape, batch["query_y"].shape) == ((2000, 5, 1), (2000, 15, 1))
    x, y = (
        torch.cat([batch[f"support_{axis}"], batch[f"query_{axis}"]], dim=1)[..., 0]
        for axis in "xy"
    )
    torch.testing.assert_close(
        y, batch["amplitude"][:, None] * torch.sin(x - batch["phase"][:, None])
    )
    for values, low, high in (
        (x, -5, 5),
        (batch["amplitude"], 0.1, 5),
        (batch["phase"], 0, math.pi),
    ):
        assert low <= values.min() < low + 0.02 * (high - low)
        assert high - 0.02 * (high - low) < values.max() < high


def test_a_task_follows_from_seed_split_epoch_and_number():
    def phases(split: str, epoch: int = 0, **settings) -> torch.Tensor:
        data = Sinusoids(
            **{"batch_size": 10, "val_tasks": 40, "test_tasks": 40, "train_tasks": 40, **settings}
        )
        data.setup()
        numbers = data.samples(split)[torch.arange(40)]
        return data.transform(list(numbers), epoch if split == "train" else None)["phase"]

    assert torch.equal(phases("test"), phases("test"))
    assert torch.equal(phases("train", 3)[:20], phases("train", 3, train_tasks=50)[:20])
    others = [
        phases("test"),
        phases("val"),
        phases("train"),
        phases("train", 1),
        phases("test", seed=1),
    ]
    assert len(torch.cat(others).unique()) == 40 * len(others)
