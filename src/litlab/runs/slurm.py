"""What a job asks SLURM for."""

import os
import subprocess
import sys

from lightning.pytorch.utilities import rank_zero_info


def requeue() -> None:
    """Puts the SLURM job that this process belongs to back into the queue."""
    job = os.environ["SLURM_JOB_ID"]
    done = subprocess.run(["scontrol", "requeue", job], capture_output=True, text=True)
    if done.returncode == 0:
        rank_zero_info(f"SLURM job {job} is requeued.")
    else:
        print(f"warning: SLURM job {job} can't be requeued: {done.stderr.strip()}", file=sys.stderr)
