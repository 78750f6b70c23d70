"""A problem, or a march, as a function that jax differentiates: a call back to the one that torch does."""

import functools
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from mosaicdd.gradients.in_time import DifferentiableMarch
from mosaicdd.gradients.solve_function import Differentiable
from mosaicdd.settings import require_type
from mosaicdd.unsupported import Unsupported

_KEPT = 8  # calls, whose memory waits for the derivative

Named = dict[str, Any]


def in_jax(solve: Differentiable | DifferentiableMarch) -> Callable[..., Any]:
    """Return the same function of jax's arrays, with first derivatives backwards, also under ``jax.jit`` and ``jax.vmap``.

    Needs jax (``pip install 'mosaicdd[jax]'``), and one rank. The arrays are float64 where ``jax_enable_x64`` is set, else
    what is given and returned is rounded to float32.

    Parameters
    ----------
    solve
        Of a problem, or a march, by `differentiable`; it keeps the plan.

    Returns
    -------
    callable
        Of arrays by their names, of the shapes that ``solve`` takes; it returns what ``solve`` does: the solution at
        the nodes, ``(ny + 1, nx + 1)``, of a batch those of each member, of a march the fields that are kept. `ValueError` if a name is none of ``wrt``,
        or an array is of another shape.

    Raises
    ------
    ImportError
        If there is no jax.

    Examples
    --------
    >>> solve = m.in_jax(m.differentiable(problem, "a"))
    >>> jax.grad(lambda a: (solve(a=a) ** 2).sum())(a)
    """
    require_type(
        "solve", solve, Differentiable | DifferentiableMarch, "what differentiable returns"
    )
    try:
        import jax
    except ImportError as error:
        raise ImportError("jax is missing: pip install 'mosaicdd[jax]'") from error

    recorded = _Recorded(solve)

    def run(callback: Callable[..., Any], shapes: Any, *arguments: Any) -> Any:
        """Call back: at once where values are known, else when what is traced runs."""
        if not any(isinstance(v, jax.core.Tracer) for v in jax.tree_util.tree_leaves(arguments)):
            return jax.tree_util.tree_map(jax.numpy.asarray, callback(*arguments))
        alone = _in_one_line(callback)
        return jax.pure_callback(alone, shapes, *arguments, vmap_method="sequential")

    def called(named: Named, *, keep: bool) -> Any:
        dtype = jax.dtypes.canonicalize_dtype(np.float64)
        shape = jax.ShapeDtypeStruct(solve.shape_of(_like(named)), dtype)
        return run(lambda n: recorded.values(n, keep=keep).astype(dtype), shape, named)

    @jax.custom_jvp
    def slopes(named: Named, w: Any) -> Named:
        shapes = {name: jax.ShapeDtypeStruct(v.shape, v.dtype) for name, v in named.items()}
        return run(recorded.slopes, shapes, named, w)

    @slopes.defjvp
    def further(*_: Any) -> Any:
        raise Unsupported(
            "in jax there are first derivatives: take second ones by torch, of the function that in_jax was given"
        )

    solved, recording = (
        jax.custom_vjp(functools.partial(called, keep=keep)) for keep in (False, True)
    )
    for derived in (solved, recording):
        derived.defvjp(
            lambda named: (recording(named), named), lambda named, w: (slopes(named, w),)
        )

    def function(**named: Any) -> Any:
        arrays = {name: jax.numpy.asarray(value, float) for name, value in named.items()}
        solve.require(_like(arrays))
        try:
            return solved(arrays)
        except TypeError as error:
            if "jvp" not in str(error):
                raise
            raise Unsupported(
                "solves are differentiated backwards: take jax.grad, jax.vjp or jax.jacrev in the place of jvp and jacfwd"
            ) from None

    return function


def _like(named: Named) -> dict[str, torch.Tensor]:
    return {name: torch.empty(array.shape) for name, array in named.items()}


def _in_one_line(callback: Callable[..., Any]) -> Callable[..., Any]:
    """Let errors be without the calls that led to them, which jax would print."""

    def call(*arguments: Any) -> Any:
        failure: Exception
        try:
            return callback(*arguments)
        except Exception as error:  # noqa: BLE001 - raised again
            failure = error
        raise failure.with_traceback(None) from None

    return call


class _Recorded:
    """Torch's graphs of the last calls to be differentiated; of others it calls anew."""

    def __init__(self, solve: Differentiable | DifferentiableMarch):
        self._solve = solve
        self._records: deque[tuple[dict[str, torch.Tensor], torch.Tensor]] = deque(maxlen=_KEPT)

    def values(self, named: Named, *, keep: bool) -> np.ndarray:
        """Return the solution, and with ``keep`` record its graph."""
        tensors = {
            n: torch.tensor(np.array(v, float), requires_grad=keep) for n, v in named.items()
        }
        with torch.set_grad_enabled(keep):
            u = self._solve(**tensors)
        if keep:
            self._records.append((tensors, u))
        return u.detach().numpy()

    def slopes(self, named: Named, w: Any) -> dict[str, np.ndarray]:
        """Return the derivatives by what is named, for those by each value."""

        def fits(tensors: dict[str, torch.Tensor]) -> bool:
            return named.keys() == tensors.keys() and all(
                np.array_equal(v, tensors[n].detach().numpy()) for n, v in named.items()
            )

        if not any(fits(tensors) for tensors, _ in self._records):
            self.values(named, keep=True)
        number = next(n for n, (tensors, _) in enumerate(self._records) if fits(tensors))
        tensors, u = self._records[number]
        del self._records[number]
        force = torch.from_numpy(np.array(w, float))
        by = torch.autograd.grad(u, [*tensors.values()], force, materialize_grads=True)
        return {
            name: slope.numpy().astype(np.asarray(named[name]).dtype)
            for name, slope in zip(tensors, by, strict=True)
        }
