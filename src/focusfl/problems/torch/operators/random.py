"""ATen's operators that draw at random, in jax; their first argument is a key.

If the key is None, nothing is drawn: dropout drops nothing, and noise is its mean.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def dropped(key, x, p):
    """Set a random share p of all numbers to 0, and divide the others by 1 - p."""
    if key is None or p == 0:
        return x
    is_left = jax.random.bernoulli(key, 1 - p, x.shape)
    return jnp.where(is_left, x / (1 - p), 0) if p < 1 else jnp.zeros_like(x)


def native_dropout(key, x, p, train=True):
    return dropped(key, x, p if train else 0), None


def bernoulli(key, x, p=None):
    """Draw ones with probability p, or with the probabilities x."""
    p = jnp.broadcast_to(x if p is None else p, x.shape)
    return p if key is None else jax.random.bernoulli(key, p)


def normal(key, size, *_):
    return jnp.zeros(size) if key is None else jax.random.normal(key, size)


def uniform(key, size, *_):
    return jnp.full(size, 0.5) if key is None else jax.random.uniform(key, size)


def like(draw):
    return lambda key, x, *_: draw(key, x.shape)


def attention(
    key, q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
    enable_gqa=False,
):  # fmt: skip
    """Average values by the softmax of scaled products of queries and keys."""
    if enable_gqa:
        k, v = (jnp.repeat(a, q.shape[-3] // a.shape[-3], -3) for a in (k, v))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = (q * scale) @ k.swapaxes(-1, -2)
    if is_causal:
        attn_mask = np.tri(*scores.shape[-2:], dtype=bool)
    if attn_mask is not None:
        is_mask = attn_mask.dtype == bool
        scores = jnp.where(attn_mask, scores, -jnp.inf) if is_mask else scores + attn_mask
    weights = jax.nn.softmax(scores, -1)
    if attn_mask is not None and is_mask:  # where all is masked, the result is 0
        weights = jnp.where(jnp.any(attn_mask, -1, keepdims=True), weights, 0)
    return dropped(key, weights, dropout_p) @ v


def recurrent(cell, states):
    """Make layers of recurrent cells along time: axis 0, or 1 with batch_first."""

    def run(
        key, x, hx, params, has_biases, num_layers, dropout, train, bidirectional,
        batch_first,
    ):  # fmt: skip
        hx = hx if states > 1 else [hx]
        directions = 2 if bidirectional else 1
        per_cell = len(params) // (num_layers * directions)
        x, ends = x.swapaxes(0, 1) if batch_first else x, []
        for layer in range(num_layers):
            outs = []
            for direction in range(directions):
                at = layer * directions + direction
                cell_params = params[at * per_cell : (at + 1) * per_cell]
                start = tuple(h[at] for h in hx)
                end, out = _over_time(cell, x, start, cell_params, has_biases, direction == 1)
                ends.append(end)
                outs.append(out)
            x = jnp.concatenate(outs, -1)
            if train and layer < num_layers - 1:
                layer_key = None if key is None else jax.random.fold_in(key, layer)
                x = dropped(layer_key, x, dropout)
        x = x.swapaxes(0, 1) if batch_first else x
        return x, *(jnp.stack(part) for part in zip(*ends, strict=True))

    return run


def _over_time(cell, x, start, params, has_biases, backwards):
    w_in, w_state, *rest = params
    b_in, b_state = rest[:2] if has_biases else (0, 0)
    project = rest[2 * has_biases :]

    def step(state, inner):
        state = cell(state, inner, state[0] @ w_state.T + b_state)
        if project:
            state = (state[0] @ project[0].T, *state[1:])
        return state, state[0]

    return lax.scan(step, start, x @ w_in.T + b_in, reverse=backwards)


def _lstm(state, inner, hidden):
    i, f, g, o = jnp.split(inner + hidden, 4, -1)
    c = jax.nn.sigmoid(f) * state[1] + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def _gru(state, inner, hidden):
    (r, z, n), (h_r, h_z, h_n) = (jnp.split(a, 3, -1) for a in (inner, hidden))
    z = jax.nn.sigmoid(z + h_z)
    n = jnp.tanh(n + jax.nn.sigmoid(r + h_r) * h_n)
    return ((1 - z) * n + z * state[0],)


RANDOM = {
    "bernoulli": bernoulli, "gru.input": recurrent(_gru, 1),
    "lstm.input": recurrent(_lstm, 2), "native_dropout": native_dropout,
    "rand": uniform, "rand_like": like(uniform), "randn": normal,
    "randn_like": like(normal),
    "rnn_relu.input": recurrent(lambda _, a, b: (jax.nn.relu(a + b),), 1),
    "rnn_tanh.input": recurrent(lambda _, a, b: (jnp.tanh(a + b),), 1),
    "scaled_dot_product_attention": attention,
}  # fmt: skip
