"""Tables."""

import torch
from torch import nn


class Flat(nn.Module):
    """Predict from the numbers and the numbers of the categories, with two layers.

    Args:
        num_numbers: Inputs that are numbers. Taken from the data when left out.
        category_sizes: For each input of categories how many there are. Taken from the data when
            left out.
        num_outputs: Classes or targets. Taken from the data when left out.
    """

    def __init__(
        self,
        num_numbers: int | None = None,
        category_sizes: list[int] | None = None,
        num_outputs: int | None = None,
    ) -> None:
        super().__init__()
        inputs = (num_numbers or 0) + len(category_sizes or [])
        self.layers = nn.Sequential(
            nn.Linear(inputs, 16), nn.ReLU(), nn.Linear(16, num_outputs or 0)
        )

    def forward(self, numbers, categories):
        return self.layers(torch.cat([numbers, categories.float()], dim=1))
