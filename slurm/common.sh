# Sourced by the batch scripts: the environment of a job, and `run`, which continues and requeues.
# Submit from the repository: the .venv that scripts/demo.sh makes there is used when it is there.
set -euo pipefail
cd "$SLURM_SUBMIT_DIR"
if [[ -d .venv ]]; then export PATH="$PWD/.venv/bin:$PATH"; fi
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}
export SRUN_CPUS_PER_TASK=$OMP_NUM_THREADS # since Slurm 22.05, srun does not inherit it from sbatch
# The MPI library of the `mpi` extra (MPICH) speaks PMI-2; set MPI_TYPE=pmix for a cluster's own.
# The last option: after the loss of a rank Slurm would let the others wait to the time limit.
launch=(srun --mpi="${MPI_TYPE:-pmi2}" --kill-on-bad-exit=1)

# run COMMAND ARGUMENTS...: a command of mosaicdd on all tasks, from its checkpoint if there is one.
# A run that ends early, but has written a checkpoint, is put into the queue again; one that has
# not would end in the same place again and again, and ends the job instead.
run() {
  local output before after code=0 job=$SLURM_JOB_ID resume=()
  output=$(output_of "$@")
  before=$(checkpoints_of "$output")
  if [[ -n $before ]]; then resume=(--resume); fi
  "${launch[@]}" mosaicdd "$@" "${resume[@]}" || code=$?
  after=$(checkpoints_of "$output")
  if ((code == 0 || code == 2)) || [[ -z $after || $after == "$before" ]]; then exit "$code"; fi
  # The first task of an array has the number of the whole array.
  if [[ -n ${SLURM_ARRAY_TASK_ID:-} ]]; then job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID; fi
  echo "stopped with a new checkpoint: requeued"
  exec scontrol requeue "$job"
}

# The value of -o FILE, -oFILE, --output FILE or --output=FILE; the last one counts.
output_of() {
  local output=
  while (($#)); do
    case $1 in
      -o | --output) output=${2:-} ;;
      --output=*) output=${1#*=} ;;
      -o*) output=${1#-o} ;;
    esac
    shift
  done
  echo "$output"
}

# The checkpoints of an output, with what tells a new one from an old: FILE.checkpoint of a solve,
# FILE.checkpoint-STEP of a training.
checkpoints_of() {
  if [[ -n $1 ]]; then
    find "$(dirname "$1")" -maxdepth 1 -type f -printf '%f %i %s %T@\n' | sort |
      awk -v name="$(basename "$1").checkpoint" '
        index($1, name) == 1 && substr($1, length(name) + 1) ~ /^(-[0-9]+)?$/'
  fi
}
