"""Convolutions and pools as products: the same numbers, wherever they stand."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import focusfl as ff
from focusfl.problems.convolutions import Fast, rewrite

RNG = np.random.default_rng(0)


def draw(*shape):
    return jnp.array(RNG.standard_normal(shape), jnp.float32)


def agree(function, *args, rtol=2e-5):
    """Values and gradients are equal to rounding; no convolution is left."""

    def scalar(f, *args):
        out = jax.tree.leaves(f(*args))
        return sum((jnp.sin(a + 0.1) * a).sum() for a in out)

    every = tuple(range(len(args)))
    wanted = jax.jit(jax.value_and_grad(partial(scalar, function), every))(*args)
    fast = jax.value_and_grad(partial(scalar, Fast(function)), every)
    for a, b in zip(*map(jax.tree.leaves, (wanted, jax.jit(fast)(*args))), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        assert np.abs(a - b).max() <= rtol * (1 + np.abs(a).max())
    return str(jax.make_jaxpr(fast)(*args))


def gone(text):
    return not any(
        name in text for name in ("conv_general_dilated", "reduce_window", "select_and_scatter")
    )


@pytest.mark.parametrize("numbers", ["NHWC HWIO NHWC", "CHWN IHWO HWNC"])
@pytest.mark.parametrize(
    "strides, padding, lhs, rhs, groups",
    [
        ((1, 1), "SAME", (1, 1), (1, 1), 1),
        ((2, 1), "VALID", (1, 1), (1, 1), 1),
        ((2, 3), ((2, 1), (0, 3)), (1, 1), (1, 1), 1),
        ((1, 1), ((2, 2), (2, 2)), (1, 1), (2, 3), 1),
        ((1, 1), ((1, 1), (1, 1)), (2, 2), (1, 1), 1),  # transposed
        ((1, 1), ((-1, 1), (1, -1)), (1, 1), (1, 1), 1),
        ((1, 2), "SAME", (1, 1), (1, 1), 2),
        ((1, 1), "SAME", (1, 1), (2, 2), 6),  # every channel by itself
    ],
)
def test_two_axes(numbers, strides, padding, lhs, rhs, groups):
    sizes = {"N": 4, "H": 9, "W": 8, "C": 6, "I": 6 // groups, "O": 12}
    one, two, _ = spec = numbers.split()
    x = draw(*(sizes[axis] for axis in one))
    w = draw(*({**sizes, "H": 3, "W": 2}[axis] for axis in two))
    if isinstance(padding, str) and "SAME" == padding and rhs != (1, 1):
        padding = ((2, 2), (1, 1))

    def convolution(x, w):
        return lax.conv_general_dilated(x, w, strides, padding, lhs, rhs, spec, groups)

    assert gone(agree(convolution, x, w))


def test_one_and_three_axes():
    def one(x, w):
        return lax.conv_general_dilated(x, w, (2,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"))

    def three(x, w):
        return lax.conv_general_dilated(x, w, (1, 2, 1), "VALID")

    assert gone(agree(one, draw(3, 11, 4), draw(5, 4, 6)))
    assert gone(agree(three, draw(2, 3, 5, 6, 4), draw(4, 3, 2, 3, 2)))


@pytest.mark.parametrize("blocks", [False, True])  # the second is what a GPU does
@pytest.mark.parametrize("pool", [nn.max_pool, nn.avg_pool])
@pytest.mark.parametrize(
    "window, strides, padding",
    [((2, 2), (2, 2), "VALID"), ((3, 3), (2, 2), ((1, 1), (1, 1))),
     ((3, 2), (1, 2), "SAME"), ((2, 2), (2, 2), ((0, 1), (1, 0)))],
)  # fmt: skip
def test_pools_after_a_convolution(monkeypatch, blocks, pool, window, strides, padding):
    monkeypatch.setattr(rewrite, "BLOCKS", blocks)

    def layers(x, w):
        x = lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return pool(jax.nn.relu(x), window, strides, padding)

    text = agree(layers, draw(3, 8, 8, 2), draw(3, 3, 2, 4))
    assert pool is nn.avg_pool or gone(text)


def test_the_first_of_equals_gets_the_gradient():
    x = jnp.zeros((1, 4, 4, 1))

    def pool(x):
        return nn.max_pool(x, (2, 2), (2, 2)).sum()

    assert np.array_equal(jax.grad(Fast(pool))(x), jax.grad(pool)(x))


class Block(nn.Module):
    """What people stack: normed, activated, joined, with a shortcut."""

    @nn.compact
    def __call__(self, x):
        y = nn.Conv(8, (3, 3), (2, 2), use_bias=False)(x)
        y = nn.gelu(nn.GroupNorm(4)(y))
        y = nn.Conv(8, (3, 3), feature_group_count=8)(y)
        y = nn.silu(nn.LayerNorm()(y)) + nn.Conv(8, (1, 1), (2, 2))(x)
        y = jnp.concatenate([y, nn.leaky_relu(-y)], -1)
        y = nn.ConvTranspose(6, (2, 2), (2, 2))(y)
        y = nn.max_pool(jnp.pad(y, ((0, 0), (1, 0), (0, 1), (0, 0))), (2, 2), (2, 2))
        return nn.Dense(3)(y[:, ::-1].mean((1, 2)))


@pytest.mark.parametrize("blocks", [False, True])
def test_a_flax_network(monkeypatch, blocks):
    monkeypatch.setattr(rewrite, "BLOCKS", blocks)
    x = draw(5, 8, 8, 3)
    params = Block().init(jax.random.key(0), x)
    text = agree(lambda p, x: Block().apply(p, x), params, x, rtol=1e-4)
    assert gone(text)


def double(x, w):
    return lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


@jax.custom_jvp
def squashed(x, w):
    return jnp.tanh(double(x, w))


@squashed.defjvp
def _(primals, tangents):
    out, slope = jax.jvp(double, primals, tangents)
    return jnp.tanh(out), 2 * slope  # not the true one: it must be this that is used


@jax.custom_vjp
def twice(x, w):
    return double(x, w)


twice.defvjp(lambda x, w: (double(x, w), (x, w)), lambda kept, g: (3 * g, kept[1] * 5))

INSIDE = {
    "jit": jax.jit(double),
    "checkpoint": jax.checkpoint(double),
    "scan": lambda x, w: lax.scan(lambda x, _: (double(x, w), x.sum()), x, None, 3)[0],
    "while": lambda x, w: lax.fori_loop(0, 2, lambda i, x: double(x, w), x),
    "cond": lambda x, w: lax.cond(x.sum() > 0, double, lambda x, w: 2 * x, x, w),
    "vmap": lambda x, w: jax.vmap(double, (None, 0))(x, jnp.stack([w, -w])),
    "custom_jvp": squashed,
    "custom_vjp": twice,
}


@pytest.mark.parametrize("name", INSIDE)
def test_functions_inside(name):
    agree(INSIDE[name], draw(2, 5, 5, 3), draw(3, 3, 3, 3) / 3)


def test_vmap_and_scan_outside():
    """Clients have weights of their own, and steps are a scan."""
    x, w = draw(4, 6, 6, 2), draw(3, 3, 3, 2, 2)

    def trained(f, w):
        def step(w, _):
            return w - 0.01 * jax.grad(lambda w: (f(x, w) ** 2).mean())(w), None

        return lax.scan(step, w, None, 3)[0]

    fast, plain = (jax.vmap(partial(trained, f))(w) for f in (Fast(double), double))
    assert np.abs(fast - plain).max() < 1e-5


def test_what_has_no_convolution_is_left_alone():
    def plain(x):
        return jnp.sin(x.T) @ x

    x = draw(3, 3)
    assert str(jax.make_jaxpr(Fast(plain))(x)) == str(jax.make_jaxpr(plain)(x))


def test_a_problem_gives_the_same_run_either_way():
    def loss(params, samples):
        y = nn.max_pool(jax.nn.relu(double(samples["x"], params["w"])), (2, 2), (2, 2))
        return (y.mean((1, 2, 3)) - samples["y"]) ** 2

    clients = [{"x": np.asarray(draw(12, 6, 6, 2)), "y": np.asarray(draw(12))} for _ in range(3)]
    params = {"w": np.asarray(draw(3, 3, 2, 4))}
    runs = [
        ff.simulate(
            ff.Focus(),
            ff.problems.from_loss(
                loss, params, clients, batch_size=4, eval_data=clients[0],
                fast_convolutions=fast,
            ),
            ff.participation.Bernoulli(0.6), rounds=6, lr=0.01, local_steps=2,
        )
        for fast in (True, False)
    ]  # fmt: skip
    assert np.abs(runs[0].x["w"] - runs[1].x["w"]).max() < 1e-5
    assert np.abs(runs[0].x["w"] - params["w"]).max() > 1e-3


@pytest.mark.parametrize("size", [(2, 2), (3, 3), (4, 5)])
def test_blocks_of_a_convolution_and_a_pool(monkeypatch, size):
    """A bias, two activations and a transpose stand between, and change nothing."""

    def layers(x, w, b):
        x = lax.conv_general_dilated(x, w, (1, 1), ((2, 1), (1, 2)))
        x = jax.nn.silu(jax.nn.relu(x + b[:, None, None])).transpose(0, 2, 3, 1)
        return nn.max_pool(x, (2, 2), (2, 2))

    height, width = size
    x, w = draw(3, 2, 8 + height, 10 + width), draw(4, 2, *size)
    monkeypatch.setattr(rewrite, "BLOCKS", True)
    with jax.enable_x64(True):
        args = [jnp.array(a, jnp.float64) for a in (x, w, draw(4))]
        text = agree(layers, *args, rtol=1e-13)
        inside = str(jax.make_jaxpr(Fast(layers))(*args))
    assert gone(text) and "largest_of_blocks" in inside
