"""How far an iteration is on its way, on a logarithmic scale."""

import math

from mosaicdd.cli.show import Show
from mosaicdd.schwarz.settings import StoppingRule


class IterationProgress:
    """Turns the measurements of a `Monitor` into a fraction and a remark.

    Parameters
    ----------
    rule
        Which says where the iteration is to end.
    show
        What shows them.
    """

    def __init__(self, rule: StoppingRule, show: Show):
        self._rule = rule
        self._show = show
        self._first = 0.0

    def __call__(self, iteration: int, update: float, size: float, mae: float) -> None:
        """Show an iteration."""
        note = f"iteration {iteration}, update {update:.1e}"
        now, aim = update, max(self._rule.rtol * size, self._rule.atol)
        if self._rule.mae is not None:
            note += f", MAE {mae:.1e}"
            now, aim = mae, self._rule.mae
        if 0 < aim < now < math.inf:
            self._first = max(self._first, now)
            self._show(1 - math.log(now / aim) / math.log(self._first / aim), note)
