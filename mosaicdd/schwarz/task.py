"""What the parts of an iteration are planned for."""

import dataclasses
import math
from dataclasses import dataclass, field

from mosaicdd.lattice.block import Block
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.stopwatch import Stopwatch
from mosaicdd.tensors import Tensors


@dataclass(frozen=True)
class Task:
    """A block of a rank, and how so many problems are solved there at once."""

    ranks: Ranks
    block: Block
    # How the iteration works; of the rest, batches, device and precision count
    settings: SolveSettings
    problems: int = 1
    clock: Stopwatch = field(default_factory=Stopwatch)  # adds up where the time goes

    @property
    def tensors(self) -> Tensors:
        """Device and type of the tensors of the iteration."""
        return self.settings.tensors

    @property
    def largest(self) -> int:
        """Subdomains per call of the local solver, at most, of each problem."""
        most = self.settings.batch_subdomains // self.problems
        return max(1, min(most, math.prod(self.block.region_subdomains)))

    def on(self, block: Block) -> "Task":
        """Return the same on another block."""
        return dataclasses.replace(self, block=block)
