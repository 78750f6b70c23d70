"""Data generation (section 5.1 of the paper): random boundary data and their discrete solutions.

Boundary data are Gaussian processes along the closed perimeter, their length scales from a
scrambled Sobol sequence. Each sample has its own random numbers, seeded by (seed, index), so it
does not depend on how many others are drawn. Windows are subdomains cut out of larger solutions at
lattice positions: the perimeters that a Schwarz iteration really meets.
"""

from collections.abc import Callable

import numpy as np

from mosaicdd.problems.discrete import DirichletSystem
from mosaicdd.problems.equations import equation
from mosaicdd.problems.gaussian_process import sample_closed_curve, sobol_hyperparameters
from mosaicdd.problems.multigrid import MultigridSolver
from mosaicdd.storage.dataset_file import Dataset
from mosaicdd.training.settings import GenerationSettings

_BATCH = 256
_WINDOWS_ACROSS = 8  # subdomains, not overlapping, along a side of a larger problem
_SAMPLES, _WINDOWS = 0, 1  # the two families of random numbers


def generate_dataset(
    settings: GenerationSettings, progress: Callable[[int, int], None] | None = None
) -> Dataset:
    """Draw and solve all problems of a dataset.

    Parameters
    ----------
    progress
        Called as ``progress(done, samples)`` after each batch.

    Raises
    ------
    ValueError
        If the equation is unknown.
    RuntimeError
        If multigrid misses its residual.
    """
    m = settings.subdomain.cells
    hyperparameters = _hyperparameters(settings, settings.samples, settings.seed)
    boundary = np.empty((settings.samples, 4 * m))
    solution = np.empty((settings.samples, m + 1, m + 1))
    solve = _field_solver(settings, (m, m))
    for start in range(0, settings.samples, _BATCH):
        batch = slice(start, min(start + _BATCH, settings.samples))
        for index in range(batch.start, batch.stop):
            boundary[index] = _curve(settings, hyperparameters[index], (_SAMPLES, index), 1)
        solution[batch] = solve(_place(boundary[batch], m))
        if progress:
            progress(batch.stop, settings.samples)
    window_boundary, window_solution = _windows(settings)
    return Dataset(
        pde=settings.pde,
        subdomain=settings.subdomain,
        boundary=boundary,
        solution=solution,
        hyperparameters=hyperparameters,
        hyperparameter_names=("length_scale",),
        window_boundary=window_boundary,
        window_solution=window_solution,
        validation=settings.validation,
        seed=settings.seed,
    )


def _hyperparameters(settings: GenerationSettings, count: int, seed: int) -> np.ndarray:
    """Draw the hyperparameters, ``(count, 1)``: the length scale, uniform in its logarithm."""
    lower, upper = settings.length_scale
    return sobol_hyperparameters(count, seed, np.array([lower]), np.array([upper]))


def _curve(
    settings: GenerationSettings, hyperparameters: np.ndarray, key: tuple[int, int], across: int
) -> np.ndarray:
    """Draw the boundary data of a square of ``across`` subdomains per side."""
    subdomain = settings.subdomain
    return sample_closed_curve(
        np.random.default_rng([settings.seed, *key]),
        nodes=4 * across * subdomain.cells,
        curve_length=4 * across * subdomain.size,
        length_scale=hyperparameters[0],
        noise=settings.noise,
    )


def _place(boundary: np.ndarray, cells: int) -> np.ndarray:
    """Put perimeters ``(n, 4 cells)`` on the edge of fields ``(n, cells + 1, cells + 1)``."""
    field = np.zeros((len(boundary), cells + 1, cells + 1))
    field[:, 0, :-1], field[:, :-1, -1], field[:, -1, :0:-1], field[:, :0:-1, 0] = np.split(
        boundary, 4, axis=1
    )
    return field


def _field_solver(
    settings: GenerationSettings, shape: tuple[int, int]
) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that fills the interior of fields ``(n, ny + 1, nx + 1)``."""
    system = DirichletSystem(equation(settings.pde), shape)
    multigrid = MultigridSolver(system) if settings.method == "amg" else None

    def solve(fields: np.ndarray) -> np.ndarray:
        rhs = system.right_hand_side(np.moveaxis(fields, 0, -1))
        if multigrid:
            inner = np.stack([multigrid.solve(b) for b in np.ascontiguousarray(rhs.T)])
        else:
            inner = system.solve(rhs).T
        fields[:, 1:-1, 1:-1] = inner.reshape(len(fields), shape[0] - 1, shape[1] - 1)
        return fields

    return solve


def _windows(settings: GenerationSettings) -> tuple[np.ndarray, np.ndarray]:
    """Cut windows out of larger solutions: perimeters ``(w, 4 m)``, solutions."""
    subdomain, across = settings.subdomain, _WINDOWS_ACROSS
    m = subdomain.cells
    starts = range(0, (across - 1) * m + 1, m // 2)
    problems = -(-settings.windows // len(starts) ** 2)
    hyperparameters = _hyperparameters(settings, problems, settings.seed + 1)
    solve = _field_solver(settings, (across * m, across * m))
    windows = []
    for index in range(problems):
        curve = _curve(settings, hyperparameters[index], (_WINDOWS, index), across)
        field = solve(_place(curve[None], across * m))[0]
        windows += [field[y : y + m + 1, x : x + m + 1] for y in starts for x in starts]
    solution = np.stack(windows[: settings.windows])
    perimeter = subdomain.perimeter
    return solution[:, perimeter[:, 0], perimeter[:, 1]], solution
