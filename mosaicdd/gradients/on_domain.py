"""The equations in one domain as they are differentiated, planned where they are first needed."""

import functools

from mosaicdd.gradients.in_strips import InStrips
from mosaicdd.gradients.lagrangian import Lagrangian
from mosaicdd.gradients.nonlinear import lagrangian_of
from mosaicdd.gradients.parameters import Parameters


class OnDomain:
    """The equations in one domain, with an adjoint: of all nodes at once, as second derivatives need them, and in strips."""

    def __init__(self, parameters: Parameters):
        self.parameters = parameters

    @functools.cached_property
    def lagrangian(self) -> Lagrangian:
        """That of all nodes at once."""
        return lagrangian_of(self.parameters)(self.parameters, *[self.parameters.whole] * 2)

    @functools.cached_property
    def strips(self) -> InStrips:
        """The same, some rows at a time."""
        return InStrips(self.parameters, self.parameters.whole)
