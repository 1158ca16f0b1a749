from collections.abc import Iterator

import jax.numpy as jnp
import pytest
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import Array, Float

from shoal.equations.returns import backward
from shoal.spec import Discrete
from support.annotations import checked

TWO, THREE = jnp.zeros(2), jnp.zeros(3)


def test_axes_of_one_name_have_one_size() -> None:
    with pytest.raises(BeartypeCallHintViolation, match="decay"):
        backward(TWO, THREE, jnp.zeros(()))
    assert backward(THREE, THREE, jnp.zeros(())).shape == (3,)  # another size in the next call


def test_fields_of_a_dataclass_have_their_types() -> None:
    with pytest.raises(BeartypeCallHintViolation, match="three"):
        Discrete("three")  # type: ignore


@checked
def _wrong(x: Float[Array, " T"], y: Float[Array, " T"]) -> Float[Array, " T"]:
    return jnp.concatenate((x, y))


@checked
def _strings(x: "int", y: "nowhere.Type") -> "Iterator[int]":  # type: ignore # noqa: F821
    yield from range(x)


def test_results_have_the_size_of_the_arguments() -> None:
    with pytest.raises(BeartypeCallHintViolation, match="return"):
        _wrong(TWO, TWO)


def test_annotations_in_quotes_are_checked_where_they_name_a_type() -> None:
    assert list(_strings(3, "anything")) == [0, 1, 2]
    with pytest.raises(BeartypeCallHintViolation, match="x"):
        list(_strings("3", "anything"))  # type: ignore


def test_nothing_is_checked_where_a_test_says_so(unchecked_annotations: None) -> None:
    assert _wrong(TWO, TWO).shape == (4,)
