"""Training without labels on squares of nonlinear equations: steps by the equation lead to the solution."""

import numpy as np
import pytest
import torch
from drawn_data import generate_dataset

from mosaicdd.problems.equations import any_equation
from mosaicdd.training.conductances import ConductanceLesson
from mosaicdd.training.corrections import CorrectionLesson, UnrolledLesson
from mosaicdd.training.rank_group import RankGroup
from mosaicdd.training.row_lesson import OwnRows, RowPass
from mosaicdd.training.settings import ExecutionSettings, SquareSettings, TrainingSettings
from mosaicdd.training.squares import EquationStep

LESSONS = {"poisson-boltzmann": CorrectionLesson, "minimal-surface": UnrolledLesson}


def squares(pde, **settings):
    return generate_dataset(SquareSettings(pde, samples=64, validation=0.25, **settings))


def lesson_of(data, **settings):
    lesson = LESSONS[data.pde]
    torch.manual_seed(0)
    network = lesson.build(lesson.kind.name, {}, data)
    settings = TrainingSettings(batch_size=48, **settings)
    return lesson(network, OwnRows.of(data, RankGroup()), settings)


@pytest.mark.parametrize("pde", LESSONS)
def test_steps_lead_to_the_solution_and_stay_there(pde):
    data = squares(pde)
    lesson = lesson_of(data)
    learned = data.rows(slice(0, 48))
    step = EquationStep(learned, any_equation(pde), lesson.network.outputs)
    every = torch.arange(len(learned))
    truth = lesson.samples.values * lesson.unit
    begin = lesson.samples.linear * lesson.unit
    first = step(every, begin)
    lacking = float((truth - begin).norm())
    assert float((begin + first - truth).norm()) <= 0.3 * lacking
    # Solutions are in float32, and elements solved to a millionth of them.
    assert float(step(every, truth).norm()) <= 5e-3 * lacking


@pytest.mark.parametrize("pde", LESSONS)
def test_the_loss_without_labels_has_the_gradient_of_that_with(pde):
    data = squares(pde)
    gradients = []
    for labels in (True, False):
        lesson = lesson_of(data, labels=labels)
        every = torch.arange(48)
        part = RowPass(every, 1.0, every)
        if lesson.prepares:
            lesson.prepare([part])
        lesson.loss(part).backward()
        weights = lesson.network.parameters()
        gradients.append(torch.cat([w.grad.flatten() for w in weights if w.grad is not None]))
    with_labels, without = gradients
    assert float((without - with_labels).norm()) <= 0.3 * float(with_labels.norm())


def test_what_is_not_solved_has_the_same_data():
    solved, unsolved = (squares("poisson-boltzmann", labels=labels) for labels in (True, False))
    assert unsolved.unsolved == 48
    np.testing.assert_array_equal(unsolved.boundary, solved.boundary)
    np.testing.assert_array_equal(unsolved.source, solved.source)
    np.testing.assert_allclose(unsolved.solution, solved.solution[-16:], atol=1e-6)
    asked = "correction", CorrectionLesson.build("correction", {}, unsolved), unsolved
    CorrectionLesson.require(*asked, TrainingSettings(labels=False), ExecutionSettings())
    with pytest.raises(ValueError, match="48 of 64 squares have no solution"):
        CorrectionLesson.require(*asked, TrainingSettings(), ExecutionSettings())


def test_a_network_that_learns_from_solutions_alone_says_so():
    lesson = ConductanceLesson
    with pytest.raises(ValueError, match="learns from solutions alone: leave labels on"):
        lesson.require(
            lesson.kind.name, None, None, TrainingSettings(labels=False), ExecutionSettings()
        )
