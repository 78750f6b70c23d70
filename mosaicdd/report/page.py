"""One page of HTML about one or several runs, with all that it shows in it: to be kept, or sent to somebody.

Every number is from the files; a field is reduced to squares of nodes while it is read.
"""

import base64
import html
import importlib.resources
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.problems.sides.conditions import Periodic
from mosaicdd.report.pictures import Curve, chart, gradient, limits_of, png, reduced
from mosaicdd.report.sections import Section, heading, sections_of, sizes
from mosaicdd.report.stored import StoredSolution
from mosaicdd.storage.atomic import MARK

_PIXELS = 1024  # along the longer side of a picture, at most
_PORTION = 2**22  # values of a field that are read at a time
_DECADES = 5  # of estimated errors that have colours
_LEAST = 4  # lattice nodes with an error that are a picture
_PHASES = {
    "setup": "set-up",
    "iterate": "iteration",
    "march": "steps",
    "estimate": "estimate",
    "assemble": "field",
    "write": "writing",
}
_ZOOM = "this.classList.toggle('near')"

Rows = dict[str, Callable[[StoredSolution], str]]


def page(solutions: Sequence[StoredSolution]) -> str:
    """Return the page, each solution a column.

    `ModuleNotFoundError` if matplotlib is not installed.
    """
    several = len(solutions) > 1
    title = f"{len(solutions)} runs" if several else heading(solutions[0])
    style = (importlib.resources.files(__package__) / "page.css").read_text()
    version = solutions[0].attributes.get("version_mosaicdd", "")
    return "".join(
        [
            f"<!doctype html>\n<!-- {MARK} -->\n<html lang='en'><head><meta charset='utf-8'>",
            "<meta name='viewport' content='width=device-width, initial-scale=1'>",
            f"<title>{html.escape(title)}</title><style>{style}</style></head><body>",
            f"<h1>{html.escape(title)}</h1><div class='soft'>mosaicdd {version}. A picture is enlarged by a click.</div>",
            f"<h2>{'Answers' if several else 'Answer'}</h2><div class='runs'>",
            *map(_run, solutions),
            "</div><h2>Convergence</h2>",
            _convergence(solutions),
            "<h2>Time</h2>",
            *map(_phases, solutions),
            "<h2>All that is known</h2>",
            _table(solutions),
            "</body></html>\n",
        ]
    )


def _run(solution: StoredSolution) -> str:
    """Return the card of a run: how it ended, its field, and its estimated error."""
    good = " good" if solution.status.startswith("converged") else ""
    estimate = solution.error_estimate
    known = "" if estimate is None else f", estimated error {estimate:.2e} (rms)"
    return (
        f"<div class='run'><h3>{html.escape(solution.path.name)}</h3>"
        f"<div class='soft'>{html.escape(heading(solution))}</div>"
        f"<div class='status{good}'>{html.escape(solution.status)}</div>{known}"
        f"<div class='pictures'>{_field(solution)}{_errors(solution)}</div></div>"
    )


def _field(solution: StoredSolution) -> str:
    """Return the pictures of the field, of a box in the planes in its middle."""
    step = -(-max(solution.window.shape) // _PIXELS)
    sections = sections_of(solution)
    shown = [_reduced(section, step) for section in sections]
    ends = [limits_of(values) for values in shown]
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    time = "" if solution.time is None else f" at t = {solution.time:g}"
    of = f", means over {step} x {step} nodes" if step > 1 else ""
    bar = f"{low:.4g}", f"{high:.4g}"
    return "".join(
        _picture(
            values, (low, high), bar, "viridis", f"solution{_where(section)}{time}{of}", section
        )
        for section, values in zip(sections, shown, strict=True)
    )


def _reduced(section: Section, step: int) -> np.ndarray:
    """Return means over squares of so many nodes a side; a rectangle is read in portions."""
    solution = section.solution
    if section.axis is not None:
        plane = section.field()
        return reduced([plane], plane.shape[1], step)
    columns = solution.window.shape[1]
    portion = max(1, _PORTION // (columns * step)) * step
    return reduced(solution.rows(portion), columns, step)


def _where(section: Section, title: str | None = None) -> str:
    """Say which plane of a box is seen, and which axes go up and to the right."""
    if section.axis is None:
        return ""
    up, across = section.letters
    return f" in the plane {section.title if title is None else title} ({across} to the right, {up} up)"


def _errors(solution: StoredSolution) -> str:
    """Return the pictures of the estimated error at the lattice nodes, where the file has it."""
    errors = solution.error_map
    if errors is None or np.count_nonzero(errors > 0) < _LEAST:
        return ""
    logarithms = np.log10(np.where(errors > 0, errors, np.nan))
    low, high = limits_of(logarithms)
    low = max(low, high - _DECADES)
    ends = f"{10**low:.0e}", f"{10**high:.0e}"
    pictures = []
    for section in sections_of(solution):
        values, where = section.nearest(logarithms)
        text = f"estimated error at the lattice nodes{_where(section, where)}"
        pictures.append(
            _picture(np.maximum(values, low), (low, high), ends, "magma", text, section)
        )
    return "".join(pictures)


def _picture(
    values: np.ndarray,
    limits: tuple[float, float],
    ends: tuple[str, str],
    colours: str,
    text: str,
    section: Section,
) -> str:
    # As wide and high as the domain: cells need not be squares.
    dy, dx = np.delete(section.solution.grid.steps, [] if section.axis is None else section.axis)
    rows, columns = values.shape
    ratio = f"aspect-ratio: {columns * dx:g} / {rows * dy:g}"
    data = base64.b64encode(png(values, limits, colours)).decode()
    low, high = ends
    return (
        f"<figure><div class='frame'><img alt='{text}' src='data:image/png;base64,{data}' style='{ratio}' onclick=\"{_ZOOM}\"></div>"
        f"<div class='bar'>{low}<i style='background: linear-gradient(90deg, {gradient(colours)})'></i>{high}</div>"
        f"<figcaption>{html.escape(text)}</figcaption></figure>"
    )


def _convergence(solutions: Sequence[StoredSolution]) -> str:
    """Return the charts of what each iteration, or each step in time, said of itself."""
    names = {"update": "update", "residual": "residual", "mae": "error"}
    in_time = {"time_error": "error of a step in time", "solver_error": "of its solve"}
    charts = []
    for series, kinds in ((False, names), (True, in_time)):
        curves: dict[str, Curve] = {}
        for solution in solutions:
            if (solution.times is not None) is series:
                of = f"{solution.path.name}: " if len(solutions) > 1 else ""
                for name, label in kinds.items():
                    values = np.asarray(solution.history.get(name, ()))
                    at = solution.history["time"] if series else np.arange(1, len(values) + 1)
                    curves[of + label] = at, values
        charts.append(chart(curves, "time" if series else "iteration"))
    return "".join(charts) or "<p class='soft'>no history</p>"


def _phases(solution: StoredSolution) -> str:
    """Return what a run spent its time with, and how parts of that differed over the ranks."""
    spent = solution.attributes.get("seconds", {})
    total = spent.get("total") or sum(spent.values())
    parts = {label: spent[name] for name, label in _PHASES.items() if spent.get(name)}
    if not total or not parts:
        return ""
    bars = "".join(
        f"<span class='c{i % 6}' style='flex: {100 * value / total:.3g}' title='{label}: {value:.3g} s'></span>"
        for i, (label, value) in enumerate(parts.items())
    )
    keys = "".join(
        f"<span class='key c{i % 6}'>{label} {value:.3g} s</span>"
        for i, (label, value) in enumerate(parts.items())
    )
    return (
        f"<div><b>{html.escape(solution.path.name)}</b> {total:.3g} s on {_ranks(solution)}"
        f"<div class='phases'>{bars}</div><p class='keys'>{keys}</p>{_over_ranks(solution)}</div>"
    )


def _over_ranks(solution: StoredSolution) -> str:
    """Return a table of the parts of the work: the mean over the ranks, and the rank with most."""
    parts = solution.attributes.get("parts") or {}
    if not parts:
        return ""
    rows = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{of['mean']:.3g} s</td><td>{of['max']:.3g} s</td></tr>"
        for name, of in sorted(parts.items(), key=lambda item: -item[1]["max"])
    )
    head = "<thead><tr><th>part</th><th>mean of the ranks</th><th>longest</th></tr></thead>"
    return f"<details><summary class='soft'>parts</summary><table>{head}<tbody>{rows}</tbody></table></details>"


def _table(solutions: Sequence[StoredSolution]) -> str:
    """Return what the files say, a row for each thing that one of them says something of."""
    groups: dict[str, Rows] = {
        "Problem": {
            "equation": _said("pde"),
            "parameters": lambda s: _listed(s.attributes.get("parameters")),
            "cells": lambda s: sizes(s.grid.shape),
            "side of a cell": lambda s: s.grid.cell,
            "domain": _said("domain"),
            "window": _said("window"),
            "sides": _sides,
        },
        "Answer": {
            "status": lambda s: s.status,
            "iterations": _said("iterations"),
            "last relative update": _number("relative_update"),
            "discrete residual": _number("discrete_residual"),
            "estimated error (rms)": _number("error_estimate"),
            "in the energy norm": _number("energy_estimate"),
            "certified to": _number("certify"),
            "imbalance": _number("imbalance"),
            "balance": _balance,
            "out of the training range": _said("outside_training_range"),
        },
        "Method": {
            "local solver": _said("local_solver"),
            "checksum of its model": _said("model"),
            "acceleration": _said("accelerate"),
            "asked for": _number("rtol"),
            "numbers": _said("dtype"),
            "ranks": _ranks,
            "memory of all": _memory,
        },
        "Made by": {
            "command": lambda s: s.attributes.get("command_line", ""),
            "date": _said("date"),
            "host": _said("host"),
            "commit": _said("commit"),
            "versions": _versions,
        },
    }
    head = "".join(f"<th>{html.escape(s.path.name)}</th>" for s in solutions)
    body = []
    for group, rows in groups.items():
        shown = {label: [tell(s) for s in solutions] for label, tell in rows.items()}
        lines = [_row(label, texts) for label, texts in shown.items() if any(texts)]
        body.append(f"<tr class='group'><th colspan='{len(solutions) + 1}'>{group}</th></tr>")
        body += lines
    return f"<div class='wide'><table><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"


def _row(label: str, texts: Sequence[str]) -> str:
    form = "<td><code>{}</code></td>" if label == "command" else "<td>{}</td>"
    return f"<tr><th>{label}</th>{''.join(form.format(html.escape(t)) for t in texts)}</tr>"


def _said(name: str) -> Callable[[StoredSolution], str]:
    """Return what tells an attribute in words, nothing where it is not known."""

    def tell(solution: StoredSolution) -> str:
        value: Any = solution.attributes.get(name)
        return "" if value is None else value if isinstance(value, str) else json.dumps(value)

    return tell


def _number(name: str) -> Callable[[StoredSolution], str]:
    def tell(solution: StoredSolution) -> str:
        value = solution.attributes.get(name)
        return "" if value is None else f"{value:.3g}"

    return tell


def _listed(values: dict[str, Any] | None) -> str:
    return ", ".join(f"{name} = {value}" for name, value in (values or {}).items())


def _sides(solution: StoredSolution) -> str:
    """Say what was given on the sides; of values at nodes their range."""
    sides = solution.sides
    if isinstance(sides, Boundary):
        return f"values{_range(np.concatenate([edge.ravel() for edge in sides.named.values()]))}"
    told = []
    for part in sides.parts:
        text = f"{part} {type(part.condition).__name__.lower()}"
        text += f"{_range(part.alpha)}," if part.condition.exchanges else ""
        told.append(text + ("" if part.condition == Periodic() else _range(part.values)))
    return "; ".join(told)


def _range(values: Any) -> str:
    if isinstance(values, str) or np.ndim(values) == 0:
        return f" {values}"
    low, high = (f"{limit:.4g}" for limit in limits_of(np.asarray(values, float)))
    return f" {low}" if low == high else f" from {low} to {high}"


def _balance(solution: StoredSolution) -> str:
    """Say what flows in and out, and what is left over; nothing of fields that are not read at once, and of own equations."""
    if solution.times is None and np.prod(solution.window.shape) > _PORTION:
        return ""
    try:
        balance = solution.balance()
    except ValueError:
        return ""
    parts = {"in": balance.inflow, "out": balance.outflow, "sources": balance.sources}
    parts |= {"consumed": balance.reaction, "carried away": balance.carried}
    parts["stored"] = balance.stored
    told = [f"{name} {value:.4g}" for name, value in parts.items() if value]
    return ", ".join([*told, f"left over {balance.left_over:.1e}"])


def _ranks(solution: StoredSolution) -> str:
    ranks, dims = solution.attributes.get("ranks", 1), solution.attributes.get("dims")
    text = f"{ranks} rank" + "s" * (ranks > 1)
    return f"{text} ({' x '.join(map(str, dims))})" if dims and ranks > 1 else text


def _memory(solution: StoredSolution) -> str:
    size = solution.attributes.get("peak_memory_bytes")
    return "" if size is None else f"{size / 2**20:,.0f} MiB"


def _versions(solution: StoredSolution) -> str:
    known = solution.attributes
    names = [name for name in known if name.startswith("version_")]
    return ", ".join(f"{name.removeprefix('version_')} {known[name]}" for name in names)
