"""A problem as a function that jax differentiates: a call back to the one that torch does."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from mosaicdd.gradients.solve_function import Differentiable
from mosaicdd.unsupported import Unsupported

Named = dict[str, Any]


def in_jax(solve: Differentiable) -> Callable[..., Any]:
    """Return the same function of jax's arrays, with first derivatives backwards, also under ``jax.jit``.

    Needs jax (``pip install 'mosaicdd[jax]'``), and one rank. The arrays are float64 where ``jax_enable_x64`` is set, else
    what is given and returned is rounded to float32.

    Parameters
    ----------
    solve
        Of a problem, by `differentiable`; it keeps the plan.

    Returns
    -------
    callable
        Of arrays by their names, of the shapes that ``solve`` takes; it returns the solution at the nodes, ``(ny + 1,
        nx + 1)``. `ValueError` if a name is none of ``wrt``, or an array is of another shape.

    Raises
    ------
    ImportError
        If there is no jax.
    Unsupported
        If ``solve`` is of a march.

    Examples
    --------
    >>> solve = m.in_jax(m.differentiable(problem, "a"))
    >>> jax.grad(lambda a: (solve(a=a) ** 2).sum())(a)
    """
    import jax

    if not isinstance(solve, Differentiable):
        raise Unsupported("in jax there are gradients of single solves; of marches torch has them")

    def values_of(named: Named) -> Any:
        dtype = jax.dtypes.canonicalize_dtype(np.float64)
        shape = jax.ShapeDtypeStruct(solve.nodes, dtype)
        return jax.pure_callback(
            lambda n: solve.solved((*n,), _tensors(n)).numpy().astype(dtype), shape, named
        )

    def slopes_of(kept: tuple[Named, Any], w: Any) -> tuple[Named]:
        named, u = kept

        def slopes(n: Named, u: Any, w: Any) -> Named:
            at, force = _tensors({"u": u, "w": w})
            _, by = solve.slopes((*n,), _tensors(n), at, force, (*n,))
            return {name: by[name].numpy().astype(named[name].dtype) for name in n}

        shapes = {name: jax.ShapeDtypeStruct(v.shape, v.dtype) for name, v in named.items()}
        return (jax.pure_callback(slopes, shapes, named, u, w),)

    def forwards(named: Named) -> tuple[Any, tuple[Named, Any]]:
        u = values_of(named)
        return u, (named, u)

    solved = jax.custom_vjp(values_of)
    solved.defvjp(forwards, slopes_of)

    def function(**named: Any) -> Any:
        arrays = {name: jax.numpy.asarray(value, float) for name, value in named.items()}
        solve.require({name: torch.empty(array.shape) for name, array in arrays.items()})
        u = solved(arrays)
        reported = solve.reported
        return u if reported is None else jax.numpy.where(reported.numpy(), u, np.nan)

    return function


def _tensors(named: Named) -> list[torch.Tensor]:
    return [torch.from_numpy(np.array(value, float)) for value in named.values()]
