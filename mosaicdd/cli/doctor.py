"""``mosaicdd doctor``: one screen on what is installed and started, with what to do about it."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

import mosaicdd
from mosaicdd.parallel.launcher import (
    communicator,
    launcher,
    launcher_rank,
    lonely_ranks,
    mpi_vendor,
    needed_pmi,
    threads_per_rank,
    too_many_threads,
)
from mosaicdd.storage.metrics_file import json_line

if TYPE_CHECKING:
    from mosaicdd.cli.findings import Finding


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def doctor(as_json: bool) -> int:
    """Say what is installed and started, and what to do about what is wrong.

    Start it as the command that is in trouble: alone, under mpiexec or in a batch job. Exit code 0:
    nothing is wrong; 1: something is.

    Example: srun --mpi=pmi2 -n 4 mosaicdd doctor
    """
    threads, refused = threads_per_rank(), too_many_threads()
    if refused:  # and would end this process, too
        os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    from mosaicdd.parallel.machine import Place
    from mosaicdd.parallel.ranks import Ranks

    comm = communicator()
    vendor = None if comm is None else mpi_vendor()
    with Ranks.of(comm) as ranks:
        lonely = "" if vendor is None else lonely_ranks(ranks.size)
        if launcher_rank() and ranks.size == 1:
            return int(vendor is None or bool(lonely))  # alone in its world: the first one speaks
        places = ranks.gather(Place.here())
        findings = ranks.bcast(places and _findings(vendor, places, lonely, threads, refused))
    wrong = any(finding.wrong for finding in findings)
    if places is not None:
        if as_json:
            click.echo(json_line({"ok": not wrong, "findings": [asdict(f) for f in findings]}))
        else:
            for finding in findings:
                click.echo(_line(finding))
    return int(wrong)


def _findings(
    vendor: tuple[str, str] | None, places: list, lonely: str, threads: int, refused: str
) -> list:
    """Collect all findings, on rank 0."""
    from mosaicdd.cli import findings as look
    from mosaicdd.parallel.halo import probe_device_buffers

    return [
        look.python(),
        look.mpi(vendor, several=launcher().ranks > 1),
        look.ranks(len(places), launcher(), lonely),
        look.machines(places, threads, refused),
        look.memory(places),
        look.gpus(places),
        look.buffers("no GPU" if vendor is None else probe_device_buffers()),
        look.hdf5(),
        look.network_library(),
        look.slurm(None if vendor is None else needed_pmi(vendor[0])),
        look.versions(Path(mosaicdd.__file__).parents[1] / "constraints.txt"),
    ]


def _line(finding: "Finding") -> str:
    colour = "red" if finding.wrong else "yellow" if finding.advice else "green"
    end = click.style(f"-> {finding.advice}" if finding.advice else "ok", fg=colour)
    return f"{finding.subject:10}{finding.found}  {end}"
