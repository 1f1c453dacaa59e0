#!/bin/bash
# One experiment on several nodes of SLURM: srun starts one process for each GPU.
#   sbatch configs/cluster/slurm.sh configs/cifar.yaml
#   sbatch --nodes=8 configs/cluster/slurm.sh configs/text.yaml --trainer.strategy fsdp2
# All nodes must see the folder in which you call sbatch. Before its time is up, or when it is preempted, the run saves
# its state after the step at hand; it is then requeued and resumed. A later sbatch of the same command resumes it, too.
#SBATCH --job-name=fit
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --signal=USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=lightning_logs/slurm_%j.log
set -euo pipefail
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-8}
export SRUN_CPUS_PER_TASK=$OMP_NUM_THREADS # srun does not take it from the job
exec srun --wait=300 python -m project fit --config "$1" --resume auto --trainer.num_nodes "$SLURM_JOB_NUM_NODES" \
    --trainer.devices "$SLURM_NTASKS_PER_NODE" --trainer.strategy ddp "${@:2}"
