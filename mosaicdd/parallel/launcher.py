"""What started this process, by its environment: alone, or one of several by a launcher.

It can be said before, and without, an MPI library.
"""

import os
from dataclasses import dataclass

_RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")
_SIZE_VARIABLES = {
    "OMPI_COMM_WORLD_SIZE": "Open MPI's mpiexec",
    "MV2_COMM_WORLD_SIZE": "MVAPICH's mpiexec",
    "PMI_SIZE": "mpiexec",
}
# Slurm numbers the steps of srun from 0; a batch script and a shell of salloc are steps from here.
_FIRST_STEP_WITHOUT_SRUN = 0xFFFFFFF0


@dataclass(frozen=True)
class Launcher:
    """What started this process.

    Parameters
    ----------
    name
        ``"srun"``, an ``mpiexec``, ``"torchrun"``, or ``"none"``.
    ranks
        How many ranks it was asked for.
    """

    name: str = "none"
    ranks: int = 1


def launcher() -> Launcher:
    """Return what started this process, by its environment."""
    tasks = _number("SLURM_STEP_NUM_TASKS") if _in_srun() else None
    if under_torchrun():
        return Launcher("torchrun", _number("WORLD_SIZE") or 1)
    for variable, name in _SIZE_VARIABLES.items():
        if (ranks := _number(variable)) is not None:
            # The innermost counts: mpiexec in a batch job starts one task of srun per machine.
            return Launcher("srun" if ranks == tasks else name, ranks)
    return Launcher() if tasks is None else Launcher("srun", tasks)


def launcher_rank() -> int:
    """Return the rank the launcher gave this process, 0 without one."""
    if under_torchrun():
        return _number("RANK") or 0
    for name in _RANK_VARIABLES:
        if (rank := _number(name)) is not None:
            return rank
    return (_number("SLURM_PROCID") or 0) if _in_srun() else 0


def _in_srun() -> bool:
    """Return whether srun started this process, and not only a batch script or salloc."""
    step = _number("SLURM_STEP_ID")
    return step is not None and step < _FIRST_STEP_WITHOUT_SRUN


def _number(variable: str) -> int | None:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else None


def under_torchrun() -> bool:
    """Return whether torchrun started this process: then its ranks are not MPI's."""
    return "TORCHELASTIC_RUN_ID" in os.environ
