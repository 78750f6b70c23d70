"""The settings of a solve: what each means and its default, said once and checked once.

The command line builds its options from the fields. Nothing slow is imported, so that ``--help`` is
fast: devices and types are words here, and torch's own in `SolveSettings.tensors`.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from os import PathLike
from typing import Any

from mosaicdd.settings import check_settings, setting, unknown
from mosaicdd.storage.atomic import require_replaceable
from mosaicdd.tensors import Tensors
from mosaicdd.unsupported import Unsupported

_FLOAT32_NETWORK = 1e-6  # relative update that is above what rounding inside of a network leaves
_FLOAT32_HALOS = 1e-8  # relative update that is above what rounding on the way leaves of it
_SMALLEST = {"float64": 1e-15, "float32": 1e-5}  # relative discrete residual above rounding
_RTOL = {"float64": 1e-7, "float32": 1e-5}
# By levels: one takes thousands (benchmarks/iterations.md), two some ten.
_MAX_ITERATIONS = {1: 100_000, 2: 100}
_BATCH = {"cpu": 4096, "cuda": 65_536}  # subdomains
DEVICES = ("cpu", "cuda")
DTYPES = ("float64", "float32")
CONVERGED = ("converged_rtol", "converged_atol", "converged_rounding")

BEST_FIRST = (
    *CONVERGED,
    "stagnated",
    "diverged_max_iterations",
    "diverged_tolerance",
    "diverged_nan",
    "interrupted",
)
"""The statuses."""

OUT_OF_ITERATIONS = "diverged_max_iterations"

RESUMABLE = ("interrupted", OUT_OF_ITERATIONS)
"""Statuses of solves that leave a checkpoint, from which another run may go on."""


@dataclass(frozen=True)
class StoppingRule:
    """Stop when the update is at most ``rtol`` times the size, or ``atol``.

    With ``mae``, the only aim is a mean absolute error on the interface against a reference (the
    paper's way to stop).

    `ValueError` if a tolerance is negative or the number of iterations not positive.
    """

    rtol: float = _RTOL["float64"]
    atol: float = 0.0
    max_iterations: int = _MAX_ITERATIONS[2]
    mae: float | None = None

    def __post_init__(self) -> None:
        values = {"rtol": self.rtol, "atol": self.atol, "until_mae": self.mae}
        for name, value in values.items():
            if value is not None and not 0 <= value < math.inf:
                raise ValueError(f"{name} must be a number >= 0, got {value}")
        if self.rtol >= 1:
            raise ValueError(
                f"rtol is relative to the solution: it must be below 1, got {self.rtol}"
            )
        if self.max_iterations < 1:
            raise ValueError(f"max_iterations must be at least 1, got {self.max_iterations}")

    def reached(self, update: float, size: float, mae: float) -> str | None:
        """Return the status of an iteration that has converged, else None."""
        if self.mae is not None:
            return "converged_atol" if mae <= self.mae else None
        if update <= self.rtol * size < math.inf:
            return "converged_rtol"
        return "converged_atol" if update <= self.atol else None


@dataclass(frozen=True)
class SolveSettings:
    """Settings of a solve; defaults that depend on other fields are filled in.

    Parameters
    ----------
    atol
        Stop when the update is this small, whatever the solution.
    device, dtype, halo_dtype, network_dtype
        Words; torch's devices and types, and numpy's, are taken, too.
    dims
        Ranks per axis, (y, x), of each group; by default those with the shortest block edges.

    Raises
    ------
    ValueError
        If a value is not allowed.
    TypeError
        If two settings contradict each other.
    """

    levels: int = setting(
        2, "2: with the coarse space; 1: subdomains only, as in the paper.", (1, 2)
    )
    sweep: str = setting(
        None,
        "All subdomains at once, or four phases of disjoint ones (one level only). "
        "[default: additive with 2 levels or gmres, phases with 1]",
        ("additive", "phases"),
    )
    sync: str = setting(
        "iteration",
        "With phases: halo exchange once per iteration (the paper) or after each phase.",
        ("iteration", "phase"),
    )
    accelerate: str | None = setting(
        None,
        "chebyshev: relaxed by factors made for two levels, at no cost; gmres: for linear local "
        "solvers, anderson: for any, both for more memory; quasi-newton: for those that are not linear, "
        "with the exact one for a derivative. [default: what the spectrum of the equation's iteration "
        "asks for; quasi-newton where the local solver is not linear; with one level none]",
        ("none", "chebyshev", "gmres", "anderson", "quasi-newton"),
    )
    coarse_points: int | None = setting(
        None,
        "Coarse nodes per lattice cell along a line, a divisor of half a subdomain. [default: 1, or 2 "
        "where the spectrum asks for them]",
        least=1,
    )
    certify: float | None = setting(
        None,
        "Go on with the exact local solver until the discrete residual, relative to the right-hand "
        "side, is this small: a right answer from any network.",
    )
    out_of_range: str = setting(
        "network",
        "What solves subdomains with rougher data than the network was trained on: it, or the exact local "
        "solver.",
        ("network", "exact"),
    )
    rtol: float = setting(
        None,
        "Stop when the update is this small, relative to the solution. "
        "[default: 1e-7 in float64, 1e-6 with a network in float32, 1e-5 in float32]",
    )
    atol: float = 0.0
    max_iterations: int = setting(None, "Give up after so many. [default: 100; one level: 100000]")
    until_mae: float | None = setting(
        None,
        "Stop at this mean absolute error on the interface instead, against the reference (the "
        "paper's way).",
    )
    reference: str = setting(
        "dst",
        "What the mean absolute error is measured against: fast sine transform, pyAMG or a sparse "
        "factorisation.",
        ("direct", "dst", "pyamg"),
    )
    batch_subdomains: int = setting(
        None,
        "Subdomains per call of the local solver; 1 is the paper's unbatched baseline. "
        "[default: 4096; cuda: 65536]",
        least=1,
    )
    batch: int | None = setting(
        None,
        "Problems that a group of ranks solves at once, of many. [default: up to 8192 subdomains "
        "together; 1 with gmres, anderson or a certificate]",
        least=1,
    )
    replicas: int = setting(
        1,
        "Groups of equal size that the ranks are split into; each solves its share of many problems.",
        least=1,
    )
    dims: tuple[int, ...] | None = None
    halo_depth: int = setting(
        1,
        "Lattice cells of the neighbours that a rank keeps: halos are exchanged in every so many "
        "iterations only.",
        least=1,
    )
    halo_dtype: str = setting(
        None,
        "Precision of values on their way between ranks; float32 limits rtol to 1e-8. "
        "[default: that of the iteration]",
        DTYPES,
    )
    mpi_buffers: str = setting(
        "host",
        "Whose memory MPI is handed if the device is a GPU (see mosaicdd doctor).",
        ("host", "cuda"),
    )
    device: str = setting("cpu", "cpu, or cuda: the GPU of the rank.")
    dtype: str = setting("float64", "Precision of the iteration and of the file.", DTYPES)
    network_dtype: str = setting(
        None,
        "Precision inside of a network that is not linear; float32 takes a third of the time, changes "
        "values by far less than the network's own error, and limits rtol to 1e-6. [default: that of the "
        "iteration]",
        DTYPES,
    )

    def __post_init__(self) -> None:
        for name in ("device", "dtype", "halo_dtype", "network_dtype"):
            object.__setattr__(self, name, _word(getattr(self, name)))
        check_settings(self)
        where = self.device.partition(":")[0]
        if where not in DEVICES:
            raise ValueError(unknown("device", self.device, DEVICES))
        phases = self.levels == 1 and self.accelerate != "gmres"
        self._default("sweep", "phases" if phases else "additive")
        self._require_dims()
        self._default("network_dtype", self.dtype)
        self._default("rtol", max(_RTOL[self.dtype], self._least_rtol))
        self._default("max_iterations", _MAX_ITERATIONS[self.levels])
        self._default("batch_subdomains", _BATCH[where])
        self._default("halo_dtype", self.dtype)
        self.stopping  # noqa: B018 - checks the tolerances
        self._require_precision()
        self._require_method()

    def _default(self, name: str, value: object) -> None:
        if getattr(self, name) is None:
            object.__setattr__(self, name, value)

    @property
    def _least_rtol(self) -> float:
        """The least ``rtol`` that rounding inside of a network allows."""
        single = self.network_dtype == "float32" and self.dtype == "float64"
        return _FLOAT32_NETWORK if single else 0.0

    def _require_dims(self) -> None:
        if self.dims is None:
            return
        per_axis = isinstance(self.dims, Sequence) and len(self.dims) in (2, 3)
        if not per_axis or not all(isinstance(n, Integral) and n >= 1 for n in self.dims):
            raise ValueError(
                f"dims must be ranks (rows, columns), in space (planes, rows, columns), each 1 or more, got {self.dims}"
            )

    def _require_precision(self) -> None:
        if self.rtol < self._least_rtol:
            raise ValueError(
                f"rtol {self.rtol:g} is below what a network in float32 allows ({_FLOAT32_NETWORK:g}); use "
                "network_dtype='float64'"
            )
        single = self.halo_dtype == "float32" and self.dtype == "float64"
        if single and self.rtol < _FLOAT32_HALOS:
            raise ValueError(
                f"rtol {self.rtol:g} is below what halos in float32 allow ({_FLOAT32_HALOS:g}); use "
                "halo_dtype='float64'"
            )
        if self.certify is not None and not 0 < self.certify < 1:
            raise ValueError(f"certify must lie between 0 and 1, got {self.certify}")
        if self.certify is not None and self.certify < _SMALLEST[self.dtype]:
            way_out = "use dtype='float64'" if self.dtype == "float32" else "ask for that or more"
            raise ValueError(
                f"certify {self.certify:g} is below what {self.dtype} can reach "
                f"({_SMALLEST[self.dtype]:g}); {way_out}"
            )

    def _require_method(self) -> None:
        phases, aims = self.sweep == "phases", self.until_mae is not None
        contradictions = {
            "phases exchange in every iteration: they need halo_depth=1": phases
            and self.halo_depth > 1,
            "an aim for the MAE and a certificate exclude each other": aims
            and self.certify is not None,
            "two levels need the additive sweep; phases go with levels=1": phases
            and self.levels == 2,
            f"accelerate={self.accelerate!r} needs two levels; one level goes with none, gmres or "
            "anderson": self.accelerate in ("chebyshev", "quasi-newton") and self.levels == 1,
            "gmres needs the additive sweep; phases go with accelerate='none'": phases
            and self.accelerate == "gmres",
            "an aim for the MAE needs accelerate='none', which measures it": aims
            and self.accelerate == "gmres",
        }
        for message, contradicts in contradictions.items():
            if contradicts:
                raise TypeError(message)

    @property
    def stopping(self) -> StoppingRule:
        """When an iteration stops."""
        return StoppingRule(self.rtol, self.atol, self.max_iterations, self.until_mae)

    @property
    def of_subdomains(self) -> str:
        """The setting that only an iteration on subdomains has; empty if none is asked for."""
        unlike = {
            "levels=1": self.levels == 1,
            "sweep='phases'": self.sweep == "phases",
            f"accelerate={self.accelerate!r}": self.accelerate is not None,
            "coarse_points": self.coarse_points is not None,
            "until_mae": self.until_mae is not None,
            f"halo_depth={self.halo_depth}": self.halo_depth > 1,
            "dtype='float32'": self.dtype == "float32",
        }
        return next((name for name, is_given in unlike.items() if is_given), "")

    def require_whole_grid(self) -> None:
        """Raise `Unsupported` if something is asked for that only an iteration on subdomains has."""
        if self.of_subdomains:
            raise Unsupported(
                f"{self.of_subdomains} is not for coefficients that are fields, natural or periodic sides, shapes, "
                "nonlinear equations and anisotropies above 100, which are solved in float64 by multigrid: "
                "leave it out"
            )

    @property
    def takes_many(self) -> bool:
        """Whether several problems can be solved at once."""
        return self.accelerate != "anderson" and self.until_mae is None

    @property
    def tensors(self) -> Tensors:
        """Device and type of the tensors of the iteration."""
        import torch

        return {"device": torch.device(self.device), "dtype": getattr(torch, self.dtype)}

    def with_changes(self, **changes: Any) -> "SolveSettings":
        """Return the same settings but for some."""
        return dataclasses.replace(self, **changes)


def _word(value: Any) -> Any:
    """Return the name of a device or a type of torch's or numpy's; what is a name as it is."""
    if value is None or isinstance(value, str):
        return value
    return getattr(value, "__name__", str(value)).removeprefix("torch.")


@dataclass(frozen=True)
class Output:
    """The file that a solve writes while it works, so that no rank ever holds its part of the field.

    Parameters
    ----------
    path
        Of the solution file; it appears under its name when it is complete.
    """

    path: str | PathLike
    shards: bool = setting(
        False,
        "Every rank writes its part of the field to OUT.h5.shards, which OUT.h5 presents as one.",
    )
    checkpoint_minutes: float = setting(
        10.0,
        "Minutes between checkpoints of the iteration (OUT.h5.checkpoint), which SIGTERM, SIGUSR1 and "
        "Ctrl-C write, too; a run that ends by itself removes it. Many problems, but in time: none.",
        least=0,
    )
    resume: bool = setting(False, "Go on from OUT.h5.checkpoint, on any number of ranks.")
    overwrite: bool = setting(False, "Replace a file OUT.h5 that mosaicdd has not written, too.")

    def __post_init__(self) -> None:
        check_settings(self)

    @classmethod
    def of(cls, output: "str | PathLike | Output") -> "Output":
        """Return the output of a file's name, or the output as it is."""
        return output if isinstance(output, Output) else cls(output)

    def require_path(self, inputs: Iterable[str | PathLike] = ()) -> None:
        """Check that the file can be written, and nothing is lost by that; see `require_replaceable`."""
        require_replaceable(self.path, overwrite=self.overwrite, suffix=".h5", inputs=inputs)
