"""Rates: what a machine needs for the parts of a solve, as it was measured; a small JSON file.

Those of one core are shipped with the package. Links between ranks that were not measured are assumed, and every result of
such rates says so.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from mosaicdd.storage.atomic import atomic_file

_FORMAT = "mosaicdd rates 3"


class Summed:
    """Parts of a sum; a dataclass of numbers."""

    @property
    def total(self) -> Any:
        """All of them."""
        return sum(vars(self).values())

    @property
    def figures(self) -> dict:
        """The parts and their sum, by name."""
        return {**vars(self), "total": self.total}


@dataclass(frozen=True)
class Link:
    """How messages travel; both numbers are positive."""

    latency: float  # seconds per message
    bandwidth: float  # bytes per second

    def __post_init__(self) -> None:
        _require_positive(self)

    def seconds(self, messages: Any, size: Any) -> Any:
        """Return the seconds for messages of ``size`` bytes together; numbers or arrays."""
        return self.latency * messages + size / self.bandwidth


@dataclass(frozen=True)
class Curve:
    """Seconds over an amount of work, measured at a few amounts: positive, the amounts rising.

    Linear in between, the first value below, proportional to the last beyond.
    """

    amounts: tuple[float, ...]
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("amounts", "seconds"):
            object.__setattr__(self, name, tuple(map(float, getattr(self, name))))
        if not self.amounts or len(self.amounts) != len(self.seconds):
            raise ValueError(
                f"a curve needs as many seconds as amounts, got {len(self.seconds)} for "
                f"{len(self.amounts)}"
            )
        if not np.all(np.diff(self.amounts, prepend=0.0) > 0):
            raise ValueError(f"the amounts of a curve must rise from above 0, got {self.amounts}")
        if not (np.min(self.seconds) > 0 and np.isfinite(self.seconds).all()):
            raise ValueError(f"the seconds of a curve must be positive, got {self.seconds}")

    @classmethod
    def rising(cls, amounts: Sequence[float], seconds: Sequence[float]) -> "Curve":
        """Return a curve that does not fall: less work was never slower for its own sake."""
        return cls(tuple(amounts), tuple(np.minimum.accumulate(seconds[::-1])[::-1]))

    def __call__(self, amount: Any) -> Any:
        """Return the seconds for an amount; numbers or arrays."""
        beyond = np.maximum(1.0, np.divide(amount, self.amounts[-1]))
        return np.interp(amount, self.amounts, self.seconds) * beyond


@dataclass(frozen=True)
class MediumRates:
    """What one rank needs for a solve in a medium: seconds over the nodes that it has."""

    machine: str  # its processor
    axes: int  # 2 in the plane, 3 in space
    setup: Curve  # coefficients evaluated, the levels made
    iteration: Curve  # of all levels, but for messages
    fill: Curve  # the field and its residual


@dataclass(frozen=True)
class Rates:
    """What one rank needs while all ranks of its node work; numbers are positive."""

    machine: str  # its processor
    # device, dtype, local_solver: what they are for
    device: str
    dtype: str
    local_solver: str
    axes: int  # of its subdomains
    ranks: int  # how many ranks were measured at the same time
    # Seconds over the subdomains of a rank: an iteration but for the coarse solve and messages
    sweep: Curve
    # Seconds over the lattice nodes: the coarse solve's sine transforms, there and back
    transform: Curve
    # setup, estimate, fill: seconds over the subdomains of a rank: before and after the iterations,
    # the estimate's coarse solve left out. The set-up is that of a process that solves once
    setup: Curve
    estimate: Curve
    fill: Curve
    write: float  # bytes per second into a solution file
    copy: float  # bytes per second of vector operations, read and written bytes together
    pack: float  # seconds for packing one message and adding one that arrived, beside their bytes
    # within_node, between_nodes: messages between two ranks
    within_node: Link | None
    between_nodes: Link | None
    # The all-gather: seconds per doubling of the ranks, and bytes per second that arrive. This and
    # the two before are None where they were not measured
    gather: Link | None
    staging: Link | None  # the way of a message from a device to the host; None where there is none
    base_bytes: int  # memory of a process that has imported everything
    # What a solve in a medium needs, by axes; none where that was not measured, as on a GPU or in float32
    media: tuple[MediumRates, ...] = ()

    def __post_init__(self) -> None:
        if self.dtype not in ("float32", "float64"):
            raise ValueError(f"dtype must be float32 or float64, got {self.dtype!r}")
        _require_positive(self)

    @property
    def word(self) -> int:
        """Bytes per interface value."""
        return np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class CompleteRates(Rates):
    """Rates of which all links are known, measured or assumed."""

    within_node: Link
    between_nodes: Link
    gather: Link


def write_rates(path: str | os.PathLike, rates: Rates) -> None:
    """Write rates to a JSON file, whole or not at all."""
    content = {"format": _FORMAT} | asdict(rates)
    with atomic_file(path) as temporary:
        Path(temporary).write_text(json.dumps(content, indent=1) + "\n")


def read_rates(path: str | os.PathLike) -> Rates:
    """Read rates from a JSON file; errors say which it is and what is missing or impossible in it."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file; mosaicdd bench makes one")
    try:
        content = json.loads(path.read_text())
        if not isinstance(content, dict) or content.pop("format", None) != _FORMAT:
            raise ValueError("not a rates file of this version; mosaicdd bench makes one")
        content.pop("assumed", None)  # of 0.1.0
        return _rates_of(content)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from error


def _rates_of(content: dict) -> Rates:
    """Build rates from JSON; what is missing or unknown is refused."""
    known = {field.name for field in fields(Rates)}
    if wrong := sorted(known ^ content.keys()):
        raise ValueError(f"rates need the entries {sorted(known)}; missing or unknown: {wrong}")
    made = _with_curves(Rates, content)
    for field in fields(Rates):
        value = content[field.name]
        if field.type in (Link, Link | None):
            made[field.name] = value if value is None else Link(**value)
    made["media"] = tuple(
        MediumRates(**_with_curves(MediumRates, of_medium)) for of_medium in content["media"]
    )
    return Rates(**made)


def _with_curves(kind: type, content: dict) -> dict:
    """Return the entries of a dataclass with its curves built."""
    curves = [field.name for field in fields(kind) if field.type is Curve]
    return content | {name: Curve(**content[name]) for name in curves if name in content}


def _require_positive(settings: Link | Rates) -> None:
    """Check that the numbers of a dataclass are positive and finite."""
    for field in fields(settings):
        value = getattr(settings, field.name)
        if field.type in (int, float) and not 0 < value < float("inf"):
            raise ValueError(f"{field.name} must be a positive number, got {value}")


SHARED_MEMORY = Link(latency=1e-6, bandwidth=5e9)
"""Within a node: what MPI libraries reach between two cores of one processor."""

NETWORK = Link(latency=2e-6, bandwidth=25e9)
"""Between nodes: InfiniBand HDR, 200 Gbit/s per port (NVIDIA), with the usual latency of MPI."""

_SHIPPED = Path(__file__).parent / "measured"


def rates_of_name(name: str, dtype: str, axes: int = 2) -> Rates:
    """Return rates for a precision: ``"default"``, measured on one core, or those of a file.

    ``axes``: of the subdomains, which the default is for.

    Errors are those of `read_rates`, and of rates that were measured in another precision.
    """
    if name == "default":
        path = _SHIPPED / f"cpu{'-cubes' * (axes == 3)}-{dtype}.json"
        if not path.exists():
            raise FileNotFoundError(
                f"no rates of cubes are shipped in {dtype}: use dtype=float64, or measure some by mosaicdd bench "
                f"--local-solver laplace-cubes --dtype {dtype}"
            )
        return read_rates(path)
    if not Path(name).is_file():
        raise FileNotFoundError(
            f"{name}: neither a file nor 'default'; mosaicdd bench measures this machine"
        )
    rates = read_rates(name)
    if rates.dtype != dtype:
        raise ValueError(
            f"{name} was measured in {rates.dtype}: use dtype={rates.dtype}, or rates that were "
            f"measured in {dtype}"
        )
    return rates


def completed(rates: Rates) -> tuple[CompleteRates, list[str]]:
    """Fill in links that were not measured; return which of them are assumed."""
    assumed = {
        "within_node": SHARED_MEMORY,
        "between_nodes": NETWORK,
        "gather": rates.within_node or SHARED_MEMORY,
    }
    missing = {name: link for name, link in assumed.items() if getattr(rates, name) is None}
    return CompleteRates(**vars(rates) | missing), list(missing)
