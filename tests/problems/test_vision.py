"""The image model, its convolutions rewritten, and what happens to images before."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import gap

import focusfl as ff
from focusfl.core import Batch
from focusfl.problems import models, networks
from focusfl.problems.convolutions import Fast


def images(count, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    return {"x": x, "y": rng.integers(0, 10, count, dtype=np.int32)}


def small(**options):
    return ff.problems.from_loss(
        networks.image_loss, models.cnn_params(), [images(8, i) for i in range(3)],
        batch_size=4, eval_data=images(10), metrics_fn=networks.image_metrics, **options,
    )  # fmt: skip


def test_the_model_has_the_papers_size():
    assert sum(a.size for a in jax.tree.leaves(models.cnn_params())) == 541_094


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_scores_and_gradients_are_those_of_plain_convolutions(backend, monkeypatch):
    """By pixels, and in the blocks that a GPU is given, wherever the test runs."""
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    params = models.cnn_params(1)
    x = np.random.default_rng(0).normal(size=(4, 32, 32, 3)).astype(np.float32)
    weigh = np.random.default_rng(1).normal(size=(4, 10)).astype(np.float32)

    def both(net):
        return jax.jit(jax.value_and_grad(lambda p: (net(p, x) * weigh).sum()))(params)

    with jax.enable_x64(True):  # rounding decides which of two near equals is larger
        params, x, weigh = jax.tree.map(lambda a: a.astype(float), (params, x, weigh))
        (ours, our_grad), (theirs, their_grad) = (
            both(Fast(models.cnn_scores)),
            both(models.cnn_scores),
        )
    assert float(ours) == pytest.approx(float(theirs), rel=1e-12)
    assert gap(our_grad, their_grad) < 1e-10


def test_pixels_have_mean_0_and_spread_1_by_the_papers_numbers():
    black, white = networks.pixels(np.array([[0] * 3, [255] * 3], np.uint8), "float32")
    assert np.asarray(black) == pytest.approx([-2.4291, -2.4183, -2.2214], abs=1e-3)
    assert np.asarray(white) == pytest.approx([2.5141, 2.5968, 2.7537], abs=1e-3)


def test_crops_shift_by_up_to_four_pixels_and_bring_in_black():
    one = 1 + np.arange(32 * 32, dtype=np.int32).reshape(32, 32, 1)  # all different
    many = np.broadcast_to(one, (400, 32, 32, 1))
    moved = networks.crop_and_flip(jax.random.key(0), {"x": jnp.asarray(many)})["x"]
    frame = np.pad(one[..., 0], 4)
    expected = {
        (top, left, flip): frame[top : top + 32, left : left + 32][:, ::flip]
        for top in range(9)
        for left in range(9)
        for flip in (1, -1)
    }
    by_bytes = {a.astype(np.int32).tobytes(): how for how, a in expected.items()}
    found = [by_bytes[np.asarray(a[..., 0]).tobytes()] for a in moved]
    assert {how[0] for how in found} == {how[1] for how in found} == set(range(9))
    assert 140 < sum(how[2] == -1 for how in found) < 260


def test_augmentation_is_part_of_the_gradient_and_of_nothing_else():
    plain, changed = small(), small(augment=networks.crop_and_flip)
    data = jax.tree.map(lambda a: a[0], plain.data)
    x, key = plain.x0, jax.random.key(3)
    grads = [
        problem.objective.grad(x, data, Batch(key, number))
        for problem in (plain, changed)
        for number in (0, 2)  # the same places, one epoch apart or not
    ]
    assert gap(grads[2], grads[0]) > 1e-2
    assert gap(grads[3], grads[2]) > 1e-2
    one, two = (p.objective.evaluate(x, p.eval_data) for p in (plain, changed))
    assert one["loss"] == two["loss"]


def test_lower_precision_computes_with_it_and_keeps_the_state():
    exact, rough = (
        ff.simulate(
            ff.Focus(), small(compute_dtype=dtype), ff.participation.Full(), rounds=2,
            lr=1e-3, local_steps=2, eval_every=2,
        )
        for dtype in (None, "bfloat16")
    )  # fmt: skip
    assert rough.x["hidden"]["w"].dtype == "float32"
    assert 1e-6 < gap(rough.server.y, exact.server.y) < 0.05
