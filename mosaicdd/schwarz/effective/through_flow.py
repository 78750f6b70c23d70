"""What flows through the two faces of a network, and a judge that ends an iteration where both flows agree."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from mosaicdd.lattice.axes import Slices, within
from mosaicdd.schwarz.multigrid.judge import Judge
from mosaicdd.schwarz.multigrid.node_system import NodeSystem
from mosaicdd.schwarz.settings import StoppingRule

_AIM = 1e-3  # the relative residual at which flows are looked at first
_FURTHER = (
    0.05,
    0.5,
)  # of the last residual, where they do not agree yet; they come closer as that falls


class ThroughFlow:
    """The flows through the faces of a medium, of which the low one has the value 1 and the other 0.

    Parameters
    ----------
    faces
        The voxels of this rank at the low face and at the high one.
    held, part
        Conductances from voxels to the faces, in the equations; of a part of the medium.
    """

    def __init__(self, system: NodeSystem, faces: Sequence[Slices], held: np.ndarray, part: Slices):
        self._ranks = system.blocks.ranks
        self._faces: list[tuple[torch.Tensor, torch.Tensor]] = []
        both = faces[0] == faces[1]  # a single layer, which leads to each by half of what it has
        for face in faces:
            k = held[within(face, part)].astype(float) / (1 + both)
            nodes = np.nonzero(k)
            places = system.nodes.places([n + p.start for n, p in zip(nodes, face, strict=True)])
            self._faces.append((places, torch.from_numpy(k[nodes]).to(places.device)))

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
        apart, enough = abs(into - out), self._rtol * max(into, out)
        if apart <= enough:
            return True
        self.go_on(enough / apart)
        return False

    def go_on(self, factor: float) -> None:
        """Aim at a smaller residual, so many times the last one as far as that is sensible."""
        least, most = _FURTHER
        self.aim = min(max(factor, least), most) * self.history.residual[-1]
