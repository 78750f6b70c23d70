"""Settings of data generation: a frozen value, checked when it is made."""

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
