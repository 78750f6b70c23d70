#!/usr/bin/env bash
# All tests, those on several ranks included; arguments go to pytest. Without any, the tests on one rank
# share two cores.
source "$(dirname "$0")/environment.sh"
if (($#)); then
  exec python -m pytest "$@"
fi
several_ranks=tests/test_mpi_suite.py
status=0
python -m pytest --numprocesses=2 --dist=worksteal --ignore="$several_ranks" || status=$?
python -m pytest "$several_ranks" || status=$?
exit "$status"
