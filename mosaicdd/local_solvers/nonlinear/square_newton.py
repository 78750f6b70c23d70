r"""Newton's method in many squares at once, for equations that are not linear.

$J(u) \delta = -F(u)$ is solved by conjugate gradients, preconditioned by the inverse of $a (-\Delta) + r$, where
$a$ and $r$ are the means of the derivative's diffusion and reaction over the square: products with a small matrix of
sines. Residuals are in float64, the steps in float32. Where a step does not lower a square's residual, half of
it is tried, and so on.

Shape letters: ``B`` squares, ``m`` cells a side, ``n = m - 1`` inner nodes a side.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from mosaicdd.problems.operators.nonlinear import Nonlinear
from mosaicdd.problems.operators.patch import Offset, Patch, beside, is_number, offsets

Fields = Mapping[str, torch.Tensor]
"""By name: numbers, ``()`` or ``(B, 1, 1)``, or node values of squares, ``(B, m + 1, m + 1)``."""

_STEPS, _HALVINGS = 30, 12  # at most, before a square counts as one that does not converge
_FIRST, _LINEAR = 3e-2, 1e-3  # relative residuals of the first step, and of those after it
_MOST = 60  # iterations of conjugate gradients
_RELAXATIONS, _APART = 10, 4  # and cells between the nodes whose derivatives make a mean
BATCH = 32  # squares of 32 cells whose vectors stay in the cache


class Means(NamedTuple):
    """Numbers that stand for the derivative all over each square, ``(B,)`` of float32: ``-y d^2/dy^2 - x d^2/dx^2 + reaction``."""

    y: torch.Tensor
    x: torch.Tensor
    reaction: torch.Tensor


Partials = list[tuple[Offset, torch.Tensor]]
"""Derivatives of residuals by the values beside their nodes, ``(B, n, n)`` of float32."""


class SquareNewton:
    """The discrete equation, self-adjoint, in squares of so many cells, with values given on their perimeters."""

    def __init__(self, operator: Nonlinear, cells: int, spacing: float, device: torch.device):
        self.operator, self.cells, self.spacing = operator, cells, spacing
        k = np.arange(1, cells)
        sines = np.sqrt(2 / cells) * np.sin(np.pi * np.outer(k, k) / cells)
        waves = 2 - 2 * np.cos(np.pi * k / cells)
        self.sines = torch.from_numpy(sines).to(device)
        self.waves = torch.from_numpy(waves[:, None] + waves).to(device)
        self._rounded = (
            self.sines.float(),
            self.waves.float(),
            torch.from_numpy(waves).float().to(device),
        )

    def linear(self, u: torch.Tensor, f: torch.Tensor | None, reaction: torch.Tensor) -> None:
        """Write the solution of ``-lap u + reaction u = f`` inside of ``u (B, m + 1, m + 1)``, with its perimeters.

        There is ``f (B, n, n)``, or none, and a reaction ``(B,)`` or ``()``.
        """
        inner = u[:, 1:-1, 1:-1]
        inner.zero_()
        rhs = u[:, 2:, 1:-1] + u[:, :-2, 1:-1] + u[:, 1:-1, 2:] + u[:, 1:-1, :-2]
        if f is not None:
            rhs += self.spacing**2 * f
        inverse = 1.0 / (self.waves + self.spacing**2 * reaction.reshape(-1, 1, 1))
        inner.copy_(_transformed(rhs, self.sines, inverse))

    def solve(
        self, u: torch.Tensor, f: torch.Tensor | None, fields: Fields, tolerance: float = 1e-6
    ) -> torch.Tensor:
        """Solve, in place; return how far from convergence each square is, ``(B,)``.

        That is zero where it has converged, else the last step, relative to the square's largest value.

        Parameters
        ----------
        u
            Perimeters, and a start inside, ``(B, m + 1, m + 1)`` of float64.
        f
            ``(B, n, n)``.
        tolerance
            Of a square's last step, relative to its largest value; the error is a thousandth of that.
        """
        force = None if f is None else self.spacing**2 * f
        patches = self.patches(fields)
        inner = u[:, 1:-1, 1:-1]
        r = self._residual(u, force, patches)
        norm = r.square().sum(dim=(1, 2))
        size = u.abs().amax(dim=(1, 2)).clamp(min=1e-300)
        done, change = norm == 0, torch.zeros_like(norm)
        for number in range(_STEPS):
            if done.all():
                break
            partials = self.derivative(u, patches)
            rtol = _LINEAR if number else _FIRST
            step = self.solve_linear(partials, -r.float(), rtol).double()
            step[done] = 0.0  # so that no square depends on those beside it
            change = step.abs().amax(dim=(1, 2))
            if number:
                done |= change <= tolerance * size
            length = torch.ones_like(norm)
            start = inner.clone()
            for _ in range(_HALVINGS):
                torch.addcmul(start, length[:, None, None], step, out=inner)
                tried = self._residual(u, force, patches)
                after = tried.square().sum(dim=(1, 2))
                worse = ~((after < norm) | done)
                if not worse.any():
                    break
                length = torch.where(worse, length / 2, length)
            r, norm = tried, after
        return torch.where(done, 0.0, change / size)

    def relax(
        self,
        u: torch.Tensor,
        f: torch.Tensor | None,
        fields: Fields,
        means: Means,
        tolerance: float,
    ) -> torch.Tensor:
        """Solve in place with the derivative's means instead of it, in float32; return what has converged.

        Steps are accelerated by the one before (Anderson, 1965). For parameters see `solve`; a step
        leaves about a tenth of itself.
        """
        force = None if f is None else (self.spacing**2 * f).float()
        patches = {name: patch.float() for name, patch in self.patches(fields).items()}
        inverse, sines = self._inverse_of_means(means), self._rounded[0]
        inner, size = u[:, 1:-1, 1:-1], u.abs().amax(dim=(1, 2))
        step = change = torch.zeros_like(inner, dtype=torch.float32)
        done = torch.zeros(len(u), dtype=torch.bool, device=u.device)
        for number in range(_RELAXATIONS):
            before = step
            step = _transformed(self._residual(u.float(), force, patches), sines, inverse).neg_()
            if number:
                turned = step - before
                share = _dot(turned, step) / _dot(turned, turned).clamp(min=1e-30)
                change = step - share[:, None, None] * (change + turned)
            else:
                change = step
            if done.any():  # none depends on those beside it
                change = torch.where(done[:, None, None], 0.0, change)
            inner += change
            done |= step.abs().amax(dim=(1, 2)) <= tolerance * size
            if done.all():
                break
        return done

    def means(self, u: torch.Tensor, fields: Fields) -> Means:
        """Return the means of the derivative over some nodes of each square."""
        apart = min(_APART, self.cells // 2)
        gradients = self._gradients(_thinned(u, apart).values, _thinned_fields(fields, apart))
        zero = torch.zeros(len(u), device=u.device)
        centre, up, down, left, right, *corners = (
            zero if gradient is None else gradient.mean(dim=(1, 2)) for gradient in gradients
        )
        across = sum(corners, zero)
        y, x = (-(along + across) / 2 for along in (up + down, left + right))
        return Means(y, x, (centre - 2 * (y + x) - across).clamp(min=0.0))

    def centre_lines(self, r: torch.Tensor, means: Means) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what the inverse of means makes of values ``(B, n, n)``, on the row and the column through the centres."""
        sines = self._rounded[0]
        waves = _waves(r, sines) * self._inverse_of_means(means)
        middle = sines[self.cells // 2 - 1]
        return (waves @ middle) @ sines, (middle @ waves) @ sines

    def _inverse_of_means(self, means: Means) -> torch.Tensor:
        """Return the eigenvalues ``(B, n, n)`` of the inverse of means, as `_waves` has them."""
        eigenvalues = self._rounded[2]
        waves = torch.addcmul(
            means.x[:, None, None] * eigenvalues[:, None], means.y[:, None, None], eigenvalues
        )
        return waves.add_(means.reaction[:, None, None]).reciprocal_()

    def residual(self, u: torch.Tensor, f: torch.Tensor | None, fields: Fields) -> torch.Tensor:
        """Return ``F(u) - f`` times the squared spacing at the inner nodes, ``(B, n, n)``."""
        return self._residual(u, None if f is None else self.spacing**2 * f, self.patches(fields))

    def patches(self, fields: Fields) -> dict[str, Patch]:
        """Cut the patches of fields."""
        return {name: Patch.of(value) for name, value in fields.items()}

    def _residual(
        self, u: torch.Tensor, force: torch.Tensor | None, patches: Mapping[str, Patch]
    ) -> torch.Tensor:
        r = self.spacing**2 * self.operator.at(Patch.of(u), patches, self.spacing)
        return r if force is None else r - force

    def derivative(self, u: torch.Tensor, patches: Mapping[str, Patch]) -> Partials:
        """Return the derivatives by the values of a patch, ``(B, n, n)`` of float32 each."""
        gradients = self._gradients(Patch.of(u).values, patches)
        pairs = zip(offsets(2), gradients, strict=True)
        return [(offset, gradient) for offset, gradient in pairs if gradient is not None]

    def _gradients(
        self, values: Sequence[torch.Tensor], patches: Mapping[str, Patch]
    ) -> list[torch.Tensor | None]:
        leaves = [value.clone().requires_grad_() for value in values]
        with torch.enable_grad():
            total = self.operator.at(Patch(*leaves), patches, self.spacing).sum()
        gradients = torch.autograd.grad(total, leaves, allow_unused=True)
        return [
            None if gradient is None else (self.spacing**2 * gradient).float()
            for gradient in gradients
        ]

    def reaction(self, u: torch.Tensor, fields: Fields) -> torch.Tensor:
        """Return the derivative of the residual by values that are the same all around, at each of them."""
        leaf = u.detach().requires_grad_()
        with torch.enable_grad():
            total = self.operator.at(Patch.uniform(leaf), self.patches(fields), self.spacing)
        return torch.autograd.grad(total.sum(), leaf)[0]

    def linearised(
        self, u: torch.Tensor, v: torch.Tensor, fields: Fields, apart: int
    ) -> torch.Tensor:
        """Return ``J v - F`` times the squared spacing, of an equation without source, at every so many inner nodes.

        ``J`` and ``F`` are taken at ``u (rows, columns)``; so are fields that are no numbers.
        """
        values, patches = _thinned(u, apart), _thinned_fields(fields, apart)
        total = -(self.spacing**2) * self.operator.at(values, patches, self.spacing)
        gradients = self._gradients(values.values, patches)
        for gradient, value in zip(gradients, _thinned(v, apart).values, strict=True):
            if gradient is not None:
                total.addcmul_(gradient.to(total), value)
        return total

    def sampled_residual(self, u: torch.Tensor, apart: int, fields: Fields) -> torch.Tensor:
        """Return the residual of an equation without source at the same nodes."""
        return self.operator.at(_thinned(u, apart), _thinned_fields(fields, apart), self.spacing)

    def solve_linear(
        self,
        partials: Partials,
        rhs: torch.Tensor,
        rtol: float = _LINEAR,
    ) -> torch.Tensor:
        """Solve ``J x = rhs`` with zeros on the perimeters, ``(..., B, n, n)``."""
        inverse, sines = self._inverse(partials), self._rounded[0]
        x, r = torch.zeros_like(rhs), rhs.clone()
        z = _transformed(r, sines, inverse)
        p = torch.nn.functional.pad(z, (1, 1, 1, 1))
        inner = p[..., 1:-1, 1:-1]
        rz = _dot(r, z)
        bound = rtol**2 * rz
        for _ in range(_MOST):
            ap = applied(partials, p)
            curvature = _dot(inner, ap)
            running = (rz > bound) & (curvature > 0)
            if not running.any():
                break
            alpha = torch.where(running, rz / curvature, 0.0)[..., None, None]
            x.addcmul_(alpha, inner)
            r.addcmul_(alpha, ap, value=-1.0)
            z = _transformed(r, sines, inverse)
            before, rz = rz, _dot(r, z)
            beta = torch.where(running, rz / before, 0.0)[..., None, None]
            inner.mul_(beta).add_(z)
        return x

    def _inverse(self, partials: Partials) -> torch.Tensor:
        """Return the eigenvalues of the inverse of the derivative's mean, ``(B, n, n)``."""
        means = [values.mean(dim=(1, 2)) for _, values in partials]
        outflow = -torch.stack(means[1:]).sum(dim=0)  # the first is the centre's
        reaction = (means[0] - outflow).clamp(min=0.0)
        return _inverse(outflow / 4, reaction, self._rounded[1])


def applied(partials: Partials, p: torch.Tensor) -> torch.Tensor:
    """Return ``J p`` at the inner nodes, ``(..., B, n, n)``, for ``p`` with perimeters."""
    (first, values), *others = partials
    out = values * beside(p, first)
    for offset, values in others:
        out.addcmul_(values, beside(p, offset))
    return out


def _inverse(diffusion: torch.Tensor, reaction: torch.Tensor, waves: torch.Tensor) -> torch.Tensor:
    return 1.0 / (diffusion[:, None, None] * waves + reaction[:, None, None])


def _thinned(values: torch.Tensor, apart: int) -> Patch:
    """Cut the patches around every so many inner nodes, along both of the last axes."""
    return Patch(*(around[..., ::apart, ::apart] for around in Patch.of(values).values))


def _thinned_fields(fields: Fields, apart: int) -> dict[str, Patch]:
    return {
        name: Patch.of(value) if is_number(value) else _thinned(value, apart)
        for name, value in fields.items()
    }


def _dot(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return (first * second).sum(dim=(-2, -1))


def _transformed(r: torch.Tensor, sines: torch.Tensor, inverse: torch.Tensor) -> torch.Tensor:
    """Return ``S (inverse^T * (S r S)) S`` for each square."""
    shape, n = r.shape, r.shape[-1]
    waves = _waves(r, sines) * inverse
    back = (waves.reshape(-1, n) @ sines).view(shape)
    return (back.mT.reshape(-1, n) @ sines).view(shape)


def _waves(r: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """Return ``(S r S)^T`` for each square."""
    shape, n = r.shape, r.shape[-1]
    waves = (r.reshape(-1, n) @ sines).view(shape)
    return (waves.mT.reshape(-1, n) @ sines).view(shape)
