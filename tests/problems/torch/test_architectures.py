"""Networks as people write them give PyTorch's gradients, and learn."""

import numpy as np
import pytest
from torch_models import ARCHITECTURES, samples

import focusfl as ff
from focusfl.problems.torch import translate
from focusfl.problems.torch.eager import Eager

WHO = ff.participation.Bernoulli([0.9, 0.9, 0.5, 0.5])
QUICK = ("MLP", "DLRM")


def problem(case):
    clients = [samples(case, 12 + i, i) for i in range(4)]
    return ff.problems.from_torch(
        case.make(), case.loss, clients, batch_size=6, stream="fixed_order"
    )


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in ARCHITECTURES],
)
def test_it_has_the_gradients_of_pytorch_and_learns(name):
    case = ARCHITECTURES[name]
    made = problem(case)
    model, eager = made.mean_loss.loss_fn, Eager(made.module, case.loss)
    batch = {"x": made.samples["x"], "y": made.samples["y"]}
    one = ff.core.tree.map(lambda leaf: leaf[2][:6], batch)
    wide = Eager(made.module.double(), case.loss)
    params = ff.core.tree.map(lambda leaf: leaf.astype(float), made.x0)
    apart = translate.gaps_of(model.training, model, wide, params, translate.as_float64(one), True)
    assert max(apart) < translate.tolerance(model.training, "float64"), "no rounding to see"
    made.module.float()
    translate.compare(model, eager, made.x0, one)
    setting = {"rounds": 20, "lr": case.lr, "local_steps": 2, "eval_every": 20}
    losses = ff.simulate(ff.Focus(), made, WHO, **setting).metrics["loss"]
    assert losses[-1] < losses[0] and np.isfinite(losses[-1])
