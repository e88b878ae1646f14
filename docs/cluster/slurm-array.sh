#!/bin/bash
# An array of 16 independent jobs without Ray: sweeps on one shared folder divide the work. Submit it again for what is
# missing:  sbatch docs/cluster/slurm-array.sh my_model.yaml /shared/runs
#SBATCH --job-name=batchscale
#SBATCH --array=0-15
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-task=4
#SBATCH --mem=16G
#SBATCH --time=08:00:00
#SBATCH --signal=TERM@120
#SBATCH --output=batchscale-%A-%a.log
set -euo pipefail

experiment=${1:?usage: sbatch slurm-array.sh EXPERIMENT RESULTS}
results=${2:?usage: sbatch slurm-array.sh EXPERIMENT RESULTS}

# exec: SLURM's SIGTERM, two minutes before the time is up, reaches the sweep itself, which stops cleanly.
exec srun --ntasks=1 batchscale sweep "$experiment" --address none --results "$results" --for 7h50m
