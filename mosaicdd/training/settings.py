"""Settings of data generation and of training: frozen values, checked when they are made.

`TrainingSettings` say what is computed: a run that is resumed must have the same.
`ExecutionSettings` say how: they change time and memory, results by rounding at most.
"""

from dataclasses import dataclass, field

from mosaicdd.lattice.subdomain import Subdomain


@dataclass(frozen=True)
class GenerationSettings:
    """How a dataset is drawn.

    Parameters
    ----------
    pde, subdomain
        Name of the equation, and the square it is solved on.
    samples, windows
        Number of random problems, and of windows of larger solutions (for validation only).
    seed
        Of all random numbers.
    validation
        Fraction of the samples that is held out.
    length_scale
        Least and greatest length scale of the Gaussian process, in units of domain length.
    noise
        Standard deviation of the white noise added to the process, whose own is 1.
    method
        ``"amg"`` (pyAMG, relative residual 1e-10) or ``"direct"`` (sparse factorisation).
    """

    pde: str = "laplace"
    subdomain: Subdomain = field(default_factory=Subdomain)
    samples: int = 20000
    windows: int = 2000
    seed: int = 0
    validation: float = 0.1
    length_scale: tuple[float, float] = (0.03, 1.0)
    noise: float = 0.03
    method: str = "amg"

    def __post_init__(self):
        if not 0 < self.validation < 1:
            raise ValueError(f"the validation fraction must be in (0, 1), got {self.validation}")
        held_out = round(self.samples * self.validation)
        if not 0 < held_out < self.samples:
            raise ValueError(
                f"{self.samples} samples with a validation fraction of {self.validation:g} hold out "
                f"{held_out}; at least 1 must be held out and 1 must be left for training"
            )
        if self.windows < 1 or self.seed < 0:
            raise ValueError(
                f"windows must be at least 1 and the seed at least 0, got {self.windows} and "
                f"{self.seed}"
            )
        if not 0 < self.length_scale[0] < self.length_scale[1]:
            raise ValueError(f"length scales must be 0 < least < greatest, got {self.length_scale}")
        if not self.noise >= 0:
            raise ValueError(f"the noise must be 0 or more, got {self.noise}")
        if self.method not in ("amg", "direct"):
            raise ValueError(f"unknown method {self.method!r}; known: amg, direct")


OPTIMIZERS = ("adamw", "lamb", "muon", "soap")
PRECISIONS = ("float32", "float64", "bf16", "tf32")
SHARDINGS = ("none", "zero1", "fsdp", "hybrid")


@dataclass(frozen=True)
class TrainingSettings:
    """How a network is trained.

    Parameters
    ----------
    epochs, batch_size
        Passes over the training samples, and samples per step, those of all ranks together.
    base_batch_size
        The batch that the learning rate and the warm-up were chosen for: the rate is multiplied by
        the square root of ``batch_size / base_batch_size``, the warm-up by the ratio itself
        (section 5.2 of the paper). 0 leaves both alone.
    labels
        Whether the data points are interior nodes with known solutions; without, they are perimeter
        nodes, where the boundary data are the solution, and the PDE loss does the rest.
    points
        Data points per step, drawn anew; 0 takes all of them.
    optimizer, lr
        One of `OPTIMIZERS`, and its greatest learning rate.
    always_adapt
        Whether LAMB scales its update layer by layer without weight decay, too.
    clip
        Greatest global norm of the gradient; 0 does not clip.
    warmup, decay_exponent
        Fraction of the training over which the learning rate rises; then it falls to zero as
        ``(1 - t)**decay_exponent``.
    pde_weight, collocation
        Weight of the PDE loss (0 leaves it out) and its number of random points per step.
    laplacian
        How the residual is differentiated: ``"taylor"`` or, as in the paper, ``"autograd"``.
    residual
        ``"continuous"``; ``"discrete"``, the equation's stencil on grid outputs; or
        ``"multilevel"``, the sum of that over all coarser grids, at all nodes of the grid.
    lifting_degree
        Of the lifting that the network is trained under.
    precision
        One of `PRECISIONS`; the last two multiply matrices in fewer digits.
    max_seconds
        Training and its schedule end within this time; 0 sets no limit.
    validations
        How often the validation errors are computed.
    seed
        Of the weights and of the order of the samples.
    """

    epochs: int = 100
    batch_size: int = 512
    base_batch_size: int = 0
    labels: bool = True
    points: int = 0
    optimizer: str = "soap"
    lr: float = 3e-3
    always_adapt: bool = False
    clip: float = 0.0
    warmup: float = 0.01
    decay_exponent: float = 1.0
    pde_weight: float = 0.0
    collocation: int = 64
    laplacian: str = "taylor"
    residual: str = "continuous"
    lifting_degree: int = 2
    precision: str = "float32"
    max_seconds: float = 0.0
    validations: int = 40
    seed: int = 0

    def __post_init__(self):
        for name in ("epochs", "batch_size", "collocation", "validations"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in _NOT_NEGATIVE:
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be 0 or more, got {getattr(self, name)}")
        for name in ("lr", "decay_exponent"):
            if not 0 < getattr(self, name) < float("inf"):
                what = "the learning rate" if name == "lr" else name
                raise ValueError(f"{what} must be positive, got {getattr(self, name)}")
        if not 0 <= self.warmup < 1:
            raise ValueError(f"warmup must be a fraction in [0, 1), got {self.warmup}")
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise ValueError(
                    f"unknown {name} {getattr(self, name)!r}; known: {', '.join(known)}"
                )
        if not self.labels and not self.pde_weight:
            raise ValueError("training without labels needs a PDE loss: set pde_weight above 0")
        if not self.scaled_warmup < 1:
            raise ValueError(
                f"a warm-up of {self.warmup:g} times {self.batch_size} / {self.base_batch_size} is "
                f"{self.scaled_warmup:g} of the training, it must be below 1; lower warmup"
            )

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


_NOT_NEGATIVE = (
    "base_batch_size",
    "points",
    "clip",
    "pde_weight",
    "lifting_degree",
    "max_seconds",
    "seed",
)
_CHOICES = {
    "optimizer": OPTIMIZERS,
    "laplacian": ("taylor", "autograd"),
    "residual": ("continuous", "discrete", "multilevel"),
    "precision": PRECISIONS,
}


@dataclass(frozen=True)
class ExecutionSettings:
    """How the work of a step is laid over devices and memory.

    Parameters
    ----------
    micro_batch
        Samples per forward pass of a rank, at most; 0 takes all of its samples at once on a GPU, and
        on a processor as many as keep 32 MB.
    recompute
        Whether hidden layers are computed again in the backward pass instead of kept
        (activation checkpointing).
    bucket_cap_mb
        Gradients are reduced in buckets of about this size, in MB.
    sharding
        What the ranks share out instead of each holding all: nothing, the optimiser's state
        (ZeRO-1), that and the weights (FSDP), or both within groups of ranks (hybrid).
    replicas
        Number of such groups, for ``"hybrid"``.
    """

    micro_batch: int = 0
    recompute: bool = False
    bucket_cap_mb: float = 25.0
    sharding: str = "none"
    replicas: int = 1

    def __post_init__(self):
        if self.micro_batch < 0 or self.replicas < 1 or not self.bucket_cap_mb > 0:
            raise ValueError(
                "micro_batch must be 0 or more, replicas at least 1 and bucket_cap_mb positive, "
                f"got {self.micro_batch}, {self.replicas} and {self.bucket_cap_mb}"
            )
        if self.sharding not in SHARDINGS:
            raise ValueError(f"unknown sharding {self.sharding!r}; known: {', '.join(SHARDINGS)}")

    def require_ranks(self, ranks: int, settings: TrainingSettings, samples: int) -> None:
        """Check that a number of ranks can share the work out.

        Raises
        ------
        ValueError
            If the batch is smaller than the ranks, they do not fit the sharding, or the optimiser
            cannot work on shards.
        """
        batch = min(settings.batch_size, samples)
        if batch < ranks:
            raise ValueError(
                f"a batch of {batch} samples cannot be shared out between {ranks} ranks; use a "
                "larger --batch-size or fewer ranks"
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
