#!/usr/bin/env bash
# The paper's experiments, table by table and figure by figure, and the page benchmarks/paper.md.
#
#   scripts/reproduce.sh quick   on 2 cores, meant for 25 minutes (default)
#   scripts/reproduce.sh full    larger, for many cores: hours
#
# Trainings end by processor time or epochs, not by the clock. A step that fails leaves its last table as
# it was, and lets this script end with 1.
case ${1:-quick} in
quick)
  seconds=30 epochs=3 seeds=5 trials=10 scaling=512x512 weak=256x256 lattice=64
  table4=(1 2 4) # others stay as they were
  ;;
full)
  seconds=120 epochs=40 seeds=10 trials=30 scaling=2048x2048 weak=1024x512 lattice=128
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
step() {
  echo "== $*" >&2
  "$@" || { echo "   failed: $*" >&2; failed=1; }
}
generate() {
  [[ -f $data/$1.h5 ]] || mosaicdd generate "$data/$1.h5" --method direct "${@:2}"
}
generate laplace
generate paper --length-scale 0.1 1 --amplitude 0.5 2 --noise 0
laplace=$data/laplace.h5 paper=$data/paper.h5

step python scripts/paper_recipes.py "$paper" "$laplace" --seconds "$seconds" --models "$data"
step python scripts/paper_training.py "$laplace" \
  --epochs "$epochs" --seeds "$seeds" --seconds "$seconds"
step python scripts/paper_memory.py
step python scripts/bench_split.py "$trials"
step python scripts/bench_batching.py
step python scripts/paper_solving.py "$laplace" --model "$data/recipe-0.h5" --seconds "$seconds"
step python scripts/paper_lattice.py "$lattice"
step python scripts/bench_iterations.py --anew --ranks "${table4[@]}"
step python scripts/bench_scaling.py --ranks 1,2 --name paper/fig9 --local-solver laplace-sdnet \
  --levels 1 --iterations 5 --repetitions 1 --strong "$scaling" --weak "$weak"
step python scripts/paper_figures.py
step python scripts/paper_page.py
exit $failed
