"""What differs between devices."""

import torch


def synchronize(device: torch.device) -> None:
    """Wait until a device has done what is queued on it."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
