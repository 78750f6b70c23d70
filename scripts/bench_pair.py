"""Run the main jobs by this tree and by an earlier commit in turns: ``bench_pair.py COMMIT [PAIRS]``."""

import subprocess
import sys
from pathlib import Path

RUN = Path(__file__).parents[1] / "benchmarks" / "run.py"
sys.exit(subprocess.call([sys.executable, RUN, "pair", *sys.argv[1:]]))
