"""The error of a result, known without the truth.

One two-level iteration ``M`` with the *exact* local solver, from the result ``v``, costs one sweep.
It contracts the distance to the discrete solution ``u`` to a fraction ``rho``, so its update is
``(I - G) (u - v)`` and the error at most ``1 / (1 - rho)`` times as large. This sees everything that
separates ``v`` from ``u`` on the lattice lines: iterations that were not done, and the network's own
error. What is wrong between the lines comes on top (`EdgeError`).
"""

from dataclasses import dataclass

import torch

from mosaicdd.lattice.block import Slices
from mosaicdd.lattice.interface import Interface
from mosaicdd.schwarz.edge_error import EdgeError
from mosaicdd.schwarz.iteration import Iteration
from mosaicdd.schwarz.stopping import Monitor


@dataclass(frozen=True)
class ErrorEstimate:
    """An estimated distance to the discrete solution.

    Parameters
    ----------
    rms
        Root mean square over the domain.
    interface
        Its part that is seen on the interface; the rest is of the fill along the edge.
    nodes
        Absolute values at this rank's owned lattice nodes; ``place`` says where these belong among
        all lattice nodes, ``(K_y + 1, K_x + 1)``.
    """

    rms: float
    interface: float
    nodes: torch.Tensor
    place: Slices


def estimate_errors(
    exact_iteration: Iteration,
    v: Interface,
    monitor: Monitor,
    edge_error: EdgeError,
    safety: float,
) -> list[ErrorEstimate]:
    """Estimate the error of each problem by one two-level iteration with the exact local solver.

    Parameters
    ----------
    safety
        ``1 / (1 - rho)`` of that iteration.
    """
    better = v.like_boundary()
    exact_iteration(v, better)
    on_interface = safety * monitor.distance(better, v)
    along_edge = edge_error(v)
    nodes = safety * (better.nodes() - v.nodes()).abs()
    place = tuple(map(slice, v.block.start, v.block.stop))
    return [
        ErrorEstimate(
            rms=float(on_interface[i] + along_edge[i]),
            interface=float(on_interface[i]),
            nodes=nodes[i],
            place=place,
        )
        for i in range(v.problems)
    ]
