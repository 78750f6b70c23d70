"""What the tests of the batch jobs share."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def repository():
    """Return the folder that jobs are submitted from."""
    return Path(__file__).parents[2]
