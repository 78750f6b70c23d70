"""Rates by name: of files, shipped with the package, or derived from published figures.

The last are for machines that one does not have. A sweep is one matrix product and copies, so a
rank's time is the larger of its arithmetic and its memory traffic, plus the launches of its kernels.
Every result of such rates says that they are assumed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.planning.rates import CompleteRates, Curve, Link, Rates, read_rates

SHARED_MEMORY = Link(latency=1e-6, bandwidth=5e9)
"""Within a node: what MPI libraries reach between two cores of one processor."""

NETWORK = Link(latency=2e-6, bandwidth=25e9)
"""Between nodes: InfiniBand HDR, 200 Gbit/s per port (NVIDIA), with the usual latency of MPI."""

_SHIPPED = Path(__file__).parent / "measured"
_M = Subdomain().cells  # per side, of the shipped networks
_ACHIEVED = 0.7  # of the published memory bandwidth and arithmetic, by such kernels
_LAUNCH = 5e-6  # seconds per kernel, called from Python
_SWEEP_KERNELS, _TRANSFORM_KERNELS = 30, 40
_SWEEP_WORDS = 3 * 4 * _M + 8 * 2 * (_M - 1)  # read and written per subdomain: perimeter, lines
_TILES = 0.25  # of the subdomains, which the field is filled from
_FILL_WORDS = _TILES * (3 * 4 * _M + 8 * (_M - 1) ** 2)
_TRANSFORM_BYTES = 4 * 14 * 8  # per node: 4 transforms of odd extensions, in doubles
_SUBDOMAINS = (1, 10**3, 10**4, 10**5, 10**6)


@dataclass(frozen=True)
class Gpu:
    """Published figures of a GPU and of the way to its host."""

    name: str
    memory: float  # bandwidth in bytes per second
    # float64, float32: operations per second, without tensor cores
    float64: float
    float32: float
    host: float  # bytes per second to the host and back, one way
    network: Link  # between nodes


GPUS = {
    # NVIDIA A30 datasheet (2021): 933 GB/s HBM2; 5.2 and 10.3 TFLOPS; PCIe 4.0 x16, 64 GB/s both
    # ways. Network: InfiniBand HDR.
    "a30": Gpu("NVIDIA A30", 933e9, 5.2e12, 10.3e12, 25e9, NETWORK),
    # NVIDIA H100 SXM datasheet (2022): 3.35 TB/s HBM3; 34 and 67 TFLOPS; PCIe 5.0 x16, 128 GB/s
    # both ways. Network: InfiniBand NDR, 400 Gbit/s.
    "h100": Gpu("NVIDIA H100 SXM", 3.35e12, 34e12, 67e12, 50e9, Link(2e-6, 50e9)),
}


def rates_of_name(name: str, dtype: str) -> Rates:
    """Return rates for a precision: ``"default"``, measured on one core; a name in `GPUS`; or those of a file.

    Errors are those of `read_rates`, and of rates that were measured in another precision.
    """
    if name in GPUS:
        return assumed_rates(name, dtype)
    if name == "default":
        return read_rates(_SHIPPED / f"cpu-{dtype}.json")
    if not Path(name).is_file():
        raise FileNotFoundError(
            f"{name}: neither a file nor one of default, {', '.join(GPUS)}; "
            "mosaicdd bench measures this machine"
        )
    rates = read_rates(name)
    if rates.dtype != dtype:
        raise ValueError(
            f"{name} was measured in {rates.dtype}: use dtype={rates.dtype}, or rates that were "
            f"measured in {dtype}"
        )
    return rates


def assumed_rates(name: str, dtype: str) -> Rates:
    """Return the rates of a GPU, one of `GPUS`, by its published figures."""
    gpu = GPUS[name]
    return Rates(
        machine=gpu.name,
        assumed=True,
        device="cuda",
        dtype=dtype,
        local_solver="laplace",
        ranks=1,
        sweep=_roofline(gpu, dtype, 2 * (_M - 1), _SWEEP_WORDS),
        transform=_curve(
            lambda nodes: nodes * _TRANSFORM_BYTES / (_ACHIEVED * gpu.memory), _TRANSFORM_KERNELS
        ),
        setup=Curve(_SUBDOMAINS, (0.2,) * len(_SUBDOMAINS)),  # on the host
        # One more iteration, with norms over the edge.
        estimate=_roofline(gpu, dtype, 2 * (_M - 1), 2 * _SWEEP_WORDS),
        fill=_roofline(gpu, dtype, _TILES * (_M - 1) ** 2, _FILL_WORDS),
        write=5e8,  # HDF5 with its checksum on one core, to a local solid-state disk
        copy=_ACHIEVED * gpu.memory,
        pack=4 * _LAUNCH,
        within_node=SHARED_MEMORY,  # between the hosts' buffers
        between_nodes=gpu.network,
        gather=Link(gpu.network.latency, SHARED_MEMORY.bandwidth),
        staging=Link(1e-5, gpu.host),  # of a copy that the host waits for
        base_bytes=2**29,  # of the device: the CUDA context and libraries
    )


def completed(rates: Rates) -> tuple[CompleteRates, list[str]]:
    """Fill in links that were not measured; return which of them are assumed."""
    assumed = {
        "within_node": SHARED_MEMORY,
        "between_nodes": NETWORK,
        "gather": rates.within_node or SHARED_MEMORY,
    }
    missing = {name: link for name, link in assumed.items() if getattr(rates, name) is None}
    return CompleteRates(**vars(rates) | missing), list(missing)


def _roofline(gpu: Gpu, dtype: str, values: float, words: float) -> Curve:
    """Return the seconds for subdomains with so many values each, ``words`` read and written."""
    operations = 2 * 4 * _M * values / getattr(gpu, dtype)
    traffic = words * np.dtype(dtype).itemsize / gpu.memory
    each = max(operations, traffic) / _ACHIEVED
    return _curve(lambda subdomains: subdomains * each, _SWEEP_KERNELS)


def _curve(seconds: Callable[[np.ndarray], np.ndarray], kernels: int) -> Curve:
    amounts = np.array(_SUBDOMAINS, dtype=float)
    return Curve(tuple(amounts), tuple(kernels * _LAUNCH + seconds(amounts)))
