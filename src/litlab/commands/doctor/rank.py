"""``python -m litlab.commands.doctor.rank``: one of two processes that add their tensors up."""

import gc
import os
from datetime import timedelta


def main() -> None:
    """Sum a tensor over all processes, by the variables with which torchrun and Lightning start them.

    Raises:
        RuntimeError: If the sum is wrong.
    """
    gc.disable()  # as in litlab.commands.doctor.child
    import torch
    import torch.distributed as dist

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    on_gpus = torch.cuda.device_count() >= size
    if on_gpus:
        torch.cuda.set_device(rank)
    backend = "nccl" if on_gpus else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=30))
    tensor = torch.full((1024,), float(rank + 1), device="cuda" if on_gpus else "cpu")
    dist.all_reduce(tensor)
    expected = size * (size + 1) / 2
    if not (tensor == expected).all():
        raise RuntimeError(f"the sum is {tensor[0].item()} instead of {expected}")
    dist.destroy_process_group()
    print(backend)


if __name__ == "__main__":
    main()
