#!/usr/bin/env bash
# The paper's experiments, table by table and figure by figure, and the page benchmarks/paper.md.
#
#   scripts/reproduce.sh quick   on 2 cores, meant for 25 minutes (default)
#   scripts/reproduce.sh full    larger, for many cores: hours
#
# Trainings end by processor time or epochs, not by the clock. A step that fails leaves its last table as
# it was, and lets this script end with 1. The seconds of all steps go to benchmarks/paper/seconds.csv.
case ${1:-quick} in
quick)
  seconds=10 long= epochs=2 seeds=3 trials=5 batching=0.2 scaling=512x512 weak=256x256 lattice=64 job=512
  table4=(1 2) # others stay as they were
  ;;
full)
  seconds=120 long=900 epochs=40 seeds=10 trials=30 batching=1 scaling=2048x2048 weak=1024x512 lattice=128 job=2048
  table4=(1 2 4 8 16 32)
  ;;
*)
  echo "usage: scripts/reproduce.sh [quick|full]" >&2
  exit 2
  ;;
esac
source "$(dirname "$0")/environment.sh"
data=$PWD/paper-data
mkdir -p "$data" benchmarks/paper
failed=0
seconds_file=benchmarks/paper/seconds.csv
echo "step,seconds,of processors" >$seconds_file
step() { # NAME COMMAND...
  local name=$1 start=$SECONDS before
  count_processors
  before=$spent
  shift
  echo "== $name: $*" >&2
  "$@" || { echo "   failed: $*" >&2; failed=1; }
  count_processors
  echo "$name,$((SECONDS - start)),$((spent - before))" | tee -a $seconds_file >&2
}
count_processors() { # sets spent: seconds of all processes that have ended
  times >"$data/times"
  spent=$(awk -F '[ms \t]' 'NR == 2 { printf "%d", 60 * $1 + $2 + 60 * $4 + $5 }' "$data/times")
}
generate() {
  [[ -f $data/$1.h5 ]] || mosaicdd generate "$data/$1.h5" --method direct "${@:2}"
}
laplace=$data/laplace.h5 paper=$data/paper.h5

step data generate laplace
step "the paper's data" generate paper --length-scale 0.1 1 --amplitude 0.5 2 --noise 0

step recipes python benchmarks/run.py paper_recipes "$paper" "$laplace" --seconds "$seconds" --models "$data"
[[ $long ]] && step "the paper's recipe alone" python benchmarks/run.py paper_recipes "$paper" "$laplace" \
  --seconds "$long" --only 1 --output recipe_long
step samples python benchmarks/run.py paper_samples "$paper" "$laplace" --seconds "$((3 * seconds))"
step trainings python benchmarks/run.py paper_training "$laplace" \
  --epochs "$epochs" --seeds "$seeds" --seconds "$seconds"
step memory python benchmarks/run.py paper_memory
step "split layer" python benchmarks/run.py split "$trials"
step batching python benchmarks/run.py batching "$batching"
step solving python benchmarks/run.py paper_solving "$laplace" --model "$data/recipe-0.h5" --seconds "$seconds"
step "lattice interval" python benchmarks/run.py paper_lattice "$lattice"
step job python benchmarks/run.py paper_job --cells "$job"
step iterations python benchmarks/run.py iterations --anew --ranks "${table4[@]}"
step scaling python benchmarks/run.py scaling --ranks 1 2 --name paper/fig9 --local-solver laplace-sdnet \
  --levels 1 --iterations 5 --repetitions 1 --strong "$scaling" --weak "$weak"
step ranks python benchmarks/run.py paper_parallel
step figures python benchmarks/run.py paper_figures
count_processors
echo "in all,$SECONDS,$spent" | tee -a $seconds_file >&2
python benchmarks/run.py paper
exit $failed
