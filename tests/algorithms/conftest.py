from collections.abc import Iterator

import pytest
from jaxtyping import config


@pytest.fixture
def as_users_run() -> Iterator[None]:
    """Without the run-time types that pytest switches on, so that Shoal's own checks are reached."""
    before = config.jaxtyping_disable
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", before)
