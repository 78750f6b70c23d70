"""What works before anything is computed."""

import re

import pytest

from mosaicdd.cli.main import cli

COMMANDS = ("generate", "train", "models", "solve", "compare", "plot", "report", "quantities")
COMMANDS += ("info", "plan", "doctor", "demo")


@pytest.mark.ranks(1, 2, 3)
def test_without_arguments_the_help_is_shown_once(mosaicdd):
    ended = mosaicdd()
    assert ended.code == 2
    assert (ended.out + ended.err).count("Usage: ") == 1
    for command in COMMANDS:
        assert f"\n  {command} " in ended.out + ended.err


def test_every_option_is_described_with_its_default(mosaicdd):
    ended = mosaicdd("solve", "--help")
    assert ended.code == 0
    for option in ("--cells", "--boundary", "--local-solver", "--rtol", "--dims", "--json"):
        assert option in ended.out
    # Under headings, each once.
    for heading in ("Problem", "Time", "Solution", "Method", "Machine"):
        assert f"\n{heading}:\n" in ended.out
    listed = re.findall(r"^  (?:-\w, )?(--[a-z-]+)", ended.out, re.MULTILINE)
    known = [max(param.opts, key=len) for param in cli.get_command(None, "solve").params]
    assert sorted(listed) == sorted([*known, "--help"])
    # All but --output, --cells, the two flags and --until-mae, --certify: no default to show.
    assert ended.out.count("[default") >= 10
    words = " ".join(ended.out.split())
    assert (
        "1/64; of a network whose equation is not the same at all scales, as with a reaction, that of its"
        in words
    )
