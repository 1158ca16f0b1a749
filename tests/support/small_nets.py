"""Parameters of nothing but noise, and calls that compile fast."""

import jax
import jax.numpy as jnp
import numpy as np

FAST = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def initialise(net, seed=0):
    return jax.jit(net.init, compiler_options=FAST)(jax.random.key(seed))


def apply(net, params, carry, x, first):
    return jax.jit(net.apply, compiler_options=FAST)(params, carry, x, jnp.asarray(first))


def noise(net, seed=0):
    """Parameters with nothing special about them, biases and scales included."""
    rng = np.random.default_rng(seed)
    shapes = jax.eval_shape(net.init, jax.random.key(0))
    return jax.tree.map(lambda x: jnp.asarray((rng.normal(size=x.shape) / 2).astype(np.float32)), shapes)


def random(*shape, seed=1):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def stack(*trees):
    return jax.tree.map(lambda *x: jnp.stack(x), *trees)


def pick(tree, p):
    return jax.tree.map(lambda x: x[p], tree)


def layer_norm(x, params):
    x = np.asarray(x, np.float64)
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(var + 1e-6) * params["scale"] + params["bias"]
