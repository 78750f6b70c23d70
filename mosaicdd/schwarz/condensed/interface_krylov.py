"""What the Krylov iterations on the interface operator share: preconditioner, rounds, judgement.

With ``M`` the stars and ``Q`` the coarse solve, the start is ``x + Q (b - S x)`` and the preconditioner
``z = M r + Q (r - S M r)`` (A-DEF2: Tang, Nabben, Vuik, Erlangga, 2009). ``P^T S`` is
kept, so an iteration applies ``S`` once, to ``z``. Rounding makes recurrences drift, so the end is
decided by a residual that is computed anew, unless the drift is too small to matter; where that is too
large the iteration goes on, or begins again from there, or ends where rounding alone is more than it may be.

Vectors are ``(n, L)``, one row per problem; ranks hold them complete in their regions.
"""

import abc
import math
import time

import numpy as np
import torch

from mosaicdd.lattice.interface import Interface
from mosaicdd.local_solvers.elements.condensed import NodeSource
from mosaicdd.parallel.halo import HaloExchange
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.parallel.watch import Watch
from mosaicdd.schwarz.condensed.condensed_system import CondensedSystem
from mosaicdd.schwarz.condensed.inner_products import InnerProducts, Pair
from mosaicdd.schwarz.condensed.vectors import Vectors
from mosaicdd.schwarz.settings import OUT_OF_ITERATIONS, StoppingRule
from mosaicdd.schwarz.stopping import History, Progress, judged

# Share of the tolerance that it may have drifted by, for the recurrence to go on: inclusions at 1024 x 1024
# (`scripts/bench_fields.py`) take 17 iterations, 18 when begun again.
_DRIFT = 0.5
# Iterations without a smaller residual before one counts as stagnated: of the first round, and of those
# that begin again where the residual had drifted, often as there is little but rounding left.
_PATIENCE = (50, 10, 10)
# Of a row of S times x, that elements lose: measured in media of contrast 1e6, where they lose most.
_ROUNDING = 12
# Rounding beside a residual. Below the first share rows are not even measured: they may be wrong by the
# contrast times as much. Below the second what was measured does not count: up to 200 times its share of the
# residual is its share of the energy.
_UNLIKELY, _NEGLIGIBLE = 1e-7, 1e-3
_LEAKS = 2  # of elements, and what as much of them does to the values inside
_FIELD = 0.75  # of the rounding of the field's values, of which there are ``s / 2`` times as many


class InterfaceKrylov(abc.ABC):
    """Solves ``S x = b`` for several problems side by side.

    Parameters
    ----------
    exchange
        Adds up what neighbouring ranks contribute to each other's interface.
    rule
        Whose ``rtol`` bounds the residual, relative to the right-hand side of the whole grid.

    Attributes
    ----------
    histories, statuses, sizes
        Of each problem; ``residual`` is the relative one. While iterating, sizes may be of earlier values.
    """

    def __init__(
        self,
        ranks: Ranks,
        system: CondensedSystem,
        vectors: Vectors,
        exchange: HaloExchange,
        rule: StoppingRule,
        *,
        progress: Progress | None = None,
        watch: Watch | None = None,
    ):
        self._system, self._exchange, self._rule = system, exchange, rule
        self._progress, self._watch = progress, watch or Watch()
        self._vectors, problems = vectors, vectors.problems
        self._inner = InnerProducts(ranks, vectors, system.inside)
        self._z, self._swept, self._spare = (vectors.new() for _ in range(3))
        self._unknowns = system.unknowns
        self._begun = time.perf_counter()
        self.histories = [History() for _ in range(problems)]
        self.statuses: list[str | None] = [None] * problems
        self.sizes = np.zeros(problems)
        self._hidden = np.zeros(problems)  # by rounding: a relative residual
        self._aims, self._patience = np.full(problems, rule.rtol), 0  # of the recurrences
        # Whose residual is computed anew by the way.
        self._renewed = np.zeros(problems, dtype=bool)

    @property
    def ends(self) -> list[str]:
        """How the problems ended; all of them must have."""
        return [status for status in self.statuses if status is not None]

    @property
    def residuals(self) -> np.ndarray:
        """The relative residuals now, ``(n,)``."""
        return np.array([history.residual[-1] for history in self.histories])

    def __call__(
        self, v: Interface, b: torch.Tensor, norms: np.ndarray
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Solve, from an interface with its values on the edge of the domain.

        Parameters
        ----------
        v
            Becomes the result, both copies of each lattice node alike.
        norms
            Of the right-hand sides of the whole grid, ``(n,)``.

        Returns
        -------
        Tensor, Tensor
            The result ``x`` as a vector; ``b - S x``.
        """
        self._norms = np.where(norms > 0, norms, 1.0)
        coarse, x = self._system.coarse, self._vectors.of(v)
        r, begun = self._vectors.new(), None
        for self._patience in _PATIENCE:
            rest = r
            if begun is None and not x.any():  # as most solves begin
                rest = b
            else:
                self._residual(b, x, out=r)
            coarse.prolong(coarse.solve(rest), out=x)
            self._residual(b, x, out=r)
            self._iterate(x, b, r)
            left = self.residuals
            if begun is not None:
                for i in np.flatnonzero(~(left <= begun[2])):  # of rounding: as it was
                    x[i], r[i] = begun[0][i], begun[1][i]
                    self.histories[i].residual[-1] = float(begun[2][i])
            if all(self.statuses):
                break
            begun = x.clone(), r.clone(), left
        self.statuses = [status or "stagnated" for status in self.statuses]
        v.flat.view(len(x), -1).copy_(x)
        v.match_copies()
        return x, r

    def right_hand_side(self, source: NodeSource | None) -> torch.Tensor:
        """Return sources on the lines with what those inside the elements add to them, a vector."""
        b = self._vectors.new()
        if source is None:
            return b.zero_()
        return self._system.right_hand_side(source, self._vectors.room_of(self._z), out=b)

    def _settled(self, x: torch.Tensor, b: torch.Tensor, r: torch.Tensor) -> bool:
        """Compare recurrences with residuals, when all problems have ended; say whether to leave.

        Where a residual has drifted by less than is allowed for, its recurrence goes on to a smaller
        one; by more, the iteration begins again. Where it was computed anew by the way, the drift is
        the rounding of the result, which only ends. Drifts were measured to be 0.03 to 0.09 of `_rounding`,
        whatever the medium: where all of that does not matter, there is nothing to compare.
        """
        true, rtol, drifted = self._z, self._rule.rtol, False
        products = torch.cat(
            [self._inner.here(self._counted(self._rounding(x))), self._inner.squares(x)]
        )
        totals, _ = self._inner.over_ranks(products)
        self._hidden = np.sqrt(totals[0]) / self._norms
        self.sizes = np.sqrt(totals[1] / self._unknowns)
        converged = set(self.statuses) == {"converged_rtol"}
        if converged and (self.residuals + self._hidden <= rtol).all():
            return True
        self._residual(b, x, out=true)
        r -= true
        residuals, drifts = (
            np.sqrt(self._inner(self._counted(true), self._counted(r))) / self._norms
        )
        for i, (residual, drift) in enumerate(zip(residuals, drifts, strict=True)):
            self.histories[i].residual[-1] = float(residual)
            if self.statuses[i] == "converged_rtol" and not residual <= rtol:
                self.statuses[i] = "stagnated" if self._renewed[i] and drift >= rtol else None
                self._aims[i] = math.sqrt(max(rtol**2 - drift**2, 0.0))
                drifted |= not self._renewed[i] and drift > _DRIFT * rtol
        if drifted:
            self._aims[:] = rtol
        elif not all(self.statuses):
            r += true
            return False
        r.copy_(true)
        return True

    def _residual(self, b: torch.Tensor, x: torch.Tensor, out: torch.Tensor) -> None:
        """Write ``b - S x``."""
        torch.sub(b, self._system.operator(x, out=self._swept), out=out)

    def correct(self, r: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ``z = M r + Q (r - S M r)`` and ``S z``; one exchange and one collective.

        Both are work vectors, that the next call writes to.
        """
        z = self.correction(r)
        return z, self._system.operator(z, out=self._swept)

    def correction(self, r: torch.Tensor) -> torch.Tensor:
        """Return ``z`` alone."""
        coarse, z = self._system.coarse, self._z
        self._system.stars(r, out=z, room=self._swept, norms=self._norms)
        self._exchange.add(self._vectors.lines(z))
        return coarse.prolong(coarse.solve(r, z), out=z)

    def rms(self, x: torch.Tensor) -> np.ndarray:
        """Return the root mean squares of vectors over the unknowns of all ranks, ``(n,)``."""
        (squares,), _ = self._inner.over_ranks(self._inner.squares(x))
        return np.sqrt(squares / self._unknowns)

    def errors(self, x: torch.Tensor, r: torch.Tensor) -> tuple[torch.Tensor, np.ndarray | None]:
        """Estimate the errors of results ``x`` from their residuals ``r``, and from rounding; ``r`` is lost.

        A result is never better than the numbers of ``S`` and its own, see `_lost`: that counts as ``r`` does.

        Returns
        -------
        Tensor, ndarray or None
            The errors' absolute values on the lines, ``(n, L)``, a work vector; bounds of their energy norms
            ``(n,)``, where there are.
        """
        lost, steep = None, self._system.steep
        if steep or (self._hidden > _UNLIKELY * self.residuals).any():
            lost = self._lost(x)
            left, hidden = self._inner(self._counted(r), self._counted(lost))
            if not (steep or (hidden > _NEGLIGIBLE**2 * left).any()):
                lost = None
        return self._errors_of(r, lost)

    def _counted(self, r: torch.Tensor) -> Pair:
        """Return the factors of what a residual's squares count in its norm."""
        counts = self._system.counts
        return r, r if counts is None else r * counts

    def _rounding(self, x: torch.Tensor) -> torch.Tensor:
        """Return how large the residual's rounding may be, ``(n, L)``, a work vector."""
        rounding = self._system.diagonal * (_ROUNDING * torch.finfo(x.dtype).eps)
        return torch.mul(rounding, x, out=self._swept)

    def _lost(self, x: torch.Tensor) -> torch.Tensor:
        """Return the residual that rounding hides, ``(n, L)``, a work vector.

        Most of it is not made by ``S x``, so no other way to compute that would show it: the elimination
        has rounded ``S``. Between nodes of large conductances values hardly differ, so what that does is what
        it does to a constant, which is measured: rows leak. The rest is at random: what the field's
        values lose as they are rounded.
        """
        system, s = self._system, self._vectors.block.lattice.spacing
        random = _FIELD * math.sqrt(s) * torch.finfo(x.dtype).eps * system.diagonal * system.signs
        return torch.mul(_LEAKS * system.leaks + random, x, out=self._swept)

    @abc.abstractmethod
    def _errors_of(
        self, r: torch.Tensor, lost: torch.Tensor | None
    ) -> tuple[torch.Tensor, np.ndarray | None]:
        """Estimate the errors that residuals leave, and what rounding hides of these, as `errors`.

        Parameters
        ----------
        lost
            `_lost`, the work vector; None where it is negligible.
        """

    @abc.abstractmethod
    def _iterate(self, x: torch.Tensor, b: torch.Tensor, r: torch.Tensor) -> None:
        """Iterate until all problems have ended and are `_settled`; ``x`` and ``r`` are overwritten."""

    @property
    def _running(self) -> np.ndarray:
        """Which problems have not ended, ``(n,)``."""
        return np.array([status is None for status in self.statuses])

    def _judge(
        self,
        x: torch.Tensor,
        products: torch.Tensor,
        alpha: np.ndarray,
        more: torch.Tensor | None = None,
    ) -> bool:
        """Enter an iteration, which has added ``alpha p``; say whether it was the last.

        Parameters
        ----------
        products
            The squares of ``p``, and of the residual as they count, over the owned nodes, ``(2, n)``; and of
            the values, where they have changed.
        more
            What is still to be added to ``x``.
        """
        running = np.flatnonzero(self._running)
        totals, calls = self._inner.over_ranks(products, self._watch.calls())
        updates = np.abs(alpha) * np.sqrt(totals[0] / self._unknowns)
        residuals = np.sqrt(totals[1]) / self._norms
        if len(totals) > 2:
            self.sizes = np.sqrt(totals[2] / self._unknowns)
        for i in running.tolist():
            self._enter(i, float(updates[i]), float(residuals[i]))
        self._report(running, updates)
        self._answer(calls > 0, x, more)
        return all(self.statuses)

    def _enter(self, i: int, update: float, residual: float) -> None:
        """Enter an iteration of a problem, and judge it."""
        history, rule = self.histories[i], self._rule
        history.update.append(update)
        history.residual.append(residual)
        history.mae.append(math.nan)
        history.seconds.append(time.perf_counter() - self._begun)
        self.statuses[i] = judged(history, rule, self._aims[i], self._patience)

    def _report(self, running: np.ndarray, updates: np.ndarray) -> None:
        if self._progress is not None:
            i = int(max(running, key=lambda i: self.histories[i].residual[-1]))
            count = len(self.histories[i].update)
            self._progress(count, float(updates[i]), float(self.sizes[i]), math.nan)

    def _answer(self, called: np.ndarray, x: torch.Tensor, more: torch.Tensor | None) -> None:
        """Keep a checkpoint, and stop, if any rank was called to; or there are no iterations left."""
        interrupted, due = called
        ended = OUT_OF_ITERATIONS in self.statuses
        if self._watch.save is not None and (interrupted or due or ended):
            now = self._vectors.interface(x if more is None else x + more)
            self._watch.save(now, self.histories[0])
            self._watch.saved()
        if interrupted:
            self.statuses = [status or "interrupted" for status in self.statuses]
