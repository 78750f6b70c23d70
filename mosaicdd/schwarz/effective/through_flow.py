"""What flows through the two faces of a network, and a judge that ends an iteration where both flows agree."""

from collections.abc import Callable

import numpy as np
import torch

from mosaicdd.lattice.axes import Slices, within
from mosaicdd.schwarz.effective.voxels import Voxels
from mosaicdd.schwarz.multigrid.judge import Judge
from mosaicdd.schwarz.multigrid.node_system import NodeSystem
from mosaicdd.schwarz.settings import StoppingRule

_AIM = 1e-3  # the relative residual at which flows are looked at first
_FURTHER = 0.2  # of the last residual, where they do not agree yet


class ThroughFlow:
    """The flows through the faces of a medium, of which the low one has the value 1 and the other 0.

    Parameters
    ----------
    own
        The voxels of this rank.
    there
        Which of them have an unknown; by default all.
    unit
        By which the conductances of the equations are divided.
    """

    def __init__(
        self,
        system: NodeSystem,
        voxels: Voxels,
        axis: int,
        own: Slices,
        there: np.ndarray | None,
        unit: float,
    ):
        self._ranks, self.unit = system.blocks.ranks, unit
        self._faces: list[tuple[torch.Tensor, torch.Tensor]] = []
        for face in voxels.faces(axis, own):
            k = voxels.half(axis, face)
            if there is not None:
                k *= there[within(face, own)]
            nodes = np.nonzero(k)
            whole = [n + part.start for n, part in zip(nodes, face, strict=True)]
            places = system.nodes.places(whole)
            amounts = (k[nodes].astype(np.float32) / np.float32(unit)).astype(float)
            self._faces.append((torch.from_numpy(places), torch.from_numpy(amounts)))

    def right_hand_side(self, system: NodeSystem) -> tuple[torch.Tensor, float]:
        """Return it, a vector, and its norm over all ranks."""
        b = system.vector()
        places, k = self._faces[0]
        b.view(-1)[places] += k
        (square,) = self._ranks.sum(np.array([float(k.square().sum())]))
        return b, float(np.sqrt(square))

    def __call__(self, x: torch.Tensor) -> tuple[float, float]:
        """Return what flows in and out, as the equations measure it; all ranks together."""
        (first, k_first), (last, k_last) = self._faces
        flat = x.view(-1)
        inflow, outflow = torch.dot(k_first, 1 - flat[first]), torch.dot(k_last, flat[last])
        into, out = self._ranks.sum(np.array([float(inflow), float(outflow)]))
        return float(into), float(out)


class FlowJudge(Judge):
    """Ends an iteration where what flows in is what flows out, to a relative tolerance."""

    def __init__(
        self,
        flow: ThroughFlow,
        rtol: float,
        max_iterations: int,
        system: NodeSystem,
        progress: Callable[[int, float], None] | None,
    ):
        rule = StoppingRule(_AIM, 0.0, max_iterations)

        def shown(iteration: int, update: float, size: float, mae: float) -> None:
            if progress is not None:
                progress(iteration, self.history.residual[-1])

        # Residuals of conjugate gradients rise now and then, while the energy of errors falls.
        patience = max_iterations
        super().__init__(rule, None, shown, None, lambda *_: None, system.size_here, patience)
        self._flow, self._rtol = flow, rtol

    def confirms(self, x: torch.Tensor) -> bool:
        """Say whether the flows agree; if not, aim at a smaller residual."""
        into, out = self._flow(x)
        if abs(into - out) <= self._rtol * max(into, out):
            return True
        self.go_on()
        return False

    def go_on(self) -> None:
        """Aim at a smaller residual."""
        self.aim = _FURTHER * min(self.aim, self.history.residual[-1])
