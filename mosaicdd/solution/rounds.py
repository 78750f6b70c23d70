"""Many problems: shared out to groups of ranks, and solved batch after batch.

The groups work in rounds. In each, a group solves a batch of its share of the problems, and all ranks
of all groups hand what they have to the root, which writes the one file. A group that has no problems
left takes part with nothing. One problem is one round of one batch.
"""

import copy
import math
from collections.abc import Callable, Collection

from mosaicdd.grid.grid import Grid
from mosaicdd.parallel.ranks import Replicas
from mosaicdd.report.progress import Progress
from mosaicdd.solvers.settings import SolveSettings, StoppingRule

# Of all problems of a batch: beyond, one gains nothing (`benchmarks/batch.py`).
_SUBDOMAINS = 8192


# Problems of a batch that are solved one after another, whose fields are kept until all are, and nodes of their grids
# together: a job that is killed solves a batch anew.
_IN_TURN, _NODES = 16, 2**22


class BatchSchedule:
    """Which problems this rank's group solves in which round.

    Five problems in two groups, two at a time:

    ```
       round    0        1
       group 0  0, 1     2
       group 1  3, 4     -
    ```

    `ValueError` if there are more groups than problems.

    Parameters
    ----------
    subdomains
        How many a problem has that are solved at once; None if problems are solved one after another.
    problems
        Their number.

    Attributes
    ----------
    number
        Of rounds.
    batch
        Problems that are solved at once, at most.
    """

    def __init__(
        self,
        groups: Replicas,
        grid: Grid,
        subdomains: int | None,
        settings: SolveSettings,
        problems: int,
    ):
        if groups.count > problems:
            raise ValueError(
                f"replicas={groups.count}: each needs a problem of its own, there "
                f"{'is 1' if problems == 1 else f'are {problems}'}"
            )
        self._shares = [groups.share(problems, index) for index in range(groups.count)]
        self._group = groups.index
        largest = max(map(len, self._shares))
        default = max(1, min(_IN_TURN, _NODES // math.prod(grid.nodes)))
        if subdomains is not None:  # methods without inner products take many problems at once
            many = max(1, _SUBDOMAINS // subdomains)
            default = many if settings.takes_many else 1
        most = min(settings.batch or default, largest)
        self.number = -(-largest // most)
        self.batch = -(-largest // self.number)  # of equal size, so that one plan serves all
        self._batches = self._cut(self._shares[self._group], ())

    def without(self, ended: Collection[int]) -> "BatchSchedule":
        """Return those of the problems that have not ended."""
        left = copy.copy(self)
        batches = [self._cut(share, ended) for share in self._shares]
        left.number, left._batches = max(map(len, batches)), batches[self._group]
        return left

    def _cut(self, share: range, ended: Collection[int]) -> list[range]:
        """Cut a share into batches of problems that follow each other, and have not ended."""
        batches: list[range] = []
        for problem in share:
            if problem in ended:
                continue
            last = batches[-1] if batches else range(0)
            if len(last) in (0, self.batch) or last.stop != problem:
                batches.append(range(problem, problem + 1))
            else:
                batches[-1] = range(last.start, problem + 1)
        return batches

    def members(self, number: int) -> range:
        """Return this group's problems of a round, maybe none."""
        return self._batches[number] if number < len(self._batches) else range(0)

    def progress(self, number: int, rule: StoppingRule, show: Progress) -> Callable[..., None]:
        """Return what shows the measurements of a `Monitor` as progress of the whole, on a logarithmic scale."""
        where = f"batch {number + 1} of {self.number}, " if self.number > 1 else ""
        first = 0.0

        def shown(iteration: int, update: float, size: float, mae: float) -> None:
            nonlocal first
            relative = update / size if size > 0 else update
            note = f"{where}iteration {iteration}, relative update {relative:.1e}"
            now, aim = update, max(rule.rtol * size, rule.atol)
            if rule.mae is not None:
                note += f", MAE {mae:.1e}"
                now, aim = mae, rule.mae
            if 0 < aim < now < math.inf:
                first = max(first, now)
                fraction = 1 - math.log(now / aim) / math.log(first / aim)
                show((number + fraction) / self.number, note)

        return shown
