"""Data generation (section 5.1 of the paper): random boundary data and their discrete solutions.

Boundary data are Gaussian processes along the closed perimeter, of cubes in space, their length scales, and amplitudes
where these vary, from a scrambled Sobol sequence. Each sample has its own random numbers, seeded by (seed, index), so
it does not depend on how many others are drawn, nor on which rank draws it. All ranks draw parts of a dataset, and
the next run goes on from those of a run that was ended. Windows are subdomains cut out of larger solutions at lattice
positions: the perimeters that a Schwarz iteration really meets.

For a network that serves a family of operators the equation's parameters are drawn, too, anew for
every ``4 m`` samples, which determine the operator, and for each of the larger problems.
"""

import itertools
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mosaicdd.discretisation.discrete import DirichletSystem
from mosaicdd.grid.grid import Grid, perimeter_nodes
from mosaicdd.networks.registry import coordinates
from mosaicdd.parallel.machine import device_memory
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.equations import find_equation
from mosaicdd.problems.fields.random_media import (
    sample_at_points,
    sample_closed_curve,
    sobol_hyperparameters,
)
from mosaicdd.settings import require_type
from mosaicdd.solvers.references import MultigridSolver
from mosaicdd.storage.atomic import require_new
from mosaicdd.storage.dataset_file import Dataset, DatasetParts, joined
from mosaicdd.torch_defaults import on_processor
from mosaicdd.training.settings import GenerationSettings

_BATCH = 256  # samples: what an ended run makes again, at most, on each rank
# Subdomains, not overlapping, along a side of a larger problem, by axes.
_WINDOWS_ACROSS = {2: 8, 3: 4}
# The kinds of random numbers.
_SAMPLES, _WINDOWS, _SAMPLE_OPERATORS, _WINDOW_OPERATORS = range(4)
# A regression is worst at the rim of its data: every 4th operator is the farthest of 16 draws.
_RIM_EVERY, _RIM_DRAWS = 4, 16


@on_processor()
def generate(
    path: str | os.PathLike,
    settings: GenerationSettings | None = None,
    *,
    ranks: Any = None,
    overwrite: bool = False,
    progress: Callable[[float], None] | None = None,
) -> Dataset | None:
    """Draw and solve data to train on, and write them to a file; all ranks call this together.

    Parameters
    ----------
    settings
        What is drawn; the defaults if not given.
    ranks
        Who shares the work, the samples being the same on any number of ranks: a communicator,
        `Ranks`, or None for this process alone.
    overwrite
        Whether a file that is there is replaced.
    progress
        Called with the fraction of this rank's work that is done.

    Returns
    -------
    Dataset
        What was written, on rank 0; None on the others.

    Raises
    ------
    FileExistsError
        If the file is there and is not to be overwritten.
    ValueError
        If the equation is unknown, cannot be learned or draws no parameters of its own, or parts of other
        data lie beside the file.
    OSError
        If the file or a part of it cannot be written or read; what was made of the parts is kept.
    RuntimeError
        If multigrid misses its residual.
    """
    settings = GenerationSettings() if settings is None else settings
    require_type("settings", settings, GenerationSettings)
    with Ranks.of(ranks) as everyone:
        generation = Generation(path, settings, everyone, overwrite=overwrite)
        return generation.run(progress)


class Generation:
    """The generation of a dataset by all ranks: checked first, then run. For arguments and errors see `generate`.

    The parts lie in ``PATH.parts`` until the file is complete.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        settings: GenerationSettings,
        ranks: Ranks | None = None,
        *,
        overwrite: bool = False,
    ):
        self._path, self._settings, self._ranks = path, settings, ranks or Ranks.alone()
        # As JSON gives it back.
        identity = {n: list(v) if isinstance(v, tuple) else v for n, v in asdict(settings).items()}
        self._parts = DatasetParts(Path(path), identity)

        def check() -> None:
            _require_memory(settings)
            PartGenerator(settings)
            require_new(path, overwrite=overwrite)
            self._parts.open()

        self._ranks.on_root(check)

    def run(self, progress: Callable[[float], None] | None = None) -> Dataset | None:
        """Make what is missing of the parts, every ``size``-th on a rank, and write the file.

        Errors are raised on all ranks, and all parts are kept.
        """
        generator, parts, ranks = PartGenerator(self._settings), self._parts, self._ranks
        written: list[Dataset] = []

        def make() -> None:
            mine = range(ranks.rank, generator.parts, ranks.size)
            for done, number in enumerate(mine, start=1):
                if not parts.is_whole(number):
                    parts.write(number, generator.part(number))
                if progress:
                    progress(done / len(mine))

        def assemble() -> None:
            made = generator.dataset(**joined(parts.every(generator.parts)))
            if len(made) != self._settings.samples:
                raise RuntimeError(
                    f"{parts.folder} holds {len(made)} samples, {self._settings.samples} are to be "
                    "written; remove the folder, and they are made anew"
                )
            made.write(self._path)
            written.append(made)
            parts.remove()

        ranks.run_on_all(make)
        ranks.on_root(assemble)
        return written[0] if written else None


def _require_memory(settings: GenerationSettings) -> None:
    """Check that the dataset, which one rank writes, fits this machine's memory; else raise `ValueError`."""
    subdomain, count = settings.subdomain, settings.samples + settings.windows
    numbers = len(subdomain.perimeter) + (subdomain.cells + 1) ** subdomain.axes
    needed, there = 8 * count * numbers, device_memory(torch.device("cpu"), 1)
    if needed > there:
        raise ValueError(
            f"{settings.samples} samples and {settings.windows} windows of {subdomain.cells} cells per side take "
            f"{needed / 2**30:.1f} GiB, this machine has {there / 2**30:.1f} GiB for them: draw fewer"
        )


class PartGenerator:
    """Draws and solves a dataset part by part, in any order; wrong parameters are refused at once.

    The parts are first the larger problems that windows are cut from, then batches of samples.
    """

    def __init__(self, settings: GenerationSettings):
        self.settings = settings
        axes = settings.subdomain.axes
        self._across = across = _WINDOWS_ACROSS[axes]
        m = settings.subdomain.cells
        self._starts = range(0, (across - 1) * m + 1, m // 2)
        self.pde = find_equation(settings.pde)
        self._draws = self.pde.draw is not None and not settings.fields
        varied = self._draws or settings.fields
        self.parameter_names = tuple(self.pde.parameters) if varied else ()
        self._solvers: dict[tuple, Callable[[np.ndarray], np.ndarray]] = {}
        self._batch = 4 * m if self._draws else _BATCH
        self.window_parts = -(-settings.windows // len(self._starts) ** axes)
        self.parts = self.window_parts + -(-settings.samples // self._batch)
        self._sample_hyperparameters = _hyperparameters(settings, settings.samples, settings.seed)
        self._window_hyperparameters = _hyperparameters(
            settings, self.window_parts, settings.seed + 1
        )
        # All parameters are drawn, and so checked, at once: it takes no time beside solving.
        operator = self.pde.at(**dict(settings.fields))
        if axes != 2 and not operator.symmetric:
            raise ValueError(
                f"{self.pde.name} is not the same along all axes: data of it are of squares, not of cubes"
            )
        if axes != 2 and self._draws:
            raise ValueError(
                f"fields: the parameters of {self.pde.name} are drawn of squares alone; of cubes give their values"
            )
        for number in range(self.window_parts):
            self._parameters(_WINDOW_OPERATORS, number)
        for batch in range(self.parts - self.window_parts):
            self._parameters(_SAMPLE_OPERATORS, batch)

    def part(self, number: int) -> dict[str, np.ndarray]:
        """Return the arrays of a part by the names that they have in a `Dataset`."""
        if number < self.window_parts:
            return self._windows(number)
        batch = number - self.window_parts
        stop = min((batch + 1) * self._batch, self.settings.samples)
        return self._samples(batch, range(batch * self._batch, stop))

    def dataset(self, **arrays: np.ndarray) -> Dataset:
        """Return the dataset of the arrays of all parts."""
        settings = self.settings
        return Dataset(
            pde=self.pde.name,
            subdomain=settings.subdomain,
            hyperparameter_names=tuple(settings.hyperparameters),
            parameter_names=self.parameter_names,
            validation=settings.validation,
            seed=settings.seed,
            **arrays,
        )

    def _samples(self, batch: int, indices: range) -> dict[str, np.ndarray]:
        settings, m = self.settings, self.settings.subdomain.cells
        hyperparameters = self._sample_hyperparameters[indices.start : indices.stop]
        boundary = np.stack(
            [
                _boundary(settings, values, (_SAMPLES, index), 1)
                for index, values in zip(indices, hyperparameters, strict=True)
            ]
        )
        parameters = self._parameters(_SAMPLE_OPERATORS, batch)
        solution = self._solver(m, parameters)(_place(boundary, settings.subdomain.shape))
        return {
            "boundary": boundary,
            "solution": solution,
            "hyperparameters": hyperparameters,
            "parameters": self._rows(parameters, len(boundary)),
        }

    def _windows(self, number: int) -> dict[str, np.ndarray]:
        """Cut windows out of a larger solution: perimeters ``(w, P)``, solutions."""
        subdomain, across = self.settings.subdomain, self._across
        m = subdomain.cells
        hyperparameters = self._window_hyperparameters[number]
        boundary = _boundary(self.settings, hyperparameters, (_WINDOWS, number), across)
        parameters = self._parameters(_WINDOW_OPERATORS, number)
        field = self._solver(across * m, parameters)(
            _place(boundary[None], (across * m,) * subdomain.axes)
        )[0]
        corners = itertools.product(self._starts, repeat=subdomain.axes)
        windows = [field[tuple(slice(a, a + m + 1) for a in corner)] for corner in corners]
        solution = np.stack(windows[: self.settings.windows - number * len(windows)])
        boundary = solution[:, *subdomain.perimeter.T]
        return {
            "window_boundary": boundary,
            "window_solution": solution,
            "window_parameters": self._rows(parameters, len(boundary)),
        }

    def _parameters(self, kind: int, number: int) -> dict[str, float]:
        """Return the parameters of a batch of samples or of a larger problem."""
        settings = self.settings
        if not self._draws:
            return dict(settings.fields)
        rng = np.random.default_rng([settings.seed, kind, number])
        if kind == _WINDOW_OPERATORS or number % _RIM_EVERY:
            return self.pde.drawn(rng)
        size = settings.subdomain.size
        draws = [self.pde.drawn(rng) for _ in range(_RIM_DRAWS)]
        far = [np.linalg.norm(coordinates(self.pde.at(**values), size)) for values in draws]
        return draws[int(np.argmax(far))]

    def _rows(self, parameters: dict[str, float], count: int) -> np.ndarray:
        """Return parameters as rows of a dataset, ``(count, q)``."""
        values = {**self.pde.parameters, **parameters}
        return np.tile([float(values[name]) for name in self.parameter_names], (count, 1))

    def _solver(
        self, cells: int, parameters: dict[str, float]
    ) -> Callable[[np.ndarray], np.ndarray]:
        """Return the solver of fields, cached while the parameters are the same for all."""
        key = (cells, *parameters.items())
        if key not in self._solvers:
            if self._draws:
                self._solvers.clear()
            subdomain = self.settings.subdomain
            by_amg = subdomain.axes == 2 and not self._draws
            method = self.settings.method or ("amg" if by_amg else "direct")
            operator = self.pde.at(**parameters)
            grid = Grid((cells,) * subdomain.axes, subdomain.spacing)
            self._solvers[key] = _field_solver(DirichletSystem(operator, grid), method)
        return self._solvers[key]


def _hyperparameters(settings: GenerationSettings, count: int, seed: int) -> np.ndarray:
    """Draw the hyperparameters, ``(count, p)``, uniform in their logarithms."""
    lower, upper = np.array(list(settings.hyperparameters.values())).T
    return sobol_hyperparameters(count, seed, lower, upper)


def _boundary(
    settings: GenerationSettings, hyperparameters: np.ndarray, key: tuple[int, int], across: int
) -> np.ndarray:
    """Draw the boundary data of a square, or cube, of ``across`` subdomains per side."""
    subdomain, rng = settings.subdomain, np.random.default_rng([settings.seed, *key])
    drawn = dict(zip(settings.hyperparameters, hyperparameters, strict=True))
    sizes = drawn["length_scale"], drawn.get("amplitude", settings.amplitude[0]), settings.noise
    cells = across * subdomain.cells
    if subdomain.axes == 2:
        return sample_closed_curve(rng, 4 * cells, 4 * across * subdomain.size, *sizes)
    points = subdomain.spacing * perimeter_nodes((cells,) * subdomain.axes)
    return sample_at_points(rng, points, *sizes)


def _place(boundary: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Put perimeters ``(n, P)`` on the edge of fields of so many cells, ``(n, ny + 1, nx + 1)``."""
    field = np.zeros((len(boundary), *(cells + 1 for cells in shape)))
    field[:, *perimeter_nodes(shape).T] = boundary
    return field


def _field_solver(system: DirichletSystem, method: str) -> Callable[[np.ndarray], np.ndarray]:
    """Return a solver of the interior of fields ``(n, ny + 1, nx + 1)``, or with an axis more."""
    multigrid = MultigridSolver(system) if method == "amg" else None
    # A factorisation of a cube takes a hundred times as long.
    directly = system.solve if len(system.shape) == 2 else system.solve_by_sines
    inside = (slice(None), *[slice(1, -1)] * len(system.shape))

    def solve(fields: np.ndarray) -> np.ndarray:
        rhs = system.right_hand_side(np.moveaxis(fields, 0, -1))
        if multigrid:
            inner = np.stack([multigrid.solve(b) for b in np.ascontiguousarray(rhs.T)])
        else:
            inner = directly(rhs).T
        fields[inside] = inner.reshape(fields[inside].shape)
        return fields

    return solve
