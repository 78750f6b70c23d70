"""Torch's default type and device are the program's: what is computed here does not depend on them."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def on_processor() -> Iterator[None]:
    """Let new tensors be on the processor where no device is named; also as a decorator."""
    if torch.get_default_device().type == "cpu":  # a context would be asked at each call of torch
        yield
        return
    with torch.device("cpu"):
        yield


@contextmanager
def float32_on_processor() -> Iterator[None]:
    """Let new tensors be of float32 besides, as weights in files are; also as a decorator."""
    before = torch.get_default_dtype()
    if before != torch.float32:  # it is that of all threads
        torch.set_default_dtype(torch.float32)
    try:
        with on_processor():
            yield
    finally:
        if before != torch.float32:
            torch.set_default_dtype(before)
