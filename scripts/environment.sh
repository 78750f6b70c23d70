# Sourced by the other scripts: makes .venv when it is missing and installs all that is needed.
# A second call finds everything in place and installs nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

stamp=.venv/installed
wanted=$(cat setup.cfg constraints.txt | cksum)
if [[ ! -f $stamp || $(<"$stamp") != "$wanted" ]]; then
  python=${PYTHON:-python3}
  if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "mosaicdd needs Python 3.11 or newer; set PYTHON to one (found: $("$python" --version))" >&2
    exit 2
  fi
  echo "installing into .venv (once)" >&2
  "$python" -m venv .venv
  .venv/bin/python -m pip install --quiet --disable-pip-version-check \
    --constraint constraints.txt --no-compile --editable '.[mpi,plot,test]'
  echo "$wanted" >"$stamp"
fi
export PATH="$PWD/.venv/bin:$PATH" OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
# Python would compile every file again in each of many processes.
unset PYTHONDONTWRITEBYTECODE
