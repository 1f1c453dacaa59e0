"""One line of advice for a run that is out of memory."""

import torch

from litlab.util.device import GIB, is_out_of_memory, peak_host_gib


def explain_out_of_memory(error: BaseException) -> str | None:
    """Return peak memory and the flags that are most likely to help; None for any other exception.

    Args:
        error: What ended the run.
    """
    if not is_out_of_memory(error):
        return None
    peak = f"peak {peak_host_gib():.2f} GiB of the host's memory"
    if torch.cuda.is_available():
        total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory / GIB
        peak = f"peak {torch.cuda.max_memory_allocated() / GIB:.2f} of {total:.2f} GiB of the GPU"
    return (
        f"out of memory ({peak}): try half of --data.batch_size with twice --trainer.accumulate_grad_batches, or "
        "--trainer.precision bf16-mixed"
    )
