"""Values between the nodes: by the network where a point lies, and by interpolation of the field.

``exp(x) cos(y) / 20``, which is harmonic, on 192 x 128 cells by ``laplace``: root mean square and largest
error at random points, against the function itself.
"""

import numpy as np
import torch
from scipy.interpolate import RegularGridInterpolator
from tables import publish, table

import mosaicdd as m

_POINTS = 20_000


def main() -> None:
    """Solve, evaluate, print the table and write it to ``benchmarks/``."""
    torch.set_num_threads(1)
    problem = m.Problem((128, 192), "laplace", sides=m.Dirichlet("exp(x)*cos(y)/20"))
    solution = m.solve(problem)
    size = np.array([solution.x[-1], solution.y[-1]])
    points = np.random.default_rng(0).uniform(size=(_POINTS, 2)) * size
    truth = np.exp(points[:, 0]) * np.cos(points[:, 1]) / 20
    bilinear = RegularGridInterpolator((solution.y, solution.x), solution.field)(points[:, ::-1])
    rows = [
        _row("the network, blended from the subdomains around", solution.at(points) - truth),
        _row("the field, bilinear", bilinear - truth),
    ]
    text = (
        f"{table(['by', 'root mean square', 'largest'], rows)}\n\n"
        "By `python scripts/bench_points.py`: errors at random points against `exp(x) cos(y) / 20`, "
        "192 x 128 cells, local solver `laplace`."
    )
    publish("points", "Between the nodes", text)


def _row(by: str, error: np.ndarray) -> list[str]:
    return [by, f"{np.sqrt(np.square(error).mean()):.1e}", f"{np.abs(error).max():.1e}"]


if __name__ == "__main__":
    main()
