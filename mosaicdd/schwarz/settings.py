"""The settings of a solve, validated once."""

from dataclasses import dataclass, field

import torch

from mosaicdd.parallel.halo import BUFFERS
from mosaicdd.schwarz.stopping import StoppingRule

_FLOAT32_HALOS = 1e-8  # relative update that is above what rounding on the way leaves of it
_FLOAT32 = 1e-5  # relative discrete residual that is safely above float32 rounding


@dataclass(frozen=True)
class SolveSettings:
    """How a problem is solved.

    Parameters
    ----------
    levels
        1: subdomains only (the paper); 2: with the coarse space.
    sweep
        ``"additive"`` or ``"phases"`` (the paper; one level only).
    sync
        When ranks exchange within a sweep of phases: once per ``"iteration"`` or per ``"phase"``.
    accelerate
        ``"none"``: the iteration as it is; ``"chebyshev"``: relaxed by factors that take turns, for two
        levels; ``"gmres"``: for linear local solvers; ``"anderson"``: for any. By default what the
        spectrum of the problem's iteration asks for: ``"chebyshev"`` in float64 where it is real and
        small, ``"gmres"`` where it is not, ``"none"`` for one level.
    coarse_points
        Coarse nodes per lattice cell along a line; by default as many as that spectrum asks for, 1 or
        2.
    certify
        Relative discrete residual to which the answer is driven with the exact local solver.
    batch_subdomains
        Subdomains per call of the local solver; 1 is the paper's unbatched baseline.
    halo_depth
        Lattice cells of the neighbours that a rank keeps a copy of: halos are exchanged in every
        ``halo_depth``-th iteration only, for more subdomains that several ranks compute.
    halo_dtype
        Of the values that are exchanged; by default that of the iteration.
    mpi_buffers
        ``"host"`` or ``"cuda"``: whose memory MPI is handed on a GPU.

    Raises
    ------
    ValueError
        If a value is not one of those listed.
    TypeError
        If two settings contradict each other.
    """

    levels: int = 2
    sweep: str = "additive"
    sync: str = "iteration"
    accelerate: str | None = None
    coarse_points: int | None = None
    certify: float | None = None
    stopping: StoppingRule = field(default_factory=StoppingRule)
    batch_subdomains: int = 4096
    halo_depth: int = 1
    halo_dtype: torch.dtype | None = None
    mpi_buffers: str = "host"
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    dtype: torch.dtype = torch.float64

    def __post_init__(self):
        choices = {
            "levels": (1, 2),
            "sweep": ("additive", "phases"),
            "sync": ("iteration", "phase"),
            "accelerate": (None, "none", "chebyshev", "gmres", "anderson"),
            "dtype": (torch.float32, torch.float64),
            "halo_dtype": (None, torch.float32, torch.float64),
            "mpi_buffers": BUFFERS,
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {known}, got {getattr(self, name)!r}")
        if self.batch_subdomains < 1:
            raise ValueError(f"batch_subdomains must be at least 1, got {self.batch_subdomains}")
        single = self.halo_dtype == torch.float32 and self.dtype == torch.float64
        if single and self.stopping.rtol < _FLOAT32_HALOS:
            raise ValueError(
                f"rtol {self.stopping.rtol:g} is below what halos in float32 allow "
                f"({_FLOAT32_HALOS:g}); use --halo-dtype float64"
            )
        if self.halo_depth < 1:
            raise ValueError(f"halo_depth must be at least 1, got {self.halo_depth}")
        if self.halo_depth > 1 and self.sweep == "phases":
            raise TypeError("phases exchange in every iteration: they need --halo-depth 1")
        if self.certify is not None and not 0 < self.certify < 1:
            raise ValueError(f"certify must lie between 0 and 1, got {self.certify}")
        if self.certify is not None and self.certify < _FLOAT32 and self.dtype == torch.float32:
            raise ValueError(
                f"certify {self.certify:g} is below what float32 can reach ({_FLOAT32:g}); "
                "use float64"
            )
        if self.certify is not None and self.stopping.mae is not None:
            raise TypeError("an aim for the MAE and a certificate exclude each other")
        if self.levels == 2 and self.sweep == "phases":
            raise TypeError("two levels need the additive sweep; phases go with --levels 1")
        if self.accelerate == "chebyshev" and self.levels == 1:
            raise TypeError(
                "the factors of --accelerate chebyshev are those of two levels; one level goes with "
                "none, gmres or anderson"
            )
        if self.accelerate == "gmres" and self.sweep == "phases":
            raise TypeError("gmres needs the additive sweep; phases go with --accelerate none")
        if self.accelerate == "gmres" and self.stopping.mae is not None:
            raise TypeError("an aim for the MAE needs --accelerate none, which measures it")

    @property
    def takes_many(self) -> bool:
        """Whether several problems can be solved at once."""
        return self.accelerate != "anderson" and self.stopping.mae is None
