"""Python on several ranks of this machine, for the benchmarks."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path


def on_ranks(ranks: int, *arguments: str) -> str:
    """Run Python with some arguments, under mpiexec on more than one rank; return what it prints.

    A rank has one thread.

    Raises
    ------
    subprocess.CalledProcessError
        If it fails.
    """
    command = [sys.executable, *arguments]
    if ranks > 1:
        beside = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        command = [str(beside), "-n", str(ranks), *command]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    job = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return job.stdout


def mosaicdd(ranks: int, *arguments: str) -> dict:
    """Run a command of the package with ``--json``; return what it prints."""
    return json.loads(on_ranks(ranks, "-m", "mosaicdd.cli.main", *arguments, "--json"))
