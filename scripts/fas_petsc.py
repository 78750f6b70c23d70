"""Solve a nonlinear equation by PETSc's full approximation scheme, for `bench_nonlinear_peers`: by a Python that has petsc4py.

Usage: fas_petsc.py PROBLEM.npz RTOL. PROBLEM holds the ``width`` of the square, ``start`` at all nodes with the values given
on the sides, and for Poisson-Boltzmann's equation ``f``, the source, and ``c``; without these it is a minimal surface. V-cycles,
the equation the same on all levels; the smoother is a step of Newton's method with two sweeps of symmetric Gauss-Seidel.
PETSc asks for residuals and derivatives, which are written in numpy: their seconds are told apart. Prints one JSON object
with the seconds after each cycle; the fields are left in PROBLEM.npz.CYCLE.npy.
"""

import functools
import itertools
import json
import sys
import time
from collections.abc import Iterator

import numpy as np
import petsc4py

petsc4py.init(["fas_petsc"])
from petsc4py import PETSc

_COARSEST = 16  # cells a side
_MOST_CYCLES = 20
_OPTIONS = {
    "snes_fas_type": "multiplicative",
    "fas_levels_snes_type": "newtonls",
    "fas_levels_snes_max_it": 1,
    "fas_levels_ksp_type": "richardson",
    "fas_levels_ksp_max_it": 2,
    "fas_levels_ksp_convergence_test": "skip",
    "fas_levels_pc_type": "sor",
    "fas_levels_pc_sor_symmetric": "",
    "fas_coarse_snes_type": "newtonls",
    "fas_coarse_ksp_type": "preonly",
    "fas_coarse_pc_type": "lu",
}
_AROUND = tuple(itertools.product((-1, 0, 1), repeat=2))  # in the order of a row's columns
_ENDS = (slice(None, -1), slice(1, None))  # of an axis of nodes: those where cells begin, and end
_SIDES = ((0,), (-1,), (slice(None), 0), (slice(None), -1))
_Node = tuple[int, int]


class Surface:
    """The area over all cells of `mosaicdd.problems.operators.gradient_flux`, and its derivatives by values at nodes."""

    def residual(self, u: np.ndarray, h: float) -> np.ndarray:
        """Return the first derivative."""
        total = np.zeros_like(u)
        for edges, slopes in _corners(u, h):
            weight = h / 4 / np.sqrt(1 + slopes[0] ** 2 + slopes[1] ** 2)
            for (begin, end), slope in zip(edges, slopes, strict=True):
                flow = weight * slope
                total[_of(begin)] -= flow
                total[_of(end)] += flow
        return total

    def derivative(self, u: np.ndarray, h: float) -> dict[_Node, np.ndarray]:
        """Return the second, by the offset of one node from the other."""
        entries = {offset: np.zeros_like(u) for offset in _AROUND}
        for edges, (p, q) in _corners(u, h):
            weight = 0.25 / np.sqrt(1 + p * p + q * q) ** 3
            mixed = -weight * p * q
            of_edges = ((weight * (1 + q * q), mixed), (mixed, weight * (1 + p * p)))
            for (rows, along), (columns, values) in itertools.product(
                zip(edges, of_edges, strict=True), enumerate(edges)
            ):
                for (i, row), (j, column) in itertools.product(enumerate(rows), enumerate(values)):
                    offset = (column[0] - row[0], column[1] - row[1])
                    part = along[columns]
                    entries[offset][_of(row)] += part if i == j else -part
        return entries


class Boltzmann:
    """What is left of ``-lap u + c sinh u = f``, times a cell, and its derivative."""

    def __init__(self, f: np.ndarray, c: float):
        self._f, self._c = f, c

    def residual(self, u: np.ndarray, h: float) -> np.ndarray:
        """Return it at the nodes inside."""
        inner, f = u[1:-1, 1:-1], _thinned(self._f, u)[1:-1, 1:-1]
        total = np.zeros_like(u)
        beside = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
        total[1:-1, 1:-1] = 4 * inner - beside + h * h * (self._c * np.sinh(inner) - f)
        return total

    def derivative(self, u: np.ndarray, h: float) -> dict[_Node, np.ndarray]:
        """Return it by the offset of one node from the other."""
        beside = {offset: np.full_like(u, -1.0) for offset in _AROUND if abs(sum(offset)) == 1}
        return beside | {(0, 0): 4 + h * h * self._c * np.cosh(u)}


def _corners(u: np.ndarray, h: float) -> Iterator[tuple]:
    """Yield for each corner of all cells the nodes of its two edges, and the slopes along these."""
    for y, x in itertools.product((0, 1), repeat=2):
        edges = (((y, 0), (y, 1)), ((0, x), (1, x)))
        yield edges, [(u[_of(end)] - u[_of(begin)]) / h for begin, end in edges]


def _of(node: _Node) -> tuple[slice, slice]:
    """Return where that node of all cells is."""
    return _ENDS[node[0]], _ENDS[node[1]]


def _thinned(values: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Return the values at the nodes of a coarser grid."""
    every = (len(values) - 1) // (len(u) - 1)
    return values[::every, ::every]


class Asked:
    """What PETSc asks for on each level, and the seconds of that."""

    def __init__(self, equation: Surface | Boltzmann, start: np.ndarray, width: float):
        self._equation, self._given, self._width = equation, start, width
        self.seconds = 0.0

    def residual(self, snes: PETSc.SNES, x: PETSc.Vec, left: PETSc.Vec) -> None:
        """Write what is left of the equation; on the sides, of the values given there."""
        begun = time.perf_counter()
        u = _square(x)
        total = self._equation.residual(u, self._width / (len(u) - 1))
        known = _thinned(self._given, u)
        for side in _SIDES:
            total[side] = u[side] - known[side]
        left.setArray(total.ravel())
        self.seconds += time.perf_counter() - begun

    def derivative(
        self, snes: PETSc.SNES, x: PETSc.Vec, matrix: PETSc.Mat, wanted: PETSc.Mat
    ) -> None:
        """Write the derivative, with ones for the nodes on the sides."""
        begun = time.perf_counter()
        u = _square(x)
        entries = self._equation.derivative(u, self._width / (len(u) - 1))
        offsets = tuple(offset for offset in _AROUND if offset in entries)
        begins, columns, there = _structure(len(u), offsets)
        values = np.stack([entries[offset].ravel() for offset in offsets], axis=1)
        values[there.sum(axis=1) == 1] = 1.0
        wanted.setValuesCSR(begins, columns, values[there])
        wanted.assemble()
        self.seconds += time.perf_counter() - begun


@functools.cache
def _structure(n: int, offsets: tuple[_Node, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return where rows begin, their columns, and which of all offsets they have: nodes on sides none but their own."""
    y, x = np.divmod(np.arange(n * n), n)
    inside = (y > 0) & (y < n - 1) & (x > 0) & (x < n - 1)
    there = np.stack([inside | (offset == (0, 0)) for offset in offsets], axis=1)
    columns = np.stack([np.arange(n * n) + down * n + right for down, right in offsets], axis=1)
    begins = np.concatenate([[0], there.sum(axis=1).cumsum()])
    return begins.astype(PETSc.IntType), columns[there].astype(PETSc.IntType), there


def _square(x: PETSc.Vec) -> np.ndarray:
    values = x.getArray(readonly=True)
    return values.reshape(2 * [round(len(values) ** 0.5)]).copy()


def main(path: str, rtol: float) -> None:
    """Solve, and print the seconds."""
    data = dict(np.load(path))
    equation = Boltzmann(data["f"], data["c"].item()) if "f" in data else Surface()
    nodes, levels = len(data["start"]), 1
    while (nodes - 1) >> (levels - 1) > _COARSEST:
        levels += 1
    options = PETSc.Options()
    for name, value in (_OPTIONS | {"snes_fas_levels": levels}).items():
        options[name] = value
    begun = time.perf_counter()
    asked = Asked(equation, data["start"], data["width"].item())
    box = PETSc.DMDA.StencilType.BOX
    grid = PETSc.DMDA().create(dof=1, sizes=(nodes, nodes), stencil_width=1, stencil_type=box)
    grid.setSNESFunction(asked.residual)
    grid.setSNESJacobian(asked.derivative)
    snes = PETSc.SNES().create()
    snes.setType("fas")
    snes.setDM(grid)
    snes.setFromOptions()
    snes.setTolerances(rtol=rtol, atol=0.0, stol=0.0, max_it=_MOST_CYCLES)
    x = grid.createGlobalVec()
    x.setArray(data["start"].ravel())
    cycles: list[dict[str, float]] = []
    written = 0.0

    def after(snes: PETSc.SNES, cycle: int, norm: float) -> None:
        nonlocal written
        spent = time.perf_counter() - begun - written
        cycles.append({"seconds": spent, "asked": asked.seconds, "residual": norm})
        np.save(f"{path}.{cycle}.npy", _square(snes.getSolution()))
        written += time.perf_counter() - begun - written - spent

    snes.setMonitor(after)
    snes.solve(None, x)
    print(json.dumps({"cycles": cycles[1:], "converged": snes.getConvergedReason() > 0}))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
