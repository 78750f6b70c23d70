"""What a training sets of torch's own state, and gives back: it belongs to the program around."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch's generators, of the processor and of the GPU that is used; put them back in the end.

    So is the precision of products in float32, which is the process's, too.
    """
    gpus = [device] if device is not None and device.type == "cuda" else []
    precision = torch.get_float32_matmul_precision()
    with torch.random.fork_rng(gpus):
        torch.default_generator.manual_seed(seed)
        for gpu in gpus:
            with torch.cuda.device(gpu):
                torch.cuda.manual_seed(seed)
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(precision)
