"""Operators of ATen in jax, many at a time: an export takes longer than all of them."""

import jax
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from focusfl.problems.torch.eager import leaves, relative_gap
from focusfl.problems.torch.export import exported, write_program

ROWS = {
    "pick": lambda x: (x[:, [0, 2]], x[0], x[:, -1], x[1:3, ::2], x.select(1, 2)),
    "move": lambda x: (
        x.T, x.flip(0), x.roll(2, 1), x.repeat(2, 1), x.unfold(1, 3, 2),
        x.chunk(3, 1)[1], torch.stack([x, 2 * x], 1), x.unbind(0)[1], x.expand(2, 4, 6),
        x.repeat_interleave(2, 0), torch.cat([x, x], 1), F.pad(x, (1, -1), value=2.0),
        x.unsqueeze(1).squeeze(), x.tril(1), x.triu(-1), torch.diagonal(x),
    ),
    "reduce": lambda x: (
        x.sum(), x.mean(1), x.std(1), x.var(0, unbiased=False), x.prod(1), x.amax(1),
        x.max(1)[0], x.min(0, keepdim=True)[0], x.median(1)[0], x.max(), x.norm(dim=1),
        x.norm(1), x.norm(float("inf"), 1), torch.norm(x, 3, 1), x.logsumexp(1),
        x.cumsum(1), x.cumprod(1), x.logcumsumexp(1), torch.var_mean(x, 1)[0],
        x.sort(1)[0], x.topk(2, 1)[0], x * x.argmax(1, True), (0 * x).norm(dim=1),
    ),
    "fall apart": lambda x: (x.var(0, unbiased=False), x.std(1, unbiased=False)),
    "stay whole": lambda x: (x.mean(1), (x - 2 * x).relu(), x.exp() / 3, x.amax(1)),
    "write": lambda x: (
        torch.zeros_like(x).scatter_add(1, torch.arange(6).flip(0).expand(4, 6), x),
        x.scatter(1, torch.zeros(4, 1, dtype=torch.long), 5.0),
        x.masked_fill(x > 1, float("-inf")).softmax(1), torch.where(x > 0, x, 0.0),
        x.index_fill(1, torch.tensor([1]), 3.0),
        x.index_add(0, torch.tensor([1]), x[:1]),
        x.gather(1, torch.tensor([[0], [5], [1], [1]])), x.clone().mul_(2).add_(x),
    ),
    "compute": lambda x: (
        x @ x.T, torch.einsum("bi,bj->bij", x, x), torch.outer(x[0], x[1]),
        torch.cdist(x, x.flip(0) + 1), F.normalize(x),
        F.cosine_similarity(x, x.flip(0)),
        (x**2 + 1) ** 0.5, x.clamp(-0.5, 0.5), x / 3 + 2 - x, x.detach() // 2,
        x.remainder(0.7),
        torch.lerp(x, 2 * x, 0.3), torch.atan2(x, x.flip(0)), x.abs().log1p().exp(),
        x * torch.arange(6), x * torch.linspace(0, 1, 6), (x > 0).float() * x,
        F.one_hot(x.argmax(1), 6) * x, torch.addmm(x[:, :4], x, x.T), x.erf(),
        x.abs().rsqrt(),
        x.detach() * x, torch.baddbmm(x[None, :, :4], x[None], x.T[None]), x.sinh(),
    ),
    "activate": lambda x: tuple(
        f(3 * x)
        for f in (
            F.relu, F.relu6, F.gelu, F.silu, F.elu, F.celu, F.selu, F.leaky_relu,
            F.softplus, F.mish, F.hardswish, F.hardsigmoid, F.hardtanh, F.softsign,
            F.logsigmoid, F.tanhshrink, F.softshrink, F.hardshrink, torch.sigmoid,
        )
    ) + (F.glu(x), F.threshold(x, 0.1, 2.0), F.gelu(x, approximate="tanh")),
}  # fmt: skip
IMAGES = {
    "convolve": nn.ModuleList([
        nn.Conv2d(4, 6, 3, 2, 1, 2), nn.Conv2d(4, 8, (3, 5), groups=2, padding="same"),
        nn.Conv2d(4, 4, 3, groups=4, padding_mode="reflect", padding=1),
        nn.Conv2d(4, 4, 3, padding_mode="circular", padding=1),
        nn.ConvTranspose2d(4, 6, 3, 2, 1, 1),
        nn.ConvTranspose2d(4, 6, (4, 3), (2, 1), 1, groups=2, dilation=(1, 2)),
    ]),
    "pool": nn.ModuleList([
        nn.MaxPool2d(3, 2, 1), nn.MaxPool2d(2, ceil_mode=True),
        nn.MaxPool2d(2, dilation=2), nn.AvgPool2d(3, 2, 1, ceil_mode=True),
        nn.AvgPool2d(3, 2, 1, count_include_pad=False), nn.AvgPool2d(2, ceil_mode=True),
        nn.AvgPool2d(2, divisor_override=3), nn.AdaptiveAvgPool2d((4, 2)),
        nn.AdaptiveMaxPool2d(3),
    ]),
    "resample": nn.ModuleList([
        nn.Upsample(scale_factor=2), nn.Upsample(size=(13, 5)),
        nn.Upsample(scale_factor=1.7, mode="bilinear", align_corners=True),
        nn.Upsample(size=(5, 20), mode="bilinear"), nn.PixelShuffle(2), nn.Unfold(3),
        nn.Upsample(scale_factor=2.3, mode="bicubic"), nn.ReplicationPad2d(1),
    ]),
    "norm": nn.ModuleList([
        nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True), nn.LayerNorm((4, 9, 9)),
        nn.BatchNorm2d(4), nn.LocalResponseNorm(3), nn.PReLU(4), nn.RMSNorm(9),
    ]),
}  # fmt: skip
SERIES = nn.ModuleList([
    nn.LSTM(6, 4, 2, batch_first=True, bidirectional=True),
    nn.LSTM(6, 4, proj_size=2, bias=False), nn.GRU(6, 4, 2, bidirectional=True),
    nn.RNN(6, 4, 2, nonlinearity="relu"), nn.RNN(6, 4),
])  # fmt: skip


class Each(nn.Module):
    """All of some functions, of the same argument."""

    def __init__(self, parts):
        super().__init__()
        self.parts = parts

    def forward(self, x):
        if isinstance(self.parts, nn.ModuleList):
            return [part(x) for part in self.parts]
        return self.parts(x)


class Losses(nn.Module):
    def forward(self, x):
        y, of = torch.tensor([0, 2, 1, 0]), x[:, :3]
        share, number = of.detach().sigmoid().flip(0), of.detach().flip(0)
        return (
            F.cross_entropy(of, y, label_smoothing=0.1), F.cross_entropy(of, share),
            F.nll_loss(of, y, x.new_ones(3)), F.mse_loss(of, number),
            F.l1_loss(of, number), F.smooth_l1_loss(of, number),
            F.huber_loss(of, number), F.binary_cross_entropy(of.sigmoid(), share),
            F.binary_cross_entropy_with_logits(of, share, pos_weight=x.new_ones(3)),
            F.kl_div(of, share, reduction="batchmean"), F.multi_margin_loss(of, y),
            F.poisson_nll_loss(of, share), F.hinge_embedding_loss(of, number.sign()),
        )  # fmt: skip


def differ(module, x):
    """How far outputs and gradients are from PyTorch's, in float64."""
    module, x = module.double().eval(), x.double().requires_grad_()
    theirs = leaves(module(x))
    weights = [torch.randn_like(a) for a in theirs]
    total = sum((a * w).sum() for a, w in zip(theirs, weights, strict=True))
    names = dict(module.named_parameters())
    gave = torch.autograd.grad(total, [*names.values(), x], allow_unused=True)
    gave = [torch.zeros(1) if a is None else a for a in gave]
    run = write_program(exported(module, (x.detach(),)), {n: n for n in names}, "float64")

    def ours(params, x):
        found = run(params, [x])
        pairs = zip(found, weights, strict=True)
        return sum((a * w.numpy()).sum() for a, w in pairs), found

    with jax.enable_x64(True):
        params = {name: leaf.detach().numpy() for name, leaf in names.items()}
        grad = jax.jit(jax.grad(ours, (0, 1), has_aux=True))
        (own, own_x), found = grad(params, x.detach().numpy())
    return relative_gap(found, theirs), relative_gap([own[n] for n in names] + [own_x], gave)


@pytest.mark.parametrize("kind", ROWS)
def test_functions_of_rows(kind):
    # Constants are of float32 there, and rounded by another library here.
    assert max(differ(Each(ROWS[kind]), torch.randn(4, 6))) < 1e-6


@pytest.mark.parametrize("kind, times", [("stay whole", 0), ("fall apart", 1)])
def test_a_module_is_taken_apart_where_an_operator_needs_it(kind, times, monkeypatch):
    """Not every overload of a name that is known is what its translation is of."""
    taken, kept = [], torch.export.ExportedProgram
    real = kept.run_decompositions
    monkeypatch.setattr(kept, "run_decompositions", lambda *args: taken.append(args) or real(*args))
    write_program(exported(Each(ROWS[kind]), (torch.randn(4, 6),)), {}, "float64")
    assert len(taken) == times


@pytest.mark.parametrize("kind", IMAGES)
def test_layers_of_images(kind):
    assert max(differ(Each(IMAGES[kind]), torch.randn(2, 4, 9, 9))) < 1e-10


def test_layers_of_series():
    assert max(differ(Each(SERIES), torch.randn(3, 5, 6))) < 1e-10


@pytest.mark.slow
def test_layers_of_volumes():
    volumes = [nn.Conv3d(3, 4, 3), nn.MaxPool3d(2), nn.AvgPool3d(2)]
    volumes += [nn.ConvTranspose3d(3, 2, 2, 2), nn.AdaptiveAvgPool3d((2, 3, 4))]
    volumes += [nn.Upsample(scale_factor=2, mode="trilinear")]
    found = differ(Each(nn.ModuleList(volumes)), torch.randn(2, 3, 4, 6, 6))
    assert max(found) < 1e-10


def test_losses():
    assert max(differ(Losses(), torch.randn(4, 6))) < 1e-10


def test_what_overflows_has_a_gradient_still():
    """As in PyTorch, which has kernels of its own for these."""
    parts = [nn.ELU(), nn.CELU(), nn.SELU(), nn.Softplus(), nn.Mish(), nn.LogSigmoid()]
    far = torch.tensor([[-1e4, -1e2, 0.0, 1e2, 1e4]])
    assert max(differ(Each(nn.ModuleList(parts)), far)) < 1e-10


def test_a_label_of_no_class_has_no_loss():
    scores, y = torch.randn(2, 3), torch.tensor([0, 1])
    found = exported(Each(lambda x: F.cross_entropy(scores, x, reduction="none")), (y,))
    run = write_program(found, {}, "float32")
    for wrong in (3, -1):
        assert np.isnan(run({}, [np.array([0, wrong])])[0]).tolist() == [False, True]
