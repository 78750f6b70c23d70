#!/usr/bin/env bash
# All tests, those on several ranks included; arguments go to pytest.
source "$(dirname "$0")/environment.sh"
python -m pytest "$@"
