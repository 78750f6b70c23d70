"""The parts of a dataset that is being made: a folder of small files, one per part.

Each is written whole or not at all by the rank that made it, so a generation that is killed has
lost the parts it was at, and another number of ranks can continue it.
"""

import json
import shutil
import zipfile
from pathlib import Path

import numpy as np

from mosaicdd.storage.atomic import atomic_file


class DatasetParts:
    """The folder ``OUT.parts`` beside the dataset file ``OUT``.

    Parameters
    ----------
    identity
        What the parts depend on: settings by name, as JSON can hold them.
    """

    def __init__(self, output: str | Path, identity: dict):
        self.folder = Path(f"{output}.parts")
        self._identity = identity

    def open(self) -> None:
        """Make the folder, or check that the one there is of the same dataset; on one rank.

        Raises
        ------
        ValueError
            If it holds parts of another dataset; the message names the first difference.
        """
        note = self.folder / "settings.json"
        if not note.exists():
            self.folder.mkdir(exist_ok=True)
            with atomic_file(note) as temporary:
                temporary.write_text(json.dumps(self._identity, sort_keys=True))
            return
        theirs = json.loads(note.read_text())
        for name in sorted(theirs.keys() | self._identity.keys()):
            if theirs.get(name) != self._identity.get(name):
                raise ValueError(
                    f"{self.folder} holds parts of another dataset: its {name} is "
                    f"{theirs.get(name)}, not {self._identity.get(name)}; give the same settings, or "
                    "remove the folder"
                )

    def write(self, number: int, arrays: dict[str, np.ndarray]) -> None:
        """Write a part."""
        with atomic_file(self._path(number)) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)

    def read(self, number: int) -> dict[str, np.ndarray] | None:
        """Read a part; None if it is missing or damaged."""
        try:
            with np.load(self._path(number), allow_pickle=False) as file:
                return {name: file[name] for name in file.files}
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None

    def remove(self) -> None:
        """Remove the folder of a dataset that is complete."""
        shutil.rmtree(self.folder)

    def _path(self, number: int) -> Path:
        return self.folder / f"part-{number:06d}.npz"
