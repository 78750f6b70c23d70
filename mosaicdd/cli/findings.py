"""What ``doctor`` looks at: each check returns what it found, and what to do about it."""

import platform
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

import mosaicdd
from mosaicdd.parallel.launcher import Launcher
from mosaicdd.parallel.machine import Place
from mosaicdd.storage.hdf5 import built_with_mpi

_GIB = 2**30
_LEAST_MEMORY = _GIB // 2  # of a rank: its imports alone take more than half of it
_SECONDS = 20  # for Slurm to answer


@dataclass(frozen=True)
class Finding:
    """One line of the screen."""

    # subject, found: what was looked at, and what is there
    subject: str
    found: str
    advice: str = ""  # what to do; empty if nothing
    # Whether commands fail, or do something else than was asked, until it is done
    wrong: bool = False


def python() -> Finding:
    """Say which package runs in which Python."""
    folder = Path(mosaicdd.__file__).parent
    installed = f"{mosaicdd.__version__} in {folder}, Python {platform.python_version()}"
    return Finding("mosaicdd", installed)


def mpi(vendor: tuple[str, str] | None, *, several: bool) -> Finding:
    """Say which MPI library was loaded, by name and version, if any was; one rank needs none."""
    bindings = f"mpi4py {_version('mpi4py')}"
    if vendor is None:
        advice = "pip install 'mosaicdd[mpi]', or pip install mpi4py with your cluster's MPI module loaded"
        state = f"no library found, {bindings}"
        return Finding(
            "MPI", state, advice if several else f"for several ranks: {advice}", wrong=several
        )
    return Finding("MPI", f"{' '.join(vendor)}, {bindings}")


def ranks(seen: int, started: Launcher, lonely: str) -> Finding:
    """Compare the ranks that see each other with those that were started; ``lonely`` is what `lonely_ranks` says."""
    if lonely:
        advice = lonely.rpartition("; ")[2]
        counts = f"{seen} seen, {started.ranks} asked of {started.name}"
        return Finding("ranks", counts, advice, wrong=True)
    if started.name == "none":
        return Finding("ranks", f"{seen}, started alone")
    if started.name == "torchrun":
        return Finding("ranks", f"{started.ranks} of torchrun, which are for train only")
    counts = f"{seen} seen, {started.ranks} asked of {started.name}"
    if seen != started.ranks:
        return Finding("ranks", counts, "start all ranks in one job of one launcher", wrong=True)
    return Finding("ranks", counts)


def machines(places: list[Place], threads: int, refused: str = "") -> Finding:
    """Compare ranks and their threads with the cores of each machine; ``refused``: why every command refuses these."""
    hosts = _by_host(places)
    cores = {host: len(frozenset().union(*(p.cores for p in on))) for host, on in hosts.items()}
    kinds = Counter((len(on), cores[host]) for host, on in hosts.items())
    shares = ", ".join(
        f"{count} machine{'s' * (count > 1)} with {ranks} rank{'s' * (ranks > 1)} of {threads} "
        f"thread{'s' * (threads > 1)} on {width} core{'s' * (width > 1)}"
        for (ranks, width), count in kinds.items()
    )
    if len(hosts) == 1:
        shares += f" ({next(iter(hosts))})"
    if refused:
        return Finding("machines", shares, refused, wrong=True)
    for host, on in hosts.items():
        if len(on) * threads > cores[host]:
            advice = (
                f"{host}: {len(on) * threads} threads share {cores[host]} cores; use fewer ranks or "
                "a smaller OMP_NUM_THREADS, or let the launcher give them more cores"
            )
            return Finding("machines", shares, advice)
    return Finding("machines", shares)


def memory(places: list[Place]) -> Finding:
    """Say how much memory is free for a rank where there is least of it."""
    hosts = _by_host(places)
    host = min(hosts, key=lambda name: hosts[name][0].free_memory / len(hosts[name]))
    free = hosts[host][0].free_memory
    each = free / len(hosts[host])
    amounts = f"{free / _GIB:.1f} GiB free, {each / _GIB:.1f} GiB per rank"
    if len(hosts) > 1:
        amounts += f" on {host}, the least"
    if each < _LEAST_MEMORY:
        advice = f"a rank needs {_LEAST_MEMORY / _GIB} GiB at least; use fewer ranks on a machine"
        return Finding("memory", amounts, advice)
    return Finding("memory", amounts)


def gpus(places: list[Place]) -> Finding:
    """Say which rank takes which GPU, the one of its number on its machine."""
    if not any(place.gpus for place in places):
        if torch.version.cuda and Path("/dev/nvidia0").exists():
            advice = "see whether nvidia-smi works and CUDA_VISIBLE_DEVICES is not empty"
            return Finding("GPUs", "there is one that torch cannot use", advice, wrong=True)
        return Finding("GPUs", "none, --device cpu")
    taken: Counter[tuple[str, str]] = Counter()
    lines = []
    for host, on in _by_host(places).items():
        for local, place in enumerate(on):
            if not place.gpus:
                advice = f"let the launcher give every rank of {host} a GPU"
                return Finding("GPUs", f"{host}: rank {local} there sees none", advice, wrong=True)
            number = local % len(place.gpus)
            identity, name = place.gpus[number]
            taken[host, identity] += 1
            lines.append(f"{host} rank {local}: {number} ({name})")
    assigned = ", ".join(lines[:4]) + f", and {len(lines) - 4} more" * (len(lines) > 4)
    (host, _), most = taken.most_common(1)[0]
    if most > 1:
        advice = f"{most} ranks share a GPU of {host}; use as many ranks as GPUs on a machine"
        return Finding("GPUs", assigned, advice)
    return Finding("GPUs", assigned)


def buffers(probed: str) -> Finding:
    """Say which MPI buffers to choose, by what `messages.probe_device_buffers` returned."""
    meanings = {
        "works": "MPI takes device pointers: --mpi-buffers cuda or host",
        "fails": "MPI takes no device pointers: --mpi-buffers host",
        "no GPU": "no GPU: --mpi-buffers host",
    }
    return Finding("buffers", meanings[probed])


def hdf5() -> Finding:
    """Say how files are written."""
    writers = "built with MPI" if built_with_mpi() else "without MPI: rank 0 writes"
    return Finding("h5py", f"{_version('h5py')}, {writers}")


def network_library() -> Finding:
    """Say what torch was built for."""
    built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "for processors only"
    return Finding("torch", f"{torch.__version__}, {built}")


def slurm(pmi: str | None) -> Finding:
    """Say what of Slurm is there, and whether of the type of PMI that the MPI library needs, if that is known."""
    if shutil.which("srun") is None:
        return Finding("Slurm", "not installed here")
    answer = _ask("srun", "--version")
    number = answer.split()[-1] if answer else "of an unknown version"
    types = pmi_types(_ask("srun", "--mpi=list"))
    state = f"{number}, srun --mpi: {', '.join(types)}"
    if pmi and not any(kind.startswith(pmi) for kind in types):
        advice = f"srun lacks {pmi}, which MPI needs: use mpiexec in jobs, or MPI of the cluster"
        return Finding("Slurm", state, advice)
    return Finding("Slurm", state)


def pmi_types(text: str) -> list[str]:
    """Return the types among what ``srun --mpi=list`` prints, in any of its versions."""
    words = (line.removeprefix("srun: ").strip() for line in text.splitlines())
    return [word for word in words if re.fullmatch(r"\w+", word)]


def versions(pins: Path) -> Finding:
    """Compare the installed packages with the lines ``name==version`` of those that the tests ran with."""
    if not pins.is_file():
        return Finding("versions", "not compared: no constraints.txt beside the package")
    wanted = dict(line.split("==") for line in pins.read_text().split())
    installed = {name: number for name in wanted if (number := _version(name)) != "absent"}
    # A local part tells builds of one version apart, as 2.13.0+cpu.
    other = [n for n, number in installed.items() if number.partition("+")[0] != wanted[n]]
    if not other:
        return Finding("versions", f"{len(installed)} packages as in {pins.name}")
    shown = ", ".join(f"{name} {installed[name]} not {wanted[name]}" for name in other[:3])
    more = f" and {len(other) - 3} more" * (len(other) > 3)
    return Finding("versions", shown + more, f"pip install -c {pins} mosaicdd, if results differ")


def _by_host(places: list[Place]) -> dict[str, list[Place]]:
    hosts: dict[str, list[Place]] = {}
    for place in places:
        hosts.setdefault(place.host, []).append(place)
    return hosts


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def _ask(*command: str) -> str:
    """Return what a program says on either stream; nothing if it does not answer."""
    try:
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if ended.returncode else ended.stdout
