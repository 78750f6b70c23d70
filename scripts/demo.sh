#!/usr/bin/env bash
# The paper's largest problem, 2048 x 2048, on two ranks by the shipped network; files in demo/.
source "$(dirname "$0")/environment.sh"
mkdir -p demo
problem=(--cells 2048x2048 --boundary gp:seed=0)

echo "== solve, by the shipped network"
mpiexec -n 2 mosaicdd solve -o demo/laplace.h5 "${problem[@]}"
echo "== solve, by the paper's kind of network, in float32 inside of a float64 iteration"
mpiexec -n 2 mosaicdd solve -o demo/sdnet.h5 "${problem[@]}" --local-solver laplace-sdnet --network-dtype float32
echo "== solve, by the exact local solver"
mpiexec -n 2 mosaicdd solve -o demo/exact.h5 "${problem[@]}" --local-solver exact
echo "== compare (pyAMG takes the longest)"
python benchmarks/run.py demo demo
mosaicdd plot demo/laplace.h5 --reference demo/pyamg.h5
