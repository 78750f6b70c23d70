"""Write ``benchmarks/paper.md``: each experiment of the paper beside ours, and what differs.

From the tables that the other ``paper_*.py`` and ``bench_*.py`` scripts of `reproduce.sh` left in
``benchmarks/paper``; what is not there is named as not run.
"""

from collections.abc import Callable
from pathlib import Path
from statistics import median

from paper_figures import TABLE_4
from tables import BENCHMARKS, PAPER, hardware, read_csv, table


def main() -> None:
    """Put the page together."""
    rows = [[name, paper, _or_not_run(ours), same] for name, paper, ours, same in _ROWS]
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


def _fig1() -> str:
    errors = {row["local solver"]: row["largest difference"] for row in read_csv("fig1")}
    return ", ".join(f"{error} by {name}" for name, error in errors.items())


def _fig5() -> str:
    rows = {(row["embedded"], row["points"]): row for row in read_csv("split")}
    wide, narrow = (rows[width, "4096"] for width in ("1024", "128"))
    ends = {row["embedded"]: row for row in read_csv("split_memory")}["1024"]
    return (
        f"at 32,768 points: split {wide['inference gain']} times the values per second at 1024 embedded "
        f"values, {narrow['inference gain']} at 128; training {wide['training gain']} and "
        f"{narrow['training gain']}. A gigabyte ends at {int(ends['split']):,} points (split) and "
        f"{int(ends['concatenated']):,} (concatenated)"
    )


def _fig6() -> str:
    rows, ends = read_csv("fig6"), {}
    last = max(float(row["epoch"]) for row in rows)
    for row in rows:
        if float(row["epoch"]) >= last:
            ends.setdefault(row["ranks"], []).append(float(row["validation_mse"]))
    medians = ", ".join(f"{median(errors):.1e} ({ranks})" for ranks, errors in ends.items())
    seeds = len({row["seed"] for row in rows})
    return f"after {last:g} epochs, medians of {seeds} seed{'s' * (seeds > 1)} (ranks): {medians}"


def _fig7() -> str:
    rows = read_csv("fig7")
    return "; ".join(f"{row['ranks']} ranks: {row['128']} to {row['1024']}" for row in rows)


def _memory() -> str:
    return "GB: " + "; ".join(
        f"{row['subdomains']}: {row['no PDE loss, GB']} and {row['autograd, GB']}"
        for row in read_csv("memory")
    )


def _fig8() -> str:
    last = read_csv("batching")[-1]
    return ", ".join(
        f"{last[f'{name} gain']} times at {last[f'{name} peak']} of the peak by {name}"
        for name in ("laplace", "laplace-sdnet")
    )


def _table4() -> str:
    rows = read_csv("table4")
    texts = []
    for method, word in (
        ("four phases, one exchange per iteration", "relaxed"),
        ("four phases, an exchange after each", "strict"),
    ):
        counts = {int(r["ranks"]): int(r["iterations"]) for r in rows if r["method"] == method}
        growth = 100 * (counts[max(counts)] / counts[min(counts)] - 1)
        listed = ", ".join(map(str, counts.values()))
        phases = ", ".join(str(4 * count) for count in counts.values())
        texts.append(f"{word}: {listed} (+{growth:.1f} %), in phases {phases}")
    return "; ".join(texts)


def _scaling(study: str) -> Callable[[], str]:
    def make() -> str:
        rows = [row for row in read_csv("fig9") if row["study"] == study]
        return "; ".join(
            f"{row['ranks']} ranks, {row['cells']}: {float(row['iterate']):.2f} s, of which "
            f"communication {float(row['communication_mean']):.2f}"
            for row in rows[-2:]
        )

    return make


def _job() -> str:
    rows = read_csv("job")
    texts = [
        f"{row['local solver']}, {row['levels']} level{'s' * (row['levels'] != '1')}: {row['iterations']} "
        f"iterations, {float(row['seconds']):,.1f} s"
        for row in rows
    ]
    return f"{rows[0]['cells']} x {rows[0]['cells']}: " + "; ".join(reversed(texts))


def _recipe() -> str:
    longer = (PAPER / "recipe_long.csv").exists()
    rows = [row for row in read_csv("recipe_long" if longer else "recipes") if row["run"] == "0"]
    error = min(float(row["validation_mse"]) for row in rows)
    return (
        f"{error:.1e} after {float(rows[-1]['budget']):g} CPU seconds of one core, {error / 2.5e-6:,.0f} "
        "times the paper's"
    )


def _samples() -> str:
    by_samples: dict[str, list[str]] = {}
    for row in read_csv("samples"):
        text = f"{row['validation MSE']} ({row['trained on']})"
        by_samples.setdefault(row["samples"], []).append(text)
    return "; ".join(f"{int(n):,} samples: {', '.join(texts)}" for n, texts in by_samples.items())


def _counts() -> str:
    return ", ".join(map(str, TABLE_4.values()))


_ROWS = [
    (
        "Fig. 1",
        "largest difference about 0.04",
        _fig1,
        "128 x 128; other boundary data of the kind",
    ),
    (
        "Table 3",
        "GB: 5: 0.05 and 0.503; 320: 2.77 and 15.11; 640: 5.54 and out of memory",
        _memory,
        (
            "peak of one step by double backward, on a processor, at 64 points per subdomain; the paper: "
            "on a V100, points and widths not given"
        ),
    ),
    (
        "Fig. 5",
        "split runs to 50,000 points, concatenation to 10,000",
        _fig5,
        "a core's throughput; its memory limited to 1 GiB; widths not given in the paper",
    ),
    (
        "Fig. 6",
        "2.5e-6; all numbers of GPUs end within 1.5e-6 of each other",
        _fig6,
        (
            "its epochs, by `scripts/paper_training.py --epochs 500 --seeds 1 --only ranks`; with few, grown batches take few "
            "steps and stay far behind. The linear network, 64 samples per rank; one process for all ranks, as the "
            "gradients are the same; no time"
        ),
    ),
    (
        "Fig. 7",
        "no difference between numbers of GPUs",
        _fig7,
        "Fig. 6's models of the first seed, which differ by their training; MAE from 128 x 128 to 1024 x 1024",
    ),
    ("Fig. 8", "up to 100 times, about 50 % of the peak", _fig8, "one core for an A30"),
    (
        "Fig. 9a",
        "880 s on 1 GPU, about 90 s on 32, to an MAE of 0.05",
        _scaling("strong"),
        "SDNet, five iterations of four phases, smaller domain, two cores",
    ),
    (
        "its job",
        "880 s on 1 GPU, to an MAE of 0.05",
        _job,
        (
            "its size, kind of network (in float32) and method in the first of these, the whole span with the "
            "MAE against a sine transform; other boundary data; one core for a V100, seconds of the processor"
        ),
    ),
    (
        "Table 4",
        _counts(),
        _table4,
        (
            "the paper's size; other boundary data; linear network; whether its iteration is one phase or four "
            "is not said"
        ),
    ),
    (
        "Fig. 9b",
        "communication grows 4 times from 2 to 8 GPUs, then stays",
        _scaling("weak"),
        "SDNet, five iterations, two cores: no more than two ranks are timed",
    ),
    (
        "sections 2.2, 3.3",
        "the PDE loss replaces solutions",
        _samples,
        "our recipe, which learns faster; the paper has no row without the PDE loss or with fewer samples",
    ),
    (
        "its recipe",
        "2.5e-6 after over 30 minutes on an A30",
        _recipe,
        "data/paper.toml; ranges of the data, batch, points and widths not given in the paper",
    ),
]


def _shown(name: str, columns: list[str] | None = None) -> Callable[[], str]:
    """Return what shows a table as it is, or some of its columns."""

    def make() -> str:
        rows = read_csv(name)
        header = columns or list(rows[0])
        return table(header, [[row[column] for column in header] for row in rows])

    return make


def _recipes() -> str:
    ends = {}
    for row in read_csv("recipes"):
        ends[row["run"]] = row
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
            "loss costs more than it gives in this time; in the place of them errors are 1.2 to 2.1 times as large."
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
    ("Batches of growing numbers of ranks", "fig6", "Fig. 6.", _fig6),
    ("Their models on larger domains", "fig7", "Fig. 7.", _shown("fig7")),
    ("Split layer", "fig5", "Fig. 5; all numbers: [split.md](split.md).", _fig5),
    ("Batched subdomains", "fig8", "Fig. 8; all numbers: [batching.md](batching.md).", _fig8),
    ("A solution and its difference to pyAMG", "fig1", "Fig. 1.", _shown("fig1")),
    ("Iterations against ranks", "table4", "Table 4: [iterations.md](iterations.md).", _table4),
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

if __name__ == "__main__":
    main()
