"""Random boundary data: a Gaussian process along a closed curve, or at points in space.

The kernel is the squared exponential, made periodic by summing it over all windings of the curve,
so its spectrum is a Gaussian and a sample costs one FFT (infinitely differentiable, as in section
5.1 of the paper).
"""

import numpy as np


def sample_closed_curve(
    rng: np.random.Generator,
    nodes: int,
    curve_length: float,
    length_scale: float,
    amplitude: float = 1.0,
    noise: float = 0.0,
) -> np.ndarray:
    """Draw one sample of a zero-mean process at equidistant nodes of a closed curve.

    Returns values ``(nodes,)``, the first node once.

    Parameters
    ----------
    nodes
        Number of nodes, equally spaced along the curve.
    curve_length, length_scale
        Both in units of domain length; the kernel is ``exp(-d**2 / (2 length_scale**2))``.
    amplitude
        Standard deviation of the process.
    noise
        Standard deviation of white noise added at each node.
    """
    frequency = np.arange(nodes // 2 + 1)
    spectrum = np.exp(-0.5 * (2 * np.pi * frequency * length_scale / curve_length) ** 2)
    two_sided = 2 * spectrum.sum() - spectrum[0] - (spectrum[-1] if nodes % 2 == 0 else 0)
    white = np.fft.rfft(rng.standard_normal(nodes))
    smooth = np.fft.irfft(white * np.sqrt(spectrum * nodes / two_sided), n=nodes)
    return amplitude * smooth + noise * rng.standard_normal(nodes)


_WAVES = 256


def sample_at_points(
    rng: np.random.Generator,
    points: np.ndarray,
    length_scale: float,
    amplitude: float = 1.0,
    noise: float = 0.0,
) -> np.ndarray:
    """Draw one sample of a zero-mean process at points ``(n, axes)``, in units of domain length: ``(n,)``.

    It is a sum of 256 plane waves of random phases, whose wave numbers have the spectrum of the squared exponential
    kernel (Rahimi and Recht 2007). Parameters are those of `sample_closed_curve`.
    """
    waves = rng.standard_normal((points.shape[1], _WAVES)) / length_scale
    phases = points @ waves + 2 * np.pi * rng.random(_WAVES)
    smooth = np.sqrt(2 / _WAVES) * np.cos(phases).sum(axis=1)
    return amplitude * smooth + noise * rng.standard_normal(len(points))


def sobol_hyperparameters(
    count: int, seed: int, lower: np.ndarray, upper: np.ndarray
) -> np.ndarray:
    """Draw hyperparameters from a scrambled Sobol sequence, uniform in the logarithm.

    ``lower`` and ``upper``: bounds ``(p,)``, positive.
    Returns ``(count, p)``; the first rows do not depend on ``count``.
    """
    import scipy.stats  # a third of a second, which no solve needs to wait for

    sobol = scipy.stats.qmc.Sobol(d=len(lower), scramble=True, rng=np.random.default_rng(seed))
    unit = sobol.random_base2(max(1, int(np.ceil(np.log2(max(count, 2))))))[:count]
    return np.exp(np.log(lower) + unit * (np.log(upper) - np.log(lower)))
