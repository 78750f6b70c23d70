"""How many samples go through the network at a time, on a processor.

Passes that keep a bounded number of bytes make the memory of a step independent of the batch, and
its time proportional: what one pass frees, the next one takes. glibc hands freed memory back to the
system where more than its thresholds lies idle, and every page that it asks for anew is a fault;
for large passes of the PDE loss they are a third of the time.
"""

import torch

from mosaicdd.training.kept_memory import PROBES
from mosaicdd.training.objective import Objective, Pass

_PASS_BYTES = 2**25


def samples_per_pass(objective: Objective, passes: list[Pass]) -> int:
    """Return how many samples a pass may have, so that they keep 32 MB for its backward pass.

    What is evaluated once for all samples of a pass does not count: more passes would not keep less.
    """
    if len(passes[0].g) < max(PROBES):
        return len(passes[0].g)
    largest = max(objective.kept(part).per_sample for part in passes)
    return max(1, int(_PASS_BYTES / largest))


def hold_freed_memory() -> None:
    """Let the C library keep what a pass frees.

    glibc takes the largest block freed so far as the size from which blocks come from the system one
    by one, and twice that as what may lie idle; 32 MB is the most that it learns from. The block is
    never touched, so this costs nothing, nor does it anything elsewhere.
    """
    torch.empty(_PASS_BYTES - 2**16, dtype=torch.uint8)
