"""Nodes of a box with couplings between them and an excess: the finest equations, or those of a level below."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch

from mosaicdd.schwarz.multigrid.colour_layout import Step
from mosaicdd.schwarz.multigrid.level_box import LevelBox
from mosaicdd.schwarz.multigrid.level_operator import LevelOperator


class Coupled(ABC):
    """What aggregates are made of.

    Attributes
    ----------
    blocks, nodes
        How the nodes lie over the ranks, and those of this rank.
    couplings
        By direction, ``(C, M)``, divided by `scale`; see `LevelOperator`.
    ones
        One at the nodes of the box with an unknown, zero elsewhere, copies included.
    scale
        By which an excess is to be divided.
    side, squares
        Nodes of the smallest squares that parts of conductors are looked for in, along an axis, and how many of these there
        are at most, by axes.
    widest
        Nodes of squares along an axis, by axes, from which on there are as many as a large grid has.
    """

    blocks: LevelBox
    couplings: Mapping[Step, torch.Tensor]
    ones: np.ndarray
    scale: float
    side: ClassVar[int]
    squares: ClassVar[Mapping[int, int]]
    widest: ClassVar[Mapping[int, int]]

    def __init__(self, blocks: LevelBox):
        self.blocks, self.nodes = blocks, blocks.nodes
        self.copies = blocks.exchange(self.nodes.room(torch.float64))

    @abstractmethod
    def sums_of_excess(self, labels: torch.Tensor, count: int) -> np.ndarray:
        """Return the sums of the excess by labels, from 0 on, of a vector of int32; below 0 none counts."""

    def vector(self, values: np.ndarray | None = None) -> torch.Tensor:
        """Return a vector of values at the nodes of the box, in float64; zeros by default."""
        new = self.nodes.new(torch.float64)
        return new if values is None else self.nodes.take(torch.from_numpy(values), new)

    def values(self, vector: torch.Tensor) -> np.ndarray:
        """Return a vector's values at the nodes of the box."""
        box = [high - low + 1 for low, high in zip(self.nodes.first, self.nodes.last, strict=True)]
        return self.nodes.give(vector, vector.new_empty(box)).cpu().numpy()


class CoupledLevel(Coupled):
    """A level of a cycle, whose excess is there."""

    scale = 1.0
    side = 4
    # In space, at 128 x 128 x 128, spheres, wires and plates take 18, 19 and 15 iterations by 2**12, 20, 22 and 17 by 2**11,
    # whose factors are a fifth, and 22, 25 and 18 by 2**9.
    squares: ClassVar = {1: 2**14, 2: 2**13, 3: 2**11}
    widest: ClassVar = {2: 12}

    def __init__(self, level: LevelOperator, blocks: LevelBox):
        super().__init__(blocks)
        self.couplings = level.couplings
        self.ones = (self.values(level.inverse) > 0).astype(np.int8)
        self._excess = level.excess

    def sums_of_excess(self, labels: torch.Tensor, count: int) -> np.ndarray:
        """Return the sums of the excess by labels."""
        places = labels.view(-1).clamp(min=-1).cpu().numpy() + 1
        return np.bincount(places, self._excess.view(-1).cpu().numpy(), 1 + count)[1:]
