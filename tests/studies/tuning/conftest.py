from collections.abc import Iterator

import jaxtyping
import pytest


@pytest.fixture(scope="module", autouse=True)
def unchecked_annotations() -> Iterator[None]:
    """Annotations say ``float``, which is what users write; in a search there are arrays."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
