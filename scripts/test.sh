#!/usr/bin/env bash
# All tests, those on several ranks included (--daily); --nightly: each on all numbers of ranks that it is
# made for, where else one is taken, and at more sizes and for more cases. Other arguments go to pytest;
# without any, the tests on one rank share two cores.
source "$(dirname "$0")/environment.sh"
if (($#)) && [[ $* != --nightly ]]; then
  exec python -m pytest "$@"
fi
several_ranks=tests/test_mpi_suite.py
how=${1:---daily}
status=0
python -m pytest --numprocesses=2 --dist=worksteal --ignore="$several_ranks" "$how" || status=$?
python -m pytest "$several_ranks" "$how" || status=$?
exit "$status"
