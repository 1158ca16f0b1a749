"""Rows of bytes as features, against NumPy's own view of the same memory."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np

import toys
from shoal.networks.inputs import observation_features
from shoal.spec import Part

IMAGE, SPEED = Part((2, 3, 1), "uint8", "image"), Part((2,), "float32", "speed")


def packed(*arrays: np.ndarray) -> np.ndarray:
    return np.concatenate([np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in arrays])


def test_bytes_become_numbers_whatever_the_order_of_parts() -> None:
    rng = np.random.default_rng(0)
    image, speed = rng.integers(0, 256, (2, 3, 1), dtype=np.uint8), rng.normal(size=2).astype(np.float32)
    spec = toys.busy().spec
    own = ((IMAGE, SPEED), (SPEED, IMAGE), (IMAGE,))
    spec = replace(spec, parts=own, obs_dims=(14, 14, 6), novel=None)
    assert (spec.packed, spec.feature_dims, spec.obs_dim) == (True, (8, 8, 6), 14)
    rows = [packed(image, speed), packed(speed, image), np.pad(packed(image), (0, 8))]
    pixels = image.reshape(-1) / 255
    wanted = np.stack([np.r_[pixels, speed], np.r_[speed, pixels], np.r_[pixels, 0, 0]])
    got = observation_features(spec, jnp.array(np.broadcast_to(np.stack(rows), (5, 3, 14))))
    np.testing.assert_allclose(got, np.broadcast_to(wanted, (5, 3, 8)), rtol=1e-6)


def test_rows_of_numbers_stay_as_they_are() -> None:
    spec = toys.busy().spec
    obs = jnp.ones((4, spec.num_agents, spec.obs_dim))
    assert observation_features(spec, obs) is obs
    alike = replace(spec, parts=tuple((Part((d,)),) for d in spec.obs_dims))
    assert not alike.packed and observation_features(alike, obs) is obs
