"""The error estimate in media: how far it is from the true error, over many random problems.

Each problem has a kind
of medium, a size, a source of white noise, a smooth one or none, values on the sides or none, and a tolerance
between 1e-2 and 1e-12, at random. The truth is SuperLU's solution, refined by residuals in long double, so
that its own rounding does not count. The estimate is of the energy norm; a quarter as many problems have
a velocity, of cell Peclet numbers between 0.01 and 100, where it is of the root mean square. Writes
``benchmarks/field_estimate.md``, of other seeds ``field_estimate_SEED.md``.
"""

from pathlib import Path

import numpy as np
from common import publish, table
from media import MEDIA, rotating, spe10

import mosaicdd as m
from mosaicdd.discretisation.discrete import MediumSystem

_REFINED = 4  # times
_GOOD = (1.0, 10.0)

SMALL = {"count": 20}


def main(count: int = 200, spe10_file: Path | None = None, *, seed: int = 0) -> None:
    """Solve, print and write the table."""
    kinds = dict(MEDIA)
    if spe10_file is not None:
        kinds["spe10"] = lambda nodes, rng: spe10(nodes, spe10_file)
    names = list(kinds)
    energy: dict[str, list[float]] = {name: [] for name in names}
    flow: dict[str, list[float]] = {name: [] for name in names}
    for number in range(count + count // 4):
        rng = np.random.default_rng([number, seed] if seed else number)
        name = names[number % len(names)]
        flows = number >= count
        problem = _problem(kinds[name], rng, flows=flows)
        solution = m.solve(problem, settings=m.SolveSettings(rtol=10 ** -rng.uniform(2, 12)))
        error, squared = _error(problem, solution.field)
        if flows:
            flow[name].append(solution.error_estimate / np.sqrt(np.square(error).mean()))
        else:
            energy[name].append(solution.report["energy_estimate"] / np.sqrt(float(squared)))
    header = ["medium", "problems", "least", "median", "most", "within 1 to 10", "below 1"]
    parts = []
    for title, ratios in (("energy norm", energy), ("root mean square, with a velocity", flow)):
        everything = [ratio for of_medium in ratios.values() for ratio in of_medium]
        rows = [_row(name, values) for name, values in ratios.items()]
        rows.append(_row("all", everything))
        parts.append(f"Estimate over error, {title}:\n\n{table(header, rows)}")
    name = f"field_estimate_{seed}" if seed else "field_estimate"
    publish(name, "The error estimate in media", *parts)


def _problem(make, rng: np.random.Generator, *, flows: bool) -> m.Problem:
    """Draw a problem."""
    cells = tuple(16 * int(n) for n in rng.integers(4, 13, 2))
    nodes = tuple(n + 1 for n in cells)
    sources = (0.0, "30*sin(3*x)*cos(2*y)", rng.standard_normal(nodes))
    sides = m.Dirichlet(("0", "sin(3*x) + y*y")[int(rng.integers(2))])
    fields = {"a": make(nodes, rng), "f": sources[int(rng.integers(3))]}
    if flows:
        fields |= rotating(nodes, 10 ** rng.uniform(-2, 2), m.Domain(cells).grid().spacing)
    if sides.values == "0" and isinstance(fields["f"], float):
        fields["f"] = 1.0
    return m.Problem(
        m.Domain(cells), "advection-diffusion" if flows else "diffusion", fields, sides
    )


def _error(problem: m.Problem, field: np.ndarray) -> tuple[np.ndarray, np.longdouble]:
    """Return the error at the inner nodes, and the square of its energy norm."""
    grid = problem.domain.grid()
    whole = tuple(slice(0, nodes) for nodes in grid.nodes)
    conductances = problem.operator.conductances(grid, whole)
    exact = conductances.each(lambda values: values.astype(np.longdouble))
    f = problem.source_at(grid, whole)
    force = 0 if f is None else (grid.spacing**2 * f[0, 1:-1, 1:-1]).astype(np.longdouble)
    system = MediumSystem(problem.operator, grid)
    truth = field.astype(np.longdouble)
    for _ in range(_REFINED):
        residual = force - exact.apply(truth)
        step = system.solve(np.asarray(residual, float).ravel())
        truth[1:-1, 1:-1] += step.reshape(residual.shape)
    error = field - truth
    return error[1:-1, 1:-1], (error[1:-1, 1:-1] * exact.apply(error)).sum()


def _row(name: str, ratios: list[float]) -> list[str]:
    values = np.array(ratios)
    within = np.mean((values >= _GOOD[0]) & (values <= _GOOD[1]))
    numbers = [f"{v:.2f}" for v in (values.min(), np.median(values), values.max())]
    return [name, str(len(values)), *numbers, f"{within:.1%}", str(int((values < 1).sum()))]
