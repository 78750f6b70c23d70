"""Settings of data generation and of training: frozen values, checked when they are made."""

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


@dataclass(frozen=True)
class TrainingSettings:
    """How a network is trained.

    Parameters
    ----------
    epochs, batch_size
        Passes over the training samples, and samples per step.
    points
        Data points per step, drawn anew among the interior nodes; 0 takes all of them.
    optimizer, lr
        ``"adamw"`` or ``"soap"``, and its greatest learning rate.
    warmup
        Fraction of the training over which the learning rate rises; after it it falls linearly.
    pde_weight, collocation
        Weight of the PDE loss (0 leaves it out) and its number of random points per step.
    lifting_degree
        Of the lifting that the network is trained under.
    max_seconds
        Training and its schedule end within this time; 0 sets no limit.
    validations
        How often the validation errors are computed.
    seed
        Of the weights and of the order of the samples.
    """

    epochs: int = 100
    batch_size: int = 512
    points: int = 0
    optimizer: str = "soap"
    lr: float = 3e-3
    warmup: float = 0.01
    pde_weight: float = 0.0
    collocation: int = 64
    lifting_degree: int = 2
    max_seconds: float = 0.0
    validations: int = 40
    seed: int = 0

    def __post_init__(self):
        for name in ("epochs", "batch_size", "collocation", "validations"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("points", "pde_weight", "lifting_degree", "max_seconds", "seed"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be 0 or more, got {getattr(self, name)}")
        if not self.lr > 0:
            raise ValueError(f"the learning rate must be positive, got {self.lr}")
        if not 0 <= self.warmup < 1:
            raise ValueError(f"warmup must be a fraction in [0, 1), got {self.warmup}")
        if self.optimizer not in ("adamw", "soap"):
            raise ValueError(f"unknown optimizer {self.optimizer!r}; known: adamw, soap")
