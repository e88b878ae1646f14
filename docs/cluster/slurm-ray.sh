#!/bin/bash
# Ray inside one allocation: a Ray node on each machine, and the sweep on the first of them. One driver decides for all,
# which costs less than an array where many packs are small, or where a pack needs several machines:
#   sbatch --nodes=4 docs/cluster/slurm-ray.sh my_model.yaml /shared/runs
#SBATCH --job-name=batchscale
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --mem=0
#SBATCH --time=08:00:00
#SBATCH --output=batchscale-%j.log
set -euo pipefail

experiment=${1:?usage: sbatch slurm-ray.sh EXPERIMENT RESULTS}
results=${2:?usage: sbatch slurm-ray.sh EXPERIMENT RESULTS}
port=$((20000 + SLURM_JOB_ID % 10000)) # two jobs may share a machine

mapfile -t machines < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${machines[0]}
address=$(srun --nodes=1 --ntasks=1 --nodelist="$head" hostname --ip-address)
address=${address%% *}

# A token of this job's own: whoever else is on the network cannot submit to its Ray.
export RAY_AUTH_MODE=token
RAY_AUTH_TOKEN=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
export RAY_AUTH_TOKEN

# --block keeps each step, and with it the Ray node, alive until the job ends; then SLURM ends them.
ray=(ray start --block --disable-usage-stats "--num-cpus=$SLURM_CPUS_PER_TASK" "--num-gpus=${SLURM_GPUS_ON_NODE:-0}")
srun --nodes=1 --ntasks=1 --overlap --nodelist="$head" \
  "${ray[@]}" --head "--node-ip-address=$address" "--port=$port" --include-dashboard=false &
sleep "${RAY_START_SECONDS:-20}"
if [ "${#machines[@]}" -gt 1 ]; then
  others=$(IFS=,; echo "${machines[*]:1}")
  srun --nodes=$((${#machines[@]} - 1)) --ntasks=$((${#machines[@]} - 1)) --overlap --nodelist="$others" \
    "${ray[@]}" "--address=$address:$port" &
  sleep "${RAY_START_SECONDS:-20}"
fi

status=0
srun --nodes=1 --ntasks=1 --overlap --nodelist="$head" \
  batchscale sweep "$experiment" --address "$address:$port" --results "$results" --for 7h50m || status=$?
kill $(jobs -p) 2>/dev/null || true
wait || true
exit "$status"
