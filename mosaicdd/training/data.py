"""Data for every kind of network, made part by part by all ranks together.

Of one linear equation, or of media. What a run that was ended has made is kept, and
the next one continues from it, on any number of ranks.
"""

import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from mosaicdd.lattice.grid import Grid
from mosaicdd.local_solvers.upscaling import MARGIN, RATIO, restricted
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.discretisation.discrete import MediumSystem
from mosaicdd.problems.domain import Domain
from mosaicdd.problems.fields.fields import Field
from mosaicdd.problems.fields.random_media import draw
from mosaicdd.problems.operators.medium import Medium
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.solver import Solver
from mosaicdd.settings import require_type
from mosaicdd.storage.atomic import require_new
from mosaicdd.storage.dataset_file import Dataset, DatasetParts, joined
from mosaicdd.storage.samples import MediaDataset
from mosaicdd.training.generation import PartGenerator
from mosaicdd.training.settings import MEDIUM_CELLS, GenerationSettings, MediaSettings

_PART = 64  # media of the least size: what an ended run makes again, at most, on each rank
_AROUND = 2 * MARGIN  # cells of the medium around the square
_SMOOTH, _SOURCES, _WAVES = 2, 2, 4  # random boundary data, sources, and what they are made of
_RTOL = 1e-8  # of whole media, whose values are kept in float32
# Iterations of a whole medium, and how often one is drawn in place of another that takes more, as few do.
_PATIENCE, _DRAWS = 150, 10


class MediaGenerator:
    """Draws and solves random media part by part, in any order.

    Each is a square with smooth boundary data, and with sources between zero sides, solved by a sparse
    factorisation; only the values at every fourth node are kept. Larger ones are whole media, with random boundary data, and a
    source of 1, solved as any problem is. Each has random numbers of its own, seeded by (seed, index), so it does not
    depend on how many others are drawn.
    """

    def __init__(self, settings: MediaSettings):
        self._settings = settings
        self._each = max(1, _PART * MEDIUM_CELLS**2 // settings.cells**2)
        self.parts = -(-settings.samples // self._each)

    def part(self, number: int) -> dict[str, np.ndarray]:
        """Return the arrays of a part by the names that they have in a `MediaDataset`."""
        settings, first = self._settings, number * self._each
        samples = [
            _sample(np.random.default_rng([settings.seed, index]), settings.cells)
            for index in range(first, min(first + self._each, settings.samples))
        ]
        kinds, *columns = zip(*samples, strict=True)
        logarithm, solution, source = (np.stack(column).astype("f4") for column in columns)
        kind = np.array(kinds)
        return {"kind": kind, "logarithm": logarithm, "solution": solution, "source": source}

    def dataset(self, kind: np.ndarray, **arrays: np.ndarray) -> MediaDataset:
        """Return the dataset of the arrays of all parts."""
        validation, seed = self._settings.validation, self._settings.seed
        kinds = tuple(kind.tolist())
        return MediaDataset("diffusion", kind=kinds, validation=validation, seed=seed, **arrays)


def _sample(rng: np.random.Generator, cells: int) -> tuple[str, np.ndarray, np.ndarray, np.ndarray]:
    """Draw a medium; return its kind, its logarithms, solutions and sources at coarse nodes.

    Whole media that multigrid cannot solve are drawn again.
    """
    nodes = cells + 1
    inner, status = slice(_AROUND, -_AROUND), ""
    for _ in range(_DRAWS):
        kind, logarithm = draw(rng, nodes + 2 * _AROUND)
        a = np.exp(logarithm.astype("f4").astype(float))
        edges, sources = _boundary_data(rng, nodes), _sources(rng, nodes)
        whole = cells > MEDIUM_CELLS
        if whole:
            edges, sources = edges[-1:], sources[:1]
        none = np.zeros((nodes, nodes))
        fields = np.stack([*edges, *(none for _ in sources)])
        loads = np.stack([*(none for _ in edges), *sources])
        status = (_by_multigrid if whole else _by_factors)(a[inner, inner], fields, loads)
        if not status:
            shared = restricted(np.pad(loads, ((0, 0), (MARGIN, MARGIN), (MARGIN, MARGIN))))
            return kind, logarithm, fields[:, ::RATIO, ::RATIO], shared
    raise RuntimeError(f"none of {_DRAWS} media of {cells} cells could be solved ({status})")


def _by_factors(a: np.ndarray, fields: np.ndarray, loads: np.ndarray) -> str:
    """Fill the inside of fields ``(q, rows, columns)``; return the status of what could not be solved, else nothing."""
    inside = fields[:, 1:-1, 1:-1]
    system = MediumSystem(Medium({"a": Field("a", a)}), Grid((len(a) - 1,) * 2, 1.0))
    rhs = [system.right_hand_side(u, f) for u, f in zip(fields, loads, strict=True)]
    inside[...] = system.solve(np.stack(rhs, axis=1)).T.reshape(inside.shape)
    return ""


def _by_multigrid(a: np.ndarray, fields: np.ndarray, loads: np.ndarray) -> str:
    """As `_by_factors`, of media of any size."""
    domain = Domain((len(a) - 1,) * 2, 1.0)
    problems = [
        Problem(domain, "diffusion", {"a": a, "f": f}, Boundary.of_field(u))
        for u, f in zip(fields, loads, strict=True)
    ]
    settings = SolveSettings(rtol=_RTOL, max_iterations=_PATIENCE)
    with Solver(problems[0], "exact", settings=settings) as solver:
        for u, problem in zip(fields, problems, strict=True):
            solution = solver(problem)
            if not solution.converged:
                return str(solution.status)
            u[...] = solution.field
    return ""


def _boundary_data(rng: np.random.Generator, nodes: int) -> list[np.ndarray]:
    """Return linear and quadratic functions, and some that are random."""
    y, x = _coordinates(nodes)
    plain = [x + 0 * y, y + 0 * x, x * y, x * x - y * y]
    return plain + [_waves(rng, nodes) for _ in range(_SMOOTH)]


def _sources(rng: np.random.Generator, nodes: int) -> list[np.ndarray]:
    return [np.ones((nodes, nodes)), *(_waves(rng, nodes) for _ in range(_SOURCES - 1))]


def _waves(rng: np.random.Generator, nodes: int) -> np.ndarray:
    y, x = _coordinates(nodes)
    waves = zip(rng.normal(0.0, 1.5, (_WAVES, 2)), rng.uniform(0, 2 * np.pi, _WAVES), strict=True)
    return sum(np.sin(kx * x + ky * y + phase) for (kx, ky), phase in waves)


def _coordinates(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    t = np.linspace(-1.0, 1.0, nodes)
    return t[:, None], t


AnySettings = GenerationSettings | MediaSettings
AnyDataset = Dataset | MediaDataset

# Made of settings, they make the arrays of any of their ``parts`` by ``part(number)``, and of those of all ``dataset(..)``.
_GENERATORS: dict[type, Callable[[Any], Any]] = {
    GenerationSettings: PartGenerator,
    MediaSettings: MediaGenerator,
}


def generate(
    path: str | os.PathLike,
    settings: AnySettings | None = None,
    *,
    ranks: Any = None,
    overwrite: bool = False,
    progress: Callable[[float], None] | None = None,
) -> AnyDataset | None:
    """Draw and solve data to train on, and write them to a file; all ranks call this together.

    Parameters
    ----------
    settings
        What is drawn: `GenerationSettings` for networks of a linear equation, the defaults if not given;
        `MediaSettings`, random media of ``diffusion``, for the network ``conductances``.
    ranks
        Who shares the work, the samples being the same on any number of ranks: a communicator,
        `Ranks`, or None for this process alone.
    overwrite
        Whether a file that is there is replaced.
    progress
        Called with the fraction of this rank's work that is done.

    Returns
    -------
    Dataset or MediaDataset
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
    wanted = "a GenerationSettings or MediaSettings"
    require_type("settings", settings, GenerationSettings | MediaSettings, wanted)
    with Ranks.of(ranks) as everyone:
        generation = Generation(path, settings, everyone, overwrite=overwrite)
        return generation.run(progress)


class Generation:
    """Data that are to be made by all ranks together: checked first, then run; for arguments and errors see `generate`.

    The parts lie in ``PATH.parts`` until the file is complete.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        settings: AnySettings,
        ranks: Ranks | None = None,
        *,
        overwrite: bool = False,
    ):
        self._path, self._settings, self._ranks = path, settings, ranks or Ranks.alone()
        # As JSON gives it back.
        identity = {n: list(v) if isinstance(v, tuple) else v for n, v in asdict(settings).items()}
        self._parts = DatasetParts(Path(path), identity)

        def check() -> None:
            self._generator()
            require_new(path, overwrite=overwrite)
            self._parts.open()

        self._ranks.on_root(check)

    def _generator(self) -> Any:
        return _GENERATORS[type(self._settings)](self._settings)

    def run(self, progress: Callable[[float], None] | None = None) -> AnyDataset | None:
        """Make what is missing of the parts, every ``size``-th on a rank, and write the file.

        Errors are raised on all ranks, and all parts are kept.
        """
        generator, parts, ranks = self._generator(), self._parts, self._ranks
        written: list[AnyDataset] = []

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

        ranks.agree(make)
        ranks.on_root(assemble)
        return written[0] if written else None
