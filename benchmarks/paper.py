"""Write ``benchmarks/paper.md``: each experiment of the paper beside ours, and what differs.

From the tables that the other ``paper_*.py`` and ``bench_*.py`` scripts of `reproduce.sh` left in
``benchmarks/paper``; what is not there is named as not run.
"""

from collections.abc import Callable
from pathlib import Path

from common import BENCHMARKS, PAPER, hardware, read_csv, table
from paper_rows import ROWS, fig5, fig6, fig8, table4


def main() -> None:
    """Put the page together."""
    rows = [[name, paper, _or_not_run(ours), same] for name, paper, ours, same in ROWS]
    parts = [
        "# The paper's experiments",
        hardware(),
        (
            "By `scripts/reproduce.sh quick`, or pieces of it; the same with `full` for larger sizes. "
            "The paper is [1] of the [README](../README.md#references): SC'23, on V100, A30 and A100 GPUs. "
            "Trainings end by processor time or epochs. Tables as CSV, and pictures: "
            "[benchmarks/paper](paper). Numbers are of one core without a GPU; but for its job, Fig. 6, Fig. 7 and the PDE loss "
            "in place of solutions, of 2026-11-22 and an Intel Xeon."
        ),
        table(["", "the paper", "ours", "the same experiment? what differs"], rows),
    ]
    for title, name, note, draw in _SECTIONS:
        parts += [f"## {title}", note, _or_not_run(draw)]
        if (PAPER / f"{name}.png").exists():
            parts.append(f"![{title}](paper/{name}.png)")
    page = BENCHMARKS / "paper.md"
    page.write_text("\n\n".join(parts) + "\n")
    print(f"wrote {page}")


def _or_not_run(made: Callable[[], str]) -> str:
    try:
        return made()
    except FileNotFoundError as error:
        return f"not run: no {Path(str(error.filename)).name}"


def _shown(name: str) -> Callable[[], str]:
    """Return what shows a table as it is."""

    def make() -> str:
        rows = read_csv(name)
        return table(list(rows[0]), [list(row.values()) for row in rows])

    return make


def _recipes() -> str:
    ends = {row["run"]: row for row in read_csv("recipes")}
    rows = [
        [row["recipe"], row["losses"], row["step"], row["validation_mse"], row["window_mse"]]
        for row in ends.values()
    ]
    header = ["change", "trained on", "steps", "validation MSE", "windows MSE"]
    return table(header, rows)


_SECTIONS: list[tuple[str, str, str, Callable[[], str]]] = [
    (
        "From the paper's recipe to ours",
        "recipes",
        (
            "The same processor time for each, on one core, schedule included; each recipe is the one above with "
            "one change, but for the last three. All are judged on the same held-out data, the paper's kind. "
            "The paper's network is `sdnet` but for `linear`. Where solutions are trained on, the PDE loss costs "
            "more than it gives in this little time; without a lifting the errors stay far off."
        ),
        _recipes,
    ),
    (
        "The PDE loss in place of solutions",
        "",
        (
            "SDNet by our recipe on so many samples: their solutions, their solutions and the PDE loss on all "
            "grids, or their boundary data and that loss alone. The same processor time for each, in seconds; "
            "judged on the same 2,000 held-out problems of the paper's kind, and on windows. Beside solutions the "
            "loss takes three tenths off the error of 200 samples and nothing off those of more; in the place of "
            "solutions it does better than these: errors are 0.4 to 0.8 times as large."
        ),
        _shown("samples"),
    ),
    (
        "Optimisers",
        "",
        "Linear network, validation MSE after the same epochs.",
        _shown("optimisers"),
    ),
    ("Convolutions", "", "The same processor time, our recipe.", _shown("convolutions")),
    (
        "Memory of a step",
        "",
        (
            "Table 3: the paper's network, peak of a process in the passes of a step; without the PDE loss, and "
            "with it by double backward, by Taylor propagation, and by that with hidden layers computed again. "
            "Training cuts a batch into passes that keep 32 MB: its memory does not grow with the batch."
        ),
        _shown("memory"),
    ),
    (
        "One reduction",
        "",
        (
            "A step of the paper's network with both losses on two ranks, 32 samples each: the gradient reduced "
            "once, as in Algorithm 1, or after each loss. Two ranks of one machine, beside other work: medians."
        ),
        _shown("reductions"),
    ),
    ("Batches of growing numbers of ranks", "fig6", "Fig. 6.", fig6),
    ("Their models on larger domains", "fig7", "Fig. 7.", _shown("fig7")),
    ("Split layer", "fig5", "Fig. 5; all numbers: [split.md](split.md).", fig5),
    ("Batched subdomains", "fig8", "Fig. 8; all numbers: [batching.md](batching.md).", fig8),
    ("A solution and its difference to pyAMG", "fig1", "Fig. 1.", _shown("fig1")),
    ("Iterations against ranks", "table4", "Table 4: [iterations.md](iterations.md).", table4),
    (
        "Drivers and halos",
        "",
        (
            "Laplace, 1024 x 1024, to a relative update of 1e-7, the shipped network; "
            "at most 500 iterations."
        ),
        _shown("drivers"),
    ),
    (
        "Overlap",
        "",
        (
            "1024 x 1024 on two ranks of one machine, two levels: halos travel while inner subdomains are "
            "solved, or are waited for at once: medians. Between two cores there is nothing to hide."
        ),
        _shown("overlap"),
    ),
    (
        "Lifting",
        "lifting",
        "Linear networks, the same processor time; two levels to 1e-8.",
        _shown("lifting"),
    ),
    (
        "Fill",
        "",
        "The same interface of `laplace-sdnet`, 512 x 512, filled in three ways.",
        _shown("fill"),
    ),
    ("Lattice interval", "", "Lines every m / d cells, one level, additive.", _shown("lattice")),
    (
        "Scaling",
        "fig9",
        (
            "Fig. 9: [fig9.md](paper/fig9.md), timed on two ranks, as there are two cores; more ranks by counts, "
            "below."
        ),
        lambda: "",
    ),
    (
        "What ranks send",
        "counts",
        (
            "Exact on any number of ranks, at the paper's sizes: the subdomains of the busiest rank, its messages "
            "in an exchange, and their bytes. From 2 to 8 ranks a rank gets neighbours on more sides; from 16 on "
            "there are ranks with all eight, and then nothing grows: Fig. 9b. The paper's seconds are those of "
            "its text."
        ),
        _shown("counts"),
    ),
    (
        "Seconds",
        "",
        (
            "Of the steps of `scripts/reproduce.sh` that were run last: by the clock, and of the processors. The "
            "last row holds the installation, too."
        ),
        _shown("seconds"),
    ),
]
