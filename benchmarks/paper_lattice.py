"""The paper's knob ``d``: lattice lines every ``m / d`` cells, for d = 2 and 4, with one level.

A plain additive Schwarz iteration on one core, written down here: the package's lattice has ``d = 2``.
Subdomains of m cells stand around every lattice node that is far enough from the outline; each gives the
values on the lattice lines inside of it, and hats that fall to zero at its edge blend them. For each ``d``
and local solver: sweeps to a mean absolute error of 1e-3 on the lines, the error where it stands still, and
the subdomains that a sweep solves.
"""

import numpy as np
import torch
from common import write_csv
from serial import local_solver

from mosaicdd.grid.grid import Grid
from mosaicdd.problems.equations.linear import LAPLACE
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.solvers.references import solve_by_sine_transform

_MOST = 3000
_STANDS = 1e-9  # change of the values in a sweep

SMALL = {"cells": 64}


def main(cells: int = 128) -> None:
    """Iterate with both lattices and each local solver, and write ``lattice.csv``."""
    rows = []
    for name in ("exact", "laplace", "laplace-sdnet"):
        for d in (2, 4):
            rows.append([cells, name, d, *_run(name, cells, d)])
            print(*rows[-1], flush=True)
    header = [
        "cells",
        "local solver",
        "d",
        "subdomains",
        "sweeps to 1e-3",
        "sweeps",
        "MAE at the end",
    ]
    write_csv("lattice", header, rows)


def _run(name: str, cells: int, d: int) -> list:
    solver = local_solver(name)
    m = solver.subdomain.cells
    s = m // d
    grid = Grid((cells, cells), solver.subdomain.spacing)
    boundary = Boundary.of_gaussian_process(grid, seed=0)
    truth = solve_by_sine_transform(Problem(grid.shape, LAPLACE, sides=boundary))
    field = truth.copy()
    field[1:-1, 1:-1] = 0.0
    starts = np.arange(0, cells - m + 1, s)
    corners = np.stack(np.meshgrid(starts, starts, indexing="ij"), axis=-1).reshape(-1, 1, 2)
    inside = solver.subdomain.interior
    inside = inside[(inside % s == 0).any(axis=1)]  # on lattice lines
    edges, nodes = corners + solver.subdomain.perimeter, corners + inside
    edge, node = (edges[..., 0], edges[..., 1]), (nodes[..., 0], nodes[..., 1])
    weights = (1 - np.abs(inside - m / 2) / (m / 2)).prod(axis=1) * np.ones(nodes.shape[:2])
    share = np.zeros_like(field)
    np.add.at(share, node, weights)
    lines = share > 0
    plan = solver.plan(inside, device=torch.device("cpu"), dtype=torch.float64)
    values = torch.empty(len(corners), len(inside), dtype=torch.float64)
    reached = None
    for sweep in range(1, _MOST + 1):
        plan(torch.from_numpy(field[edge]), values)
        new = np.zeros_like(field)
        np.add.at(new, node, weights * values.numpy())
        change = np.abs(new[lines] / share[lines] - field[lines]).mean()
        field[lines] = new[lines] / share[lines]
        error = np.abs(field - truth)[lines].mean()
        reached = reached or (sweep if error < 1e-3 else None)
        if change < _STANDS:
            break
    return [len(corners), reached or "-", sweep, f"{error:.1e}"]
