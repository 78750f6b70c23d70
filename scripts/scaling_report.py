"""What ``bench_scaling.py`` measured, as rows of a CSV file, a table and a figure."""

import csv
from pathlib import Path

from matplotlib.figure import Figure
from tables import BENCHMARKS, publish, table

PARTS = (
    *("setup", "local_solve", "gather_scatter", "communication"),
    *("coarse", "fill", "check", "write"),
)
_PROBLEM = ("study", "size", "method", "machine")  # rows that agree in these are compared
_COLUMNS = (*_PROBLEM, "date", "cells", "ranks", "dims")
_COLUMNS += ("status", "iterations", "seconds", "iterate")
_COLUMNS += tuple(f"{part}_{kind}" for part in PARTS for kind in ("mean", "max"))
_TITLES = {"strong": "{size} cells in all", "weak": "{size} cells per rank"}


def add_rows(name: str, rows: list[dict]) -> None:
    """Add rows to ``benchmarks/NAME.csv``."""
    path = BENCHMARKS / f"{name}.csv"
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, _COLUMNS)
        if new:
            writer.writeheader()
        writer.writerows(rows)


def publish_scaling(name: str) -> None:
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
    publish(name, "Strong and weak scaling", "\n\n".join([*texts, note]))
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
