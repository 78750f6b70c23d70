"""Training without labels on squares of nonlinear equations: steps by the equation lead to the solution."""

import numpy as np
import pytest
import torch

from mosaicdd.problems.equations import any_equation
from mosaicdd.training.conductances import ConductanceLesson
from mosaicdd.training.corrections import CorrectionLesson, SquareLesson, UnrolledLesson
from mosaicdd.training.equation_step import EquationStep
from mosaicdd.training.operators import OperatorLesson
from mosaicdd.training.settings import SquareSettings
from mosaicdd.training.squares import SquareGenerator

LESSONS = {"poisson-boltzmann": CorrectionLesson, "minimal-surface": UnrolledLesson}


def squares(pde, **settings):
    generator = SquareGenerator(SquareSettings(pde, samples=64, validation=0.25, **settings))
    return generator.dataset([generator.part(number) for number in range(generator.parts)])


def lesson_of(data):
    kind = LESSONS[data.pde]
    return kind(data, kind.settings_type())


@pytest.mark.parametrize("pde", LESSONS)
def test_steps_lead_to_the_solution_and_stay_there(pde):
    data = squares(pde)
    lesson = lesson_of(data)
    step = EquationStep(data, any_equation(pde), lesson.network.outputs)
    every = torch.arange(len(data.boundary))
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
        torch.manual_seed(0)
        lesson = lesson_of(data)
        if not labels:
            lesson.forget_labels()
        chosen = torch.arange(lesson.learned)
        lesson.loss(chosen).backward()
        found = [one.grad.flatten() for one in lesson.network.parameters() if one.grad is not None]
        gradients.append(torch.cat(found))
    one, other = gradients
    assert float((other - one).norm()) <= 0.3 * float(one.norm())


def test_what_is_not_solved_has_the_same_data():
    solved, unsolved = (squares("poisson-boltzmann", labels=labels) for labels in (True, False))
    assert unsolved.unsolved == 48
    np.testing.assert_array_equal(unsolved.boundary, solved.boundary)
    np.testing.assert_array_equal(unsolved.source, solved.source)
    np.testing.assert_allclose(unsolved.solution, solved.solution[-16:], atol=1e-6)
    SquareLesson.require(unsolved, labels=False)
    with pytest.raises(ValueError, match="48 of 64 squares have no solution"):
        SquareLesson.require(unsolved, labels=True)


@pytest.mark.parametrize("lesson", [ConductanceLesson, OperatorLesson])
def test_networks_that_learn_from_solutions_alone_say_so(lesson):
    with pytest.raises(ValueError, match="learns from solutions alone: leave labels on"):
        lesson.require(None, labels=False)
