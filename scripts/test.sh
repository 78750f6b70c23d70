#!/usr/bin/env bash
# All tests, those on several ranks included (--daily); --nightly: each on all numbers of ranks that it is
# made for, where else one is taken, and at more sizes and for more cases. Other arguments go to pytest;
# without any, the tests on one rank share two cores.
# --processor NAME, first: as on another processor (tests/helpers/processors.py). Without it all tests of a day
# pretend the one whose turn it is, and --nightly has those of a day run once more on each.
source "$(dirname "$0")/environment.sh"
pretend() { # as all that is started from here on does
  local exports
  exports=$(python tests/helpers/processors.py "$1") || exit $?
  eval "$exports"
  echo "tests as on the processor: $1" >&2
}
all() {
  python -m pytest --numprocesses=2 --dist=worksteal --ignore="$several_ranks" "$1" || status=$?
  python -m pytest "$several_ranks" "$1" || status=$?
}
several_ranks=tests/test_mpi_suite.py
status=0
asked=
if [[ ${1:-} == --processor ]]; then
  asked=${2:-}
  shift; shift || true
  pretend "$asked"
fi
if (($#)) && [[ $* != --nightly ]]; then
  exec python -m pytest "$@"
fi
if ((!$#)); then
  [[ $asked ]] || pretend "$(python tests/helpers/processors.py --today)"
  all --daily
  exit "$status"
fi
all --nightly
if [[ ! $asked ]]; then
  for name in $(python tests/helpers/processors.py --all); do
    [[ $name == this ]] || (status=0; pretend "$name"; all --daily; exit "$status") || status=$?
  done
fi
exit "$status"
