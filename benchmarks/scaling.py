"""Strong and weak scaling with the time split into parts, after Fig. 9 of the paper.

``--ranks 1 2`` starts mpiexec for each of these numbers; without it measured is on the ranks that this was started
on itself, as by ``slurm/scaling.sbatch``. The paper's job is ``--strong 2048x2048 --levels 1 --until-mae 0.05``.
``--write`` writes the solution, too, to one ``file``, or ``shards``, a file per rank; ``--iterations`` are so many,
whatever comes of them. Each run adds two rows to ``benchmarks/NAME.csv``
and makes the table and the figure anew, from all rows of the same problem and machine.
"""

import csv
import tempfile
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import torch
from common import BENCHMARKS, in_process, machine, publish, table
from matplotlib.figure import Figure
from serial import BATCH

import mosaicdd as m
from mosaicdd.cli.launch import world
from mosaicdd.grid.grid import Grid
from mosaicdd.parallel.launcher import threads_per_rank
from mosaicdd.parallel.machine import device_of_rank
from mosaicdd.problems.sides.boundary import Boundary

PARTS = (
    *("setup", "local_solve", "gather_scatter", "communication"),
    *("coarse", "fill", "check", "write"),
)
_PROBLEM = ("study", "size", "method", "machine")  # rows that agree in these are compared
_COLUMNS = (*_PROBLEM, "date", "cells", "ranks", "dims")
_COLUMNS += ("status", "iterations", "seconds", "iterate")
_COLUMNS += tuple(f"{part}_{kind}" for part in PARTS for kind in ("mean", "max"))
_TITLES = {"strong": "{size} cells in all", "weak": "{size} cells per rank"}
SMALL = {"ranks": [1, 2], "strong": "128x128", "weak": "64x64", "repetitions": 1}


def main(
    *,
    ranks: list[int] = (),
    strong: str = "4096x4096",
    weak: str = "1024x512",
    local_solver: str = "laplace",
    levels: int = 2,
    until_mae: float | None = None,
    iterations: int | None = None,
    write: str | None = None,
    device: str = "cpu",
    repetitions: int = 5,
    name: str = "scaling",
) -> None:
    """Measure on these ranks, or start what measures on several numbers of them; add to ``benchmarks/NAME.csv``."""
    options = {k: v for k, v in locals().items() if k not in ("ranks", "name")}
    for rows in [in_process(_rows, options, ranks=n) for n in ranks] or [_rows(options)]:
        if world().is_root:
            _add_rows(name, rows)
            _publish(name)


def _rows(options: dict) -> list[dict]:
    """Measure both studies on the ranks of this job."""
    arguments, everyone = SimpleNamespace(**options), world()
    torch.set_num_threads(threads_per_rank())
    return [_measure(everyone, study, arguments) for study in ("strong", "weak")]


def _measure(everyone: m.Ranks, study: str, arguments: SimpleNamespace) -> dict:
    """Return a row of the table."""
    size = cells = tuple(map(int, getattr(arguments, study).split("x")))[::-1]
    if study == "weak":
        cells = tuple(n * across for n, across in zip(size, everyone.dims, strict=True))
    boundary = everyone.on_root(lambda: Boundary.of_gaussian_process(Grid(cells, 0.5 / 32), seed=0))
    problem = m.Problem(cells, "laplace", sides=boundary)
    settings = m.SolveSettings(
        levels=arguments.levels,
        sweep="additive" if arguments.levels == 2 else "phases",
        rtol=0.0 if arguments.iterations else 1e-7,
        until_mae=arguments.until_mae,
        max_iterations=arguments.iterations or 100_000,
        batch_subdomains=BATCH[arguments.device],
        device=str(device_of_rank(everyone, arguments.device)),
        dims=everyone.dims if study == "weak" else None,
    )
    job = problem, arguments.local_solver, everyone, settings, arguments.write
    several = [_solved(*job) for _ in range(1 + arguments.repetitions)][1:]  # the first warms up
    runs = sorted(several, key=lambda run: run["seconds"])
    aim = "1e-7" if arguments.until_mae is None else f"an MAE of {arguments.until_mae:g}"
    if arguments.iterations:
        aim = f"iteration {arguments.iterations}"
    levels = "two levels" if arguments.levels == 2 else "one level"
    written = {None: "", "file": ", one file written", "shards": ", a file per rank written"}
    return runs[len(runs) // 2] | {
        "study": study,
        "size": _text(size),
        "method": f"{arguments.local_solver} on {arguments.device}, {levels}, to {aim}{written[arguments.write]}",
        "machine": machine(),
        "date": datetime.now(UTC).date().isoformat(),
        "cells": _text(cells),
        "ranks": everyone.size,
        "dims": _text(everyone.dims),
    }


def _text(pair: tuple[int, int]) -> str:
    return f"{pair[1]}x{pair[0]}"


def _solved(
    problem: m.Problem, name: str, ranks: m.Ranks, settings: m.SolveSettings, write: str | None
) -> dict:
    """Return status, iterations, seconds in all, of the iterations, and of the parts."""
    with tempfile.TemporaryDirectory() if ranks.is_root else nullcontext("") as folder:
        path = ranks.bcast(str(Path(folder) / "solution.h5"))
        output = m.Output(path, shards=write == "shards") if write else None
        ranks.barrier()
        report = m.solve(problem, name, ranks=ranks, settings=settings, output=output).report
        ranks.barrier()
    parts = {
        f"{p}_{k}": report["parts"].get(p, {}).get(k, 0.0) for p in PARTS for k in ("mean", "max")
    }
    seconds = {"seconds": report["seconds"]["total"], "iterate": report["seconds"]["iterate"]}
    return {"status": report["status"], "iterations": report["iterations"], **seconds, **parts}


def _add_rows(name: str, rows: list[dict]) -> None:
    """Add rows to ``benchmarks/NAME.csv``."""
    path = BENCHMARKS / f"{name}.csv"
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, _COLUMNS)
        if new:
            writer.writeheader()
        writer.writerows(rows)


def _publish(name: str) -> None:
    """Make the table and the figure of the problems, on the machine, that were measured last."""
    with (BENCHMARKS / f"{name}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    studies = {study: _last_of(study, rows) for study in _TITLES}
    texts = [_section(study, of_study) for study, of_study in studies.items()]
    note = (
        "Seconds of the slowest rank, set-up (without imports and reading the model) included: the "
        "median run. Parts: mean / largest over the ranks; *other*, of the mean, is what no part "
        f"measures: norms, and waiting for the rank that writes.\n\n![parts]({Path(name).name}.png)"
    )
    publish(name, "Strong and weak scaling", *texts, note)
    _draw(studies, BENCHMARKS / f"{name}.png")


def _last_of(study: str, rows: list[dict]) -> list[dict]:
    """Return the newest row for each number of ranks, of the problem measured last."""
    of_study = [row for row in rows if row["study"] == study]
    newest = {
        int(row["ranks"]): row
        for row in of_study
        if all(row[key] == of_study[-1][key] for key in _PROBLEM)
    }
    return [newest[ranks] for ranks in sorted(newest)]


def _section(study: str, rows: list[dict]) -> str:
    shown = []
    for row in rows:
        speedup = _speedup(row, rows[0])
        parts = [f"{float(row[f'{p}_mean']):.3f} / {float(row[f'{p}_max']):.3f}" for p in PARTS]
        shown.append(
            [
                *(row[key] for key in ("ranks", "cells", "dims", "iterations")),
                f"{1e3 * float(row['iterate']) / int(row['iterations']):.1f}",
                f"{float(row['seconds']):.3f}",
                f"{speedup:.2f}",
                f"{speedup / int(row['ranks']):.2f}",
                *parts,
                f"{_other(row):.3f}",
            ]
        )
    header = ["ranks", "cells", "dims", "iterations", "ms each"]
    header += ["seconds", "speed-up", "efficiency"]
    header += [part.replace("_", " ") for part in (*PARTS, "other")]
    title = f"{study.capitalize()} scaling, {_TITLES[study].format(**rows[0])}; {rows[0]['method']}"
    return f"{title}:\n\n{table(header, shown)}"


def _speedup(row: dict, first: dict) -> float:
    """Return the speed against that of one rank, to go by the fewest ranks measured."""
    base = row if row["study"] == "weak" else first  # whose work a rank of the first row has
    return int(base["ranks"]) * float(first["seconds"]) / float(row["seconds"])


def _other(row: dict) -> float:
    """Return the seconds that no part measures, in the mean over the ranks."""
    return float(row["seconds"]) - sum(float(row[f"{part}_mean"]) for part in PARTS)


def _draw(studies: dict[str, list[dict]], path: Path) -> None:
    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplots(1, len(studies))
    for ax, (study, rows) in zip(axes, studies.items(), strict=True):
        at = range(len(rows))
        below = [0.0] * len(rows)
        for number, part in enumerate((*PARTS, "other")):
            seconds = [
                _other(row) if part == "other" else float(row[f"{part}_mean"]) for row in rows
            ]
            label = part.replace("_", " ")
            ax.bar(at, seconds, 0.6, bottom=below, color=f"C{number}", label=label)
            below = [a + b for a, b in zip(below, seconds, strict=True)]
        ideal = [float(row["seconds"]) * _speedup(row, rows[0]) / int(row["ranks"]) for row in rows]
        ax.plot(at, ideal, "k--", marker="_", label="ideal")
        ax.set_xticks(at, [row["ranks"] for row in rows])
        title = f"{study} scaling, {_TITLES[study].format(**rows[0])}"
        ax.set(title=title, xlabel="ranks", ylabel="seconds")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside right center")
    figure.savefig(path, dpi=120)
