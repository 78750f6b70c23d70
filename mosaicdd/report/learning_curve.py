"""The learning curve of a training, after Fig. 6 of the paper: errors and losses over steps."""

from pathlib import Path

from matplotlib.figure import Figure

from mosaicdd.storage.atomic import atomic_file

_ERRORS = {"validation_mse": "validation MSE", "window_mse": "windows MSE"}
_LOSSES = {"data_loss": "data loss", "pde_loss": "PDE loss"}


def learning_curve(rows: list[dict], title: str, path: Path) -> None:
    """Draw the metrics of a training to a PNG file.

    Parameters
    ----------
    rows
        As `storage.metrics_file` reads them.
    """
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes = figure.subplots(1, 2)
    for ax, curves in zip(axes, (_ERRORS, _LOSSES), strict=True):
        for name, label in curves.items():
            points = [(row["step"], row[name]) for row in rows if row[name]]
            if points:
                ax.semilogy(*zip(*points, strict=True), ".-", label=label)
        if ax.lines:
            ax.legend()
        ax.set(xlabel="step")
        ax.grid(alpha=0.3)
    figure.suptitle(title)
    with atomic_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)
