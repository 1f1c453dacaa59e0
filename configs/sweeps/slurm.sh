#!/bin/bash
# A sweep on SLURM: every task of the array is one more worker of the same sweep, with a GPU of its own.
#   LITLAB_SWEEP_STORAGE=postgresql://user:password@host/sweeps sbatch configs/sweeps/slurm.sh configs/sweeps/cifar.yaml
# Tasks on several machines need a PostgreSQL or MySQL database that all can reach, and a shared folder lightning_logs.
# A task that is preempted or reaches its time limit queues its trial again; another task, or the same one after SLURM
# has requeued it, continues the trial.
#SBATCH --job-name=sweep
#SBATCH --array=0-7
#SBATCH --gpus=1
#SBATCH --cpus-per-task=4
#SBATCH --time=04:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --output=lightning_logs/slurm_%A_%a.log
set -euo pipefail
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-4}
exec srun --ntasks=1 python -m project sweep --config "$1" --workers 1 "${@:2}"
