#!/usr/bin/env bash
# The documentation as a site in build/site, a warning being an error; the examples of the gallery are run (two minutes).
source "$(dirname "$0")/environment.sh"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-compile --editable '.[site]'
rm -rf build/site docs/gallery_built
export MPLBACKEND=Agg
python -m sphinx -c docs -b html -W --keep-going --quiet . build/site "$@"
echo "open build/site/docs/index.html"
