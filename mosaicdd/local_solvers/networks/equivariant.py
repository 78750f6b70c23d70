"""Layers that treat the eight images of a square alike, compiled to plain matrices.

Channels come in eights, one for each symmetry: what a channel sees of a field, those beside it see of the field's
images. So a layer has an eighth of a matrix's weights, and as a matrix costs nothing more.

Shape letters: ``N`` nodes, ``D, E`` channels of each symmetry.
"""

import numpy as np
import torch

from mosaicdd.local_solvers.networks.symmetry import SquareSymmetry


class EquivariantLayers(torch.nn.Module):
    """Makes matrices of the weights that the symmetries of a square share.

    Parameters
    ----------
    inputs, outputs
        Nodes, ``(N, 2)``, that symmetries send to one another.
    """

    _inputs: torch.Tensor
    _outputs: torch.Tensor
    _relations: torch.Tensor

    def __init__(self, cells: int, inputs: np.ndarray, outputs: np.ndarray):
        super().__init__()
        matrices = SquareSymmetry(4 * cells).matrices.long().numpy()
        products = np.einsum("rij,skj->rsik", matrices, matrices)  # R S^T = R S^-1
        relations = [
            [int(np.flatnonzero((matrices == product).all(axis=(1, 2)))[0]) for product in row]
            for row in products
        ]
        for name, values in (
            ("_inputs", images(inputs, cells)),
            ("_outputs", images(outputs, cells)),
            ("_relations", relations),
        ):
            self.register_buffer(name, torch.as_tensor(values), persistent=False)

    def inlet(self, weights: torch.Tensor) -> torch.Tensor:
        """Return ``(N, 8 D)`` for weights ``(N, D)`` of the inputs."""
        return weights[self._inputs].transpose(0, 1).flatten(1)

    def hidden(self, blocks: torch.Tensor) -> torch.Tensor:
        """Return ``(8 D, 8 E)`` for weights ``(8, D, E)``."""
        return blocks[self._relations.T].transpose(1, 2).flatten(0, 1).flatten(1)

    def outlet(self, weights: torch.Tensor) -> torch.Tensor:
        """Return ``(8 D, N)`` for weights ``(N, D)`` of the outputs."""
        return weights[self._outputs].transpose(1, 2).flatten(0, 1)


def images(nodes: np.ndarray, cells: int) -> np.ndarray:
    """Return where each symmetry sends nodes, ``(8, N)``."""
    matrices = SquareSymmetry(4 * cells).matrices.long().numpy()
    centred = 2 * nodes - cells
    index = {tuple(node): i for i, node in enumerate(centred.tolist())}
    return np.array([[index[tuple(node)] for node in (centred @ r.T).tolist()] for r in matrices])
