"""How functions of tensors that solve are called: by names, and neither traced nor transformed by torch."""

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch.autograd.forward_ad import unpack_dual

from mosaicdd.torch_defaults import on_processor
from mosaicdd.unsupported import Unsupported

Call = TypeVar("Call", bound=Callable[..., torch.Tensor])


def untraced(call: Call) -> Call:
    """Let a method's calls be run as they are: a solve is no graph of torch's.

    `Unsupported` within transforms of torch.func, and of tensors that have tangents (torch.autograd.forward_ad).
    """

    @functools.wraps(call)
    def run(*arguments: Any, **named: Any) -> torch.Tensor:
        if torch._C._functorch.maybe_current_level() is not None:
            raise Unsupported(
                "torch.func transforms no solves: take torch.autograd's functions, as grad or functional.jvp, "
                "and give a batch as one more axis in front"
            )
        tensors = (of for of in named.values() if isinstance(of, torch.Tensor))
        if any(unpack_dual(of).tangent is not None for of in tensors):
            raise Unsupported(
                "solves are differentiated backwards, and forward_ad asks for tangents: take torch.autograd.functional.jvp, "
                "which makes them of two derivatives backwards"
            )
        # Imported by whoever compiles, and by nobody else: it takes a second.
        alone = torch.compiler.disable(call) if "torch._dynamo" in sys.modules else call
        with on_processor():
            return alone(*arguments, **named)

    return run  # type: ignore[return-value]


def require_names(unnamed: Sequence[object], wrt: Sequence[str]) -> None:
    """Raise `TypeError` for tensors that are given without a name."""
    if unnamed:
        raise TypeError(f"tensors are given by name, as solve({wrt[0]}=...); wrt: {', '.join(wrt)}")
