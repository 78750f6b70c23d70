"""Central differences of what solves give, with the error that their step and their rounding leave."""

import numpy as np
import pytest


def central_difference(terms, step, rtol=1e-12):
    """Return the derivative at 0 of a sum of terms, as a number that is equal to all within its error.

    Of ``J(s) - J(-s)`` over ``2 s`` the truncation is ``s^2 / 6`` times the third derivative and higher
    orders: twice the step adds three times as much, half of what it adds bounds it. Each sum is off by what solves to
    ``rtol`` leave, in proportion to the sizes of its terms; the derivative itself may all but cancel, and says nothing.

    Parameters
    ----------
    terms
        A function of the number: array or tensor of the terms of the sum.
    step
        Of the number.
    rtol
        Relative residual at which the solves end.
    """

    def by(s):
        ahead, back = (np.asarray(terms(sign * s), dtype=float) for sign in (1, -1))
        return (ahead - back).sum() / (2 * s), max(abs(ahead).sum(), abs(back).sum())

    (once, size), (twice, _) = by(step), by(2 * step)
    return pytest.approx(once, rel=0, abs=abs(twice - once) / 2 + rtol * size / step)
