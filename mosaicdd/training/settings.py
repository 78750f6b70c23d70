"""Settings of data generation and of training: frozen values, checked when they are made.

What a setting means and its default stand here once: the command line builds its options from the
fields. Nothing slow is imported, so that ``--help`` is fast.
"""

from dataclasses import dataclass, field
from typing import Any

from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.settings import check_settings, setting

OPTIMIZERS = ("adamw", "lamb", "muon", "soap")
LAPLACIANS = ("taylor", "autograd")
RESIDUALS = ("continuous", "discrete", "multilevel")
PRECISIONS = ("float32", "float64", "bf16", "tf32")
SHARDINGS = ("none", "zero1", "fsdp", "hybrid")
METHODS = ("amg", "direct")
NO_LIFTING = "none"


def _require_held_out(held_out: int, settings: Any, what: str) -> None:
    if not 0 < held_out < settings.samples:
        raise ValueError(
            f"{settings.samples} {what} with a validation fraction of {settings.validation:g} hold out "
            f"{held_out}; at least 1 must be held out and 1 must be left for training"
        )


@dataclass(frozen=True)
class GenerationSettings:
    """The settings of a dataset's generation.

    Parameters
    ----------
    subdomain
        The square, or cube, that the problems are solved on.
    fields
        Values of the equation's parameters by name; where there are none and the equation says how
        they are drawn, those of a family are, anew for every ``4 m`` samples.
    """

    pde: str = setting("laplace", "Equation to solve: a name, or your own as FILE.py:NAME.")
    subdomain: Subdomain = field(default_factory=Subdomain)
    samples: int = setting(20000, "Number of random problems.", least=2)
    windows: int = setting(
        2000, "Number of windows of larger solutions, for validation only.", least=1
    )
    seed: int = setting(0, "Seed of all random numbers.", least=0)
    validation: float = setting(0.1, "Fraction of the samples that training holds out.")
    length_scale: tuple[float, float] = setting(
        (0.03, 1.0),
        "Least and greatest length scale of the boundary data, a Gaussian process, in domain length.",
    )
    amplitude: tuple[float, float] = setting(
        (1.0, 1.0), "Least and greatest standard deviation of that process."
    )
    noise: float = setting(0.03, "Standard deviation of white noise on top of it.", least=0)
    method: str | None = setting(
        None,
        "pyAMG to a relative residual of 1e-10 (amg), or a sparse factorisation (direct). By default "
        "amg for one operator, direct where each is for few problems; for cubes direct, by sines.",
        METHODS,
    )
    fields: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(sorted(dict(self.fields).items())))
        check_settings(self)
        if not 0 < self.validation < 1:
            raise ValueError(f"the validation fraction must be in (0, 1), got {self.validation}")
        _require_held_out(round(self.samples * self.validation), self, "samples")
        if not 0 < self.length_scale[0] < self.length_scale[1]:
            raise ValueError(f"length scales must be 0 < least < greatest, got {self.length_scale}")
        if not 0 < self.amplitude[0] <= self.amplitude[1]:
            raise ValueError(f"amplitudes must be 0 < least <= greatest, got {self.amplitude}")

    @property
    def hyperparameters(self) -> dict[str, tuple[float, float]]:
        """Ranges of what is drawn for every problem: the amplitude only where it varies."""
        varied = {"amplitude": self.amplitude} if self.amplitude[0] < self.amplitude[1] else {}
        return {"length_scale": self.length_scale} | varied


@dataclass(frozen=True)
class TrainingSettings:
    """The settings of a training that decide its result. A run that is resumed must have the same."""

    epochs: int = setting(200, "Passes over the training samples.", least=1)
    batch_size: int = setting(256, "Samples per step, of all ranks together.", least=1)
    base_batch_size: int = setting(
        0,
        "Batch that the learning rate and the warm-up are for: the rate grows with the batch's square "
        "root, the warm-up with the batch itself, as in section 5.2 of the paper; 0 leaves both alone.",
        least=0,
    )
    labels: bool = setting(
        True,
        "Learn from solutions, or from boundary data (the solution at perimeter nodes) and the PDE "
        "loss alone.",
    )
    points: int = setting(0, "Data points per step, drawn among the nodes; 0 takes all.", least=0)
    optimizer: str = setting("soap", "Optimiser.", OPTIMIZERS)
    lr: float = setting(3e-3, "Greatest learning rate.")
    always_adapt: bool = setting(
        False, "LAMB: scale updates layer by layer without weight decay, too."
    )
    clip: float = setting(
        0.0, "Greatest global norm of the gradient (the paper: 1); 0 does not clip.", least=0
    )
    warmup: float = setting(0.01, "Fraction of the training over which the learning rate rises.")
    decay_exponent: float = setting(1.0, "Then it falls to zero as (1 - t) to this power.")
    pde_weight: float = setting(
        None,
        "Weight of the PDE loss; 0 leaves it out. By default 0 with labels, 1 without. Lengths are in "
        "half sides of the subdomain: (2 / size)^4, 256 for a side of 0.5, is weight 1 in domain lengths, "
        "as in the paper.",
        least=0,
    )
    collocation: int = setting(32, "Collocation points of the PDE loss per step.", least=1)
    laplacian: str = setting(
        "taylor",
        "Derivatives of the PDE loss: carried through the layers, or by double backward (the paper).",
        LAPLACIANS,
    )
    residual: str = setting(
        None,
        "PDE residual (continuous); or the stencil's on grid outputs (discrete); or its sum over all "
        "coarser grids (multilevel). By default continuous with labels, multilevel without.",
        RESIDUALS,
    )
    lifting: str = setting(
        "2",
        "Degree of the exact solutions that the lifting takes out; none takes out nothing, and leaves "
        "the boundary data at their own size, as the paper does.",
    )
    precision: str = setting(
        "float32", "Of the training; bf16 and tf32 multiply in fewer digits.", PRECISIONS
    )
    max_seconds: float = setting(
        0.0, "End training, with its schedule, within these seconds; 0: no limit.", least=0
    )
    validations: int = setting(40, "How often the validation errors are computed.", least=1)
    seed: int = setting(0, "Seed of weights and sample order.", least=0)

    def __post_init__(self) -> None:
        if self.pde_weight is None:
            object.__setattr__(self, "pde_weight", 0.0 if self.labels else 1.0)
        if self.residual is None:
            object.__setattr__(self, "residual", "continuous" if self.labels else "multilevel")
        check_settings(self)
        positive = {"the learning rate": self.lr, "decay_exponent": self.decay_exponent}
        for name, value in positive.items():
            if not 0 < value < float("inf"):
                raise ValueError(f"{name} must be positive, got {value}")
        if self.lifting != NO_LIFTING and not self.lifting.isdecimal():
            raise ValueError(f"lifting must be a degree from 0, or none, got {self.lifting}")
        if not 0 <= self.warmup < 1:
            raise ValueError(f"warmup must be a fraction in [0, 1), got {self.warmup}")
        if not self.labels and not self.pde_weight:
            raise ValueError("training without labels needs a PDE loss: set pde_weight above 0")
        if not self.scaled_warmup < 1:
            raise ValueError(
                f"a warm-up of {self.warmup:g} times {self.batch_size} / {self.base_batch_size} is "
                f"{self.scaled_warmup:g} of the training, it must be below 1; lower warmup"
            )

    @property
    def lifting_degree(self) -> int | None:
        """Degree of the lifting; None for no lifting."""
        return None if self.lifting == NO_LIFTING else int(self.lifting)

    @property
    def scaled_lr(self) -> float:
        """Greatest learning rate, scaled to the batch."""
        growth = self.batch_size / self.base_batch_size if self.base_batch_size else 1.0
        return self.lr * growth**0.5

    @property
    def scaled_warmup(self) -> float:
        """Fraction of the training over which the rate rises, scaled to the batch."""
        growth = self.batch_size / self.base_batch_size if self.base_batch_size else 1.0
        return self.warmup * growth


@dataclass(frozen=True)
class ExecutionSettings:
    """The distribution of a step's work over devices and memory.

    It changes time and memory, and results by rounding at most: a run may be resumed with others,
    only not with another sharding.
    """

    micro_batch: int = setting(
        0,
        "Samples per forward pass of a rank; 0: all on a GPU, on a processor as many as keep 32 MB "
        "(which is faster there).",
        least=0,
    )
    recompute: bool = setting(
        False,
        "Compute hidden layers again in the backward pass instead of keeping them, to save memory.",
    )
    bucket_cap_mb: float = setting(
        25.0, "Size of the buckets in which gradients are reduced, in MB."
    )
    sharding: str = setting(
        "none",
        "What ranks share out: nothing, the optimiser's state (zero1), weights and state (fsdp), "
        "or both within groups of ranks (hybrid).",
        SHARDINGS,
    )
    replicas: int = setting(1, "Number of groups of ranks, for hybrid sharding.", least=1)

    def __post_init__(self) -> None:
        check_settings(self)
        if not self.bucket_cap_mb > 0:
            raise ValueError(f"bucket_cap_mb must be positive, got {self.bucket_cap_mb}")

    def require_ranks(self, ranks: int, settings: TrainingSettings, samples: int) -> None:
        """Raise `ValueError` unless ranks can share a batch out, by this sharding and optimiser."""
        if (batch := min(settings.batch_size, samples)) < ranks:
            raise ValueError(
                f"a batch of {batch} samples cannot be shared out between {ranks} ranks; use a larger "
                "batch_size or fewer ranks"
            )
        if self.sharding == "none":
            return
        if ranks == 1:
            raise ValueError(
                f"sharding {self.sharding} shares memory out between ranks, there is 1; start "
                "several, as in mpiexec -n 2 mosaicdd train"
            )
        able = _SHARDABLE[self.sharding]
        if settings.optimizer not in able:
            raise ValueError(
                f"the optimiser {settings.optimizer} cannot work with sharding {self.sharding}; "
                f"those that can: {', '.join(able)}"
            )
        if self.sharding == "hybrid" and (ranks % self.replicas or ranks // self.replicas < 2):
            raise ValueError(
                f"hybrid sharding over {ranks} ranks with {self.replicas} replicas leaves "
                f"{ranks / self.replicas:g} ranks for each; it must be a whole number from 2"
            )


# SOAP and Muon need a whole matrix for its factors.
_SHARDABLE = {
    "zero1": ("adamw", "lamb", "soap"),
    "fsdp": ("adamw", "lamb"),
    "hybrid": ("adamw", "lamb"),
}
