"""The metrics of a training as TensorBoard shows them: event files in a folder.

The optional dependency `tensorboard` has its home here.
"""

import importlib.util
import os
from pathlib import Path


def require_tensorboard(folder: str | os.PathLike) -> Path:
    """Check that events can be written, and return their folder, which is made if there is none.

    Raises
    ------
    ValueError
        If the package is not installed.
    OSError
        If the folder cannot be made, or not be written to.
    """
    if importlib.util.find_spec("tensorboard") is None:
        raise ValueError(
            "the package tensorboard is not installed: pip install 'mosaicdd[tensorboard]', or "
            "leave the option away (the metrics are in MODEL.metrics.jsonl, too)"
        )
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file, a folder is needed")
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"the folder {folder} is read-only; choose another one")
    return folder


class TensorBoardEvents:
    """Appends rows to an event file.

    Parameters
    ----------
    folder
        For TensorBoard's ``--logdir``.
    kept
        Of an earlier run in the folder, TensorBoard shows what is up to this step; None: all.
    """

    def __init__(self, folder: str | os.PathLike, kept: int | None = None):
        from torch.utils.tensorboard import SummaryWriter  # takes a second to import

        self._writer = SummaryWriter(folder, purge_step=None if kept is None else kept + 1)

    def append(self, row: dict) -> None:
        """Write one row of numbers by name, at its ``step``; readable at once."""
        for name, value in row.items():
            if name != "step":
                self._writer.add_scalar(name, value, row["step"])
        self._writer.flush()
