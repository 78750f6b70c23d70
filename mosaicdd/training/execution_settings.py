"""Settings of how a training is carried out: a frozen value, checked when it is made.

They change time and memory, and results by rounding at most: a run may be resumed with others, only
not with another sharding.
"""

from dataclasses import dataclass

from mosaicdd.training.settings import TrainingSettings

SHARDINGS = ("none", "zero1", "fsdp", "hybrid")


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
