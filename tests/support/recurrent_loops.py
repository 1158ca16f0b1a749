"""Recurrent cells as loops over timesteps, in NumPy: one environment, one agent."""

import numpy as np

HIDDEN = 5
"""Width of the cells under test."""


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gru(params, h, x):
    """One timestep: h [H], x [F]."""
    w, b, u = params["gru"]["input"]["kernel"], params["gru"]["input"]["bias"], params["gru"]["hidden"]["kernel"]
    (wr, wz, wn), (br, bz, bn), (ur, uz, un) = (np.split(m, 3, axis=-1) for m in (w, b, u))
    reset = sigmoid(x @ wr + br + h @ ur)
    update = sigmoid(x @ wz + bz + h @ uz)
    new = np.tanh(x @ wn + bn + reset * (h @ un + params["gru"]["candidate_bias"]))
    return (1 - update) * new + update * h


def lstm(params, state, x):
    """One timestep: state [2 H] is the output, then the memory; x [F]."""
    h, c = np.split(state, 2)
    gates = x @ params["lstm"]["input"]["kernel"] + params["lstm"]["input"]["bias"]
    i, f, g, o = np.split(gates + h @ params["lstm"]["hidden"]["kernel"], 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return np.concatenate([sigmoid(o) * np.tanh(c), c])


def states(step, params, carry, x, first):
    """After each timestep of layers with tanh and one of these cells: carry [S], x [T, F], first [T] -> [T, S]."""
    carry, after = np.asarray(carry, np.float64), []
    for x_t, first_t in zip(np.asarray(x, np.float64), first, strict=True):
        for layer in params.get("layers", {}).values():
            x_t = np.tanh(x_t @ layer["kernel"] + layer["bias"])
        carry = step(params, np.zeros_like(carry) if first_t else carry, x_t)
        after.append(carry)
    return np.stack(after)
