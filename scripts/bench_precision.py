"""Accuracy and speed of training in float64, float32, bf16 and TF32.

    python scripts/bench_precision.py laplace-data.h5

takes 2 minutes; TF32 is measured where there is a GPU, since a processor has none.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from tables import publish, table
from train_command import train

_NETWORKS = {
    "linear": ["--epochs", "10"],
    "sdnet": ["--epochs", "3", "--points", "64", "--batch-size", "128"],
}


def main() -> None:
    """Train in each precision, print the table and write it to ``benchmarks/``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    data = parser.parse_args().data
    gpu = torch.cuda.is_available()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for network, options in _NETWORKS.items():
            for precision in ("float64", "float32", "bf16", *(["tf32"] * gpu)):
                figures, _ = train(
                    data,
                    Path(folder) / "model.h5",
                    1,
                    *("--network", network, "--precision", precision, *options),
                    *(["--device", "cuda"] if gpu else []),
                )
                errors = [f"{figures[name]:.2e}" for name in ("validation_mse", "window_mse")]
                rows.append([network, precision, *errors, f"{figures['samples_per_second']:.0f}"])
    header = ["network", "precision", "validation MSE", "windows MSE", "samples/s"]
    text = (
        "The same steps in each precision; bf16 multiplies in 8 bits in the data loss only, the PDE "
        f"loss keeps its digits.\n\n{table(header, rows)}"
    )
    publish("precision", "Precision of training", text)


if __name__ == "__main__":
    main()
