"""Processors that the tests pretend to run on: what the libraries choose their loops by, set before they start.

``python processors.py NAME`` prints lines for a shell, ``--all`` the names that this machine can pretend, and ``--today``
the one whose turn it is. What it has no instructions for it cannot pretend. Of MKL only its oldest loops can be
asked for on each processor: those for AVX-512 it takes on Intel's alone.
"""

import platform
import shlex
import sys
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

_NUMPY_AVX512 = "X86_V4 AVX512_ICL AVX512_SPR"


@dataclass(frozen=True)
class Processor:
    """Environment of a pretended processor.

    Parameters
    ----------
    needs
        Flags of Linux's ``/proc/cpuinfo`` without which it cannot be pretended.
    environment
        Variables of torch, OpenBLAS, oneDNN, MKL, numpy and numba.
    """

    needs: frozenset[str]
    environment: dict[str, str]


def _of(needs, torch, openblas, onednn, numpy, numba, **others):
    return Processor(
        frozenset(needs.split()),
        {
            "ATEN_CPU_CAPABILITY": torch,
            "OPENBLAS_CORETYPE": openblas,
            "ONEDNN_MAX_CPU_ISA": onednn,
            "NPY_DISABLE_CPU_FEATURES": numpy,
            "NUMBA_CPU_NAME": numba,
            "NUMBA_CPU_FEATURES": "",  # those of this name, not of the machine
            **others,
        },
    )


_AVX2 = "avx2 fma"
_AVX512 = "avx512f avx512bw avx512cd avx512dq avx512vl"
PROCESSORS = {
    "this": Processor(frozenset(), {}),
    "skylake": _of(_AVX512, "avx512", "SkylakeX", "AVX512_CORE", "AVX512_ICL", "skylake-avx512"),
    # As AMD's Zen up to the third: OpenBLAS has the same loops for it.
    "haswell": _of(_AVX2, "avx2", "Haswell", "AVX2", _NUMPY_AVX512, "haswell"),
    # Without a product and a sum in one rounding.
    "nehalem": _of(
        *("sse4_2", "default", "Nehalem", "SSE41", f"{_NUMPY_AVX512} X86_V3", "nehalem"),
        MKL_CBWR="COMPATIBLE",
    ),
    # Sums over parts of arrays.
    "two-threads": Processor(frozenset(), {"OMP_NUM_THREADS": "2"}),
}


def can_be_pretended():
    """List the names of processors whose instructions this machine has."""
    flags = set()
    if platform.machine() == "x86_64":
        with suppress(OSError):
            lines = Path("/proc/cpuinfo").read_text().splitlines()
            flags.update(*(row.split() for row in lines if row.startswith("flags")))
    return [name for name, of in PROCESSORS.items() if of.needs <= flags]


def whose_turn(day):
    """Return the name of the processor of a day, by its number; more threads than tests at once would take longer."""
    names = [
        name for name in can_be_pretended() if "OMP_NUM_THREADS" not in PROCESSORS[name].environment
    ]
    return names[day % len(names)]


def main(asked):
    """Print what was asked for."""
    if asked == "--all":
        print(*can_be_pretended())
    elif asked == "--today":
        print(whose_turn(datetime.now(UTC).toordinal()))
    elif asked not in can_be_pretended():
        names = ", ".join(can_be_pretended())
        print(f"no processor {asked!r} can be pretended here: take one of {names}", file=sys.stderr)
        sys.exit(2)
    else:
        for name, value in {**PROCESSORS[asked].environment, "PRETENDED_PROCESSOR": asked}.items():
            print(f"export {name}={shlex.quote(value)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
