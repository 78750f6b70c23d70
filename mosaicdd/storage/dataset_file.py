"""Dataset files: many small boundary value problems with their solutions.

``/boundary (n, 4m)``, ``/solution (n, m+1, m+1)``, of cubes ``(n, 6m^2 + 2)`` and an axis more, and ``/hyperparameters (n, p)``; the same of the
windows under ``/windows`` (subdomains cut out of larger solutions, for validation only). Where the
equation's parameters differ between samples, ``/parameters (n, q)``.

A dataset that is being made is a folder of small files, one per part. Each is written whole or not at
all by the rank that made it, so a generation that is killed has lost the parts it was at, and
another number of ranks can continue it.
"""

import hashlib
import itertools
import json
import os
import shutil
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.problems.equations import equation
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.storage.atomic import atomic_file
from mosaicdd.storage.hdf5 import first_difference, new_file, open_to_read, slabs

# What reading a part that is missing, cut short or changed may raise.
_DAMAGE = (
    *(OSError, ValueError, KeyError, EOFError, RuntimeError),  # NotImplementedError, too
    *(zipfile.BadZipFile, zlib.error, struct.error),
)
# Where the arrays of a dataset are in its file, and those of equations whose parameters differ between samples
_ARRAYS = {
    **{name: name for name in ("boundary", "solution", "hyperparameters")},
    "window_boundary": "windows/boundary",
    "window_solution": "windows/solution",
}
_PARAMETERS = {"parameters": "parameters", "window_parameters": "windows/parameters"}


@dataclass(frozen=True)
class Dataset:
    """Boundary value problems on one subdomain, with their solutions.

    Parameters
    ----------
    pde
        Name of the equation.
    boundary, solution
        ``(n, 4 m)`` and ``(n, m + 1, m + 1)``; of cubes ``(n, 6 m**2 + 2)`` and ``(n, m + 1, m + 1, m + 1)``.
    hyperparameters, hyperparameter_names
        ``(n, p)`` of the random boundary data, and their ``p`` names.
    window_boundary, window_solution
        The same of ``w`` windows of larger solutions.
    parameter_names
        Names of the equation's parameters that differ between samples; none if they are the
        equation's defaults, the same for all.
    parameters, window_parameters
        Their values, ``(n, q)`` and ``(w, q)``; equal ones follow one another.
    validation
        Fraction of the samples that is held out; the last ones.
    seed
        That the samples were drawn with.
    """

    pde: str
    subdomain: Subdomain
    boundary: np.ndarray
    solution: np.ndarray
    hyperparameters: np.ndarray
    hyperparameter_names: tuple[str, ...]
    window_boundary: np.ndarray
    window_solution: np.ndarray
    validation: float
    seed: int
    parameter_names: tuple[str, ...] = ()
    # None becomes an array without columns.
    parameters: np.ndarray = None  # type: ignore[assignment]
    window_parameters: np.ndarray = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        m, nodes = self.subdomain.cells, (self.subdomain.cells + 1,) * self.subdomain.axes
        arrays = vars(self)
        for kind, prefix in (("sample", ""), ("window", "window_")):
            # A user's may be of less precision, and of no parameters.
            boundary, solution = (
                np.asarray(arrays[prefix + name], np.float64) for name in ("boundary", "solution")
            )
            parameters, count = arrays[f"{prefix}parameters"], len(boundary)
            parameters = np.zeros((count, 0)) if parameters is None else parameters
            made = {"boundary": boundary, "solution": solution, "parameters": parameters}
            for name, values in made.items():
                object.__setattr__(self, prefix + name, values)
            needed = count, len(self.parameter_names)
            if parameters.shape != needed or not np.isfinite(parameters).all():
                raise ValueError(
                    f"the {prefix}parameters of a dataset must be finite and of the shape {needed}, got "
                    f"{parameters.shape}"
                )
            shapes = (count, len(self.subdomain.perimeter)), (count, *nodes)
            if (boundary.shape, solution.shape) != shapes:
                raise ValueError(
                    f"{kind} boundaries and solutions of {m} cells must have the shapes {shapes}, "
                    f"got {boundary.shape} and {solution.shape}"
                )
            if not (np.isfinite(boundary).all() and np.isfinite(solution).all()):
                raise ValueError(f"the {kind}s of a dataset must be finite, found NaN or infinity")
        if self.hyperparameters.shape != (len(self.boundary), len(self.hyperparameter_names)):
            raise ValueError(
                f"{len(self.boundary)} samples with {len(self.hyperparameter_names)} named "
                f"hyperparameters do not fit an array {self.hyperparameters.shape}"
            )
        if not 0 < self.held_out < len(self.boundary):
            raise ValueError(
                f"holding out {self.validation:g} of {len(self.boundary)} samples leaves none for "
                "validation or none for training; use more samples"
            )

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.boundary)

    @property
    def held_out(self) -> int:
        """Number of samples that training does not see."""
        return round(self.validation * len(self))

    @property
    def content_hash(self) -> str:
        """SHA-256 of the samples, independent of the file that holds them."""
        digest = hashlib.sha256()
        for array in (self.boundary, self.solution):
            for slab in slabs(array):
                digest.update(np.ascontiguousarray(slab, dtype="<f8").data)
        return digest.hexdigest()

    def operators(self, part: slice) -> list[tuple[EllipticOperator, slice]]:
        """Return the operators of some samples, each with the samples that follow one another."""
        return self._runs(self.parameters, part)

    @property
    def window_operators(self) -> list[tuple[EllipticOperator, slice]]:
        """The operators of the windows, each with its windows."""
        return self._runs(self.window_parameters, slice(0, len(self.window_boundary)))

    def _runs(self, parameters: np.ndarray, part: slice) -> list[tuple[EllipticOperator, slice]]:
        start, stop, _ = part.indices(len(parameters))
        changes = np.flatnonzero((np.diff(parameters[start:stop], axis=0) != 0).any(axis=1))
        ends, pde, runs = [start, *(start + 1 + changes), stop], equation(self.pde), []
        for a, b in itertools.pairwise(map(int, ends)):
            named = dict(zip(self.parameter_names, parameters[a].tolist(), strict=True))
            runs.append((pde.at(**named), slice(a, b)))
        return runs

    def write(self, path: str | os.PathLike) -> None:
        """Write a file of them, whole or not at all."""
        square = self.subdomain
        with new_file(path, "dataset") as file:
            file.attrs.update(pde=self.pde, seed=self.seed, validation=self.validation)
            file.attrs.update(cells=square.cells, size=square.size, axes=square.axes)
            file.attrs["hyperparameter_names"] = list(self.hyperparameter_names)
            arrays = _ARRAYS
            if self.parameter_names:
                file.attrs["parameter_names"] = list(self.parameter_names)
                arrays = _ARRAYS | _PARAMETERS
            for name, stored in arrays.items():
                file[stored] = vars(self)[name]

    @classmethod
    def read(cls, path: str | os.PathLike) -> Self:
        """Read a file of samples.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If it is foreign, truncated or inconsistent; the message names it.
        """
        with open_to_read(path, "dataset") as file:
            attributes = file.attrs
            axes = int(attributes.get("axes", 2))  # files from before there were cubes have none
            arrays = _ARRAYS | (_PARAMETERS if "parameter_names" in attributes else {})
            content: dict[str, Any] = {
                "pde": str(attributes["pde"]),
                "validation": float(attributes["validation"]),
                "seed": int(attributes["seed"]),
                "subdomain": Subdomain(int(attributes["cells"]), float(attributes["size"]), axes),
                "hyperparameter_names": tuple(map(str, attributes["hyperparameter_names"])),
                "parameter_names": tuple(map(str, attributes.get("parameter_names", ()))),
                **{name: file[stored][()] for name, stored in arrays.items()},
            }
        try:
            return cls(**content)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


def joined(parts: Iterable[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Put the arrays of parts together, in their order, holding one part besides the whole."""
    whole: dict[str, np.ndarray] = {}
    for part in parts:
        for name, array in part.items():
            if name not in whole:
                whole[name] = np.array(array, order="C")  # as rows are appended to
                continue
            rows = len(whole[name])
            # Grown in place, as the system moves pages; a list of all parts would take as much again.
            whole[name].resize(rows + len(array), *array.shape[1:], refcheck=False)
            whole[name][rows:] = array
    return whole


class DatasetParts:
    """The folder ``OUT.parts`` beside the dataset file, and what parts depend on, as JSON holds it: the identity."""

    def __init__(self, output: str | Path, identity: dict):
        self.folder = Path(f"{output}.parts")
        self._identity = identity

    def open(self) -> None:
        """Make the folder; `ValueError` if the one there is of another dataset, with the first difference; on one rank."""
        note = self.folder / "settings.json"
        if not note.exists():
            self.folder.mkdir(exist_ok=True)
            with atomic_file(note) as temporary:
                temporary.write_text(json.dumps(self._identity, sort_keys=True))
            return
        if told := first_difference(json.loads(note.read_text()), self._identity):
            raise ValueError(
                f"{self.folder} holds parts of another dataset: its {told}; give the same settings, or remove the "
                "folder"
            )

    def write(self, number: int, arrays: dict[str, np.ndarray]) -> None:
        """Write a part."""
        with atomic_file(self._path(number)) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]  # none is named allow_pickle

    def is_whole(self, number: int) -> bool:
        """Say whether a part is there, and not damaged."""
        try:
            self._read(number)
        except _DAMAGE:
            return False
        return True

    def every(self, count: int) -> Iterator[dict[str, np.ndarray]]:
        """Read all parts, in their order; `OSError` if one cannot be read; the message names it."""
        for number in range(count):
            try:
                yield self._read(number)
            except _DAMAGE as error:
                reason = getattr(error, "strerror", None) or error
                raise OSError(
                    f"{self._path(number)}: a part of the dataset cannot be read ({reason}); all "
                    "parts are kept, the same command again makes what is missing"
                ) from error

    def _read(self, number: int) -> dict[str, np.ndarray]:
        with np.load(self._path(number), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}

    def remove(self) -> None:
        """Remove the folder of a dataset that is complete."""
        shutil.rmtree(self.folder)

    def _path(self, number: int) -> Path:
        return self.folder / f"part-{number:06d}.npz"
