"""Settings of a training: a frozen value, checked when it is made.

They say what is computed: a run that is resumed must have the same.
"""

from dataclasses import dataclass

OPTIMIZERS = ("adamw", "lamb", "muon", "soap")
PRECISIONS = ("float32", "float64", "bf16", "tf32")


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
    collocation: int = 32
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
