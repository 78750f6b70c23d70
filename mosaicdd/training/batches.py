"""Which samples and points a step uses.

All random choices are functions of the seed and the number of the step, and the same on every
rank: a run that is resumed, or that runs on another number of ranks, makes the same ones.
"""

import numpy as np
import torch

_ORDER, _POINTS = 0, 1  # the two families of random numbers


class Batches:
    """The global batches of a training.

    Parameters
    ----------
    samples, batch_size
        Number of training samples, and of those in a batch; a larger batch becomes all samples.
    seed
        Of all choices.
    """

    def __init__(self, samples: int, batch_size: int, seed: int):
        self.samples = samples
        self.size = min(batch_size, samples)
        self.per_epoch = samples // self.size
        self._seed = seed
        self._epoch = -1
        self._order = torch.empty(0, dtype=torch.long)

    def indices(self, step: int) -> torch.Tensor:
        """Return the samples of a step, ``(batch_size,)``; an epoch has each at most once."""
        epoch, position = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            generator = self._generator(_ORDER, epoch)
            self._order = torch.randperm(self.samples, generator=generator)
            self._epoch = epoch
        return self._order[position * self.size :][: self.size]

    def generator(self, step: int) -> torch.Generator:
        """Return the source of the random points of a step."""
        return self._generator(_POINTS, step)

    def _generator(self, family: int, number: int) -> torch.Generator:
        state = np.random.SeedSequence([self._seed, family, number]).generate_state(1, np.uint64)
        return torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))
