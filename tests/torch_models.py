"""Networks as people write them, in PyTorch, and small."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 3


class Block(nn.Module):
    """Of a ResNet, with group norm."""

    def __init__(self, into, out, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(into, out, 3, stride, 1, bias=False)
        self.norm1 = nn.GroupNorm(2, out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norm2 = nn.GroupNorm(2, out)
        self.short = nn.Sequential()
        if stride != 1 or into != out:
            self.short = nn.Sequential(
                nn.Conv2d(into, out, 1, stride, bias=False), nn.GroupNorm(2, out)
            )

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.short(x))


def resnet18(width=4):
    layers, into = (
        [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.GroupNorm(2, width)],
        width,
    )
    layers.append(nn.ReLU())
    for i in range(4):
        out = width * 2 ** min(i, 1)  # as wide as it must be to be one
        layers += [Block(into, out, 1 if i == 0 else 2), Block(out, out)]
        into = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(into, CLASSES))


class Attention(nn.Module):
    def __init__(self, width, heads, causal, dropout=0.0):
        super().__init__()
        self.heads, self.causal, self.dropout = heads, causal, dropout
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (a.view(shape).transpose(1, 2) for a in (q, k, v))
        y = F.scaled_dot_product_attention(
            q, k, v, is_causal=self.causal,
            dropout_p=self.dropout if self.training else 0.0,
        )  # fmt: skip
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width, heads, causal, dropout=0.0):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal, dropout)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(0.02 * torch.randn(1, 5, width))
        self.layers = nn.Sequential(Layer(width, 2, False), Layer(width, 2, False))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], dim=1) + self.places
        return self.head(self.norm(self.layers(x))[:, 0])


class GPT(nn.Module):
    """A decoder whose head is its embedding, tied."""

    def __init__(self, words=7, length=6, width=8):
        super().__init__()
        self.words, self.places = (
            nn.Embedding(words, width),
            nn.Embedding(length, width),
        )
        self.drop = nn.Dropout(0.1)
        self.layers = nn.ModuleList(Layer(width, 2, True, 0.1) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.drop(self.words(tokens) + self.places(places))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def next_token(scores, tokens):
    return F.cross_entropy(scores.flatten(0, 1), tokens.flatten())


class Recurrent(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.cells = kind(4, 6, batch_first=True, **options)
        self.head = nn.Linear(12 if options.get("bidirectional") else 6, CLASSES)

    def forward(self, x):
        out, _ = self.cells(x)
        return self.head(out[:, -1])


class UNet(nn.Module):
    def __init__(self, width=4):
        super().__init__()

        def twice(into, out):
            return nn.Sequential(
                nn.Conv2d(into, out, 3, padding=1), nn.ReLU(inplace=True),
                nn.Conv2d(out, out, 3, padding=1), nn.ReLU(inplace=True),
            )  # fmt: skip

        self.down1, self.down2 = twice(3, width), twice(width, 2 * width)
        self.bottom = twice(2 * width, 2 * width)
        self.up2 = nn.ConvTranspose2d(2 * width, 2 * width, 2, 2)
        self.across2 = twice(4 * width, width)
        self.up1 = nn.ConvTranspose2d(width, width, 3, 2, 1, output_padding=1)
        self.across1 = twice(2 * width, width)
        self.head = nn.Conv2d(width, CLASSES, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        x = self.bottom(F.max_pool2d(b, 2))
        x = self.across2(torch.cat([self.up2(x), b], 1))
        x = self.across1(torch.cat([self.up1(x), a], 1))
        return self.head(x)


def every_activation():
    kinds = [
        nn.ReLU(), nn.GELU(), nn.GELU("tanh"), nn.SiLU(), nn.ELU(), nn.LeakyReLU(),
        nn.Tanh(), nn.Sigmoid(), nn.Softplus(), nn.Hardswish(), nn.Mish(), nn.PReLU(),
        nn.SELU(), nn.CELU(), nn.Hardsigmoid(), nn.Hardtanh(), nn.Softsign(),
        nn.LogSigmoid(), nn.ReLU6(), nn.Tanhshrink(), nn.Softshrink(0.1),
    ]  # fmt: skip
    layers = [part for kind in kinds for part in (kind, nn.Linear(6, 6))]
    for part in layers[1::2]:  # so that signals come through so many layers
        nn.init.orthogonal_(part.weight, 1.5)
    return nn.Sequential(nn.Linear(4, 6), *layers, nn.Linear(6, CLASSES), nn.LogSoftmax(1))


def conv1d():
    return nn.Sequential(
        nn.Conv1d(4, 6, 3, padding="same"), nn.ReLU(), nn.MaxPool1d(2),
        nn.Conv1d(6, 6, 3, stride=2, padding=1), nn.ReLU(),
        nn.AvgPool1d(2, ceil_mode=True),
        nn.ConvTranspose1d(6, 4, 3), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
        nn.Dropout(0.1), nn.Linear(4, CLASSES),
    )  # fmt: skip


class Separable(nn.Module):
    """MobileNet's inverted residual, dilated, with squeeze and excitation."""

    def __init__(self, width, dilation):
        super().__init__()
        wide = 2 * width
        self.grow = nn.Sequential(
            nn.Conv2d(width, wide, 1, bias=False), nn.GroupNorm(2, wide), nn.Hardswish()
        )
        self.depth = nn.Sequential(
            nn.Conv2d(wide, wide, 3, padding=dilation, dilation=dilation, groups=wide),
            nn.GroupNorm(2, wide), nn.ReLU6(),
        )  # fmt: skip
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, 2, 1), nn.ReLU(),
            nn.Conv2d(2, wide, 1), nn.Hardsigmoid(),
        )  # fmt: skip
        self.shrink = nn.Conv2d(wide, width, 1)

    def forward(self, x):
        y = self.depth(self.grow(x))
        return x + self.shrink(y * self.squeeze(y))


def mobilenet():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, 2, 1), Separable(4, 1), Separable(4, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(4, CLASSES),
    )  # fmt: skip


class Encoder(nn.Module):
    """nn.TransformerEncoder, with places that are a buffer."""

    def __init__(self, width=8):
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 2, 16, dropout=0.1, batch_first=True)
        self.into = nn.Linear(4, width)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, CLASSES)
        angle = torch.arange(5)[:, None] * torch.exp(
            -math.log(1e4) * torch.arange(0, width, 2) / width
        )
        self.register_buffer("places", torch.cat([angle.sin(), angle.cos()], 1))

    def forward(self, x):
        return self.head(self.layers(self.into(x) + self.places).mean(1))


def autoencoder():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2),
        nn.AdaptiveAvgPool2d((3, 3)), nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.Conv2d(4, 4, 3, padding=2, padding_mode="reflect"), nn.SiLU(),
        nn.Upsample(size=(8, 8), mode="nearest"), nn.Conv2d(4, 3, 3, padding=1),
        nn.Sigmoid(),
    )  # fmt: skip


class DLRM(nn.Module):
    """Numbers and words: a bag of words, and products of every two features."""

    def __init__(self, words=7, width=4):
        super().__init__()
        self.dense = nn.Sequential(nn.Linear(4, width), nn.ReLU())
        self.words = nn.EmbeddingBag(words, width, mode="mean")
        self.one = nn.Embedding(words, width, padding_idx=0)
        self.head = nn.Linear(width + 3, CLASSES)

    def forward(self, numbers, tokens):
        dense = self.dense(numbers)
        parts = torch.stack([dense, self.words(tokens), self.one(tokens[:, 0])], 1)
        products = torch.bmm(parts, parts.transpose(1, 2))
        row, column = torch.tril_indices(3, 3, -1)
        return self.head(torch.cat([dense, products[:, row, column]], 1))


class Norms(nn.Module):
    """ConvNeXt's layer norm over channels, instance norm, group norm, RMS norm."""

    def __init__(self, width=4):
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3, padding=1)
        self.layer, self.rms = nn.LayerNorm(width), nn.RMSNorm(width)
        self.instance = nn.InstanceNorm2d(width, affine=True)
        self.group = nn.GroupNorm(2, width)
        self.scale = nn.Parameter(torch.ones(width))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x):
        x = self.instance(self.conv(x))
        x = self.layer(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        x = self.group(F.gelu(x) * self.scale[:, None, None])
        return self.head(self.rms(x.square().mean((2, 3))))


class Case(NamedTuple):
    make: Callable[[], nn.Module]
    inputs: str
    loss: Any = nn.CrossEntropyLoss()
    targets: str = "classes"
    lr: float = 0.1


ARCHITECTURES = {
    "ResNet-18": Case(resnet18, "images"),
    "ViT": Case(ViT, "images", lr=0.03),
    "GPT": Case(GPT, "words", next_token, "words"),
    "LSTM": Case(lambda: Recurrent(nn.LSTM, num_layers=2, dropout=0.1), "series"),
    "GRU": Case(lambda: Recurrent(nn.GRU, bidirectional=True), "series"),
    "U-Net": Case(UNet, "images", nn.CrossEntropyLoss(), "pixels"),
    "every activation": Case(every_activation, "rows", nn.NLLLoss(), lr=0.02),
    "1-d convolutions": Case(conv1d, "signals"),
    "MobileNet": Case(mobilenet, "images"),
    "transformer encoder": Case(Encoder, "series"),
    "autoencoder": Case(autoencoder, "images", nn.BCELoss(), "shares", lr=0.3),
    "DLRM": Case(DLRM, "rows and words"),
    "norms": Case(Norms, "images"),
    "MLP": Case(
        lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), "rows",
        nn.MSELoss(), "numbers",
    ),
}  # fmt: skip


def samples(case: Case, count: int, seed: int) -> tuple[Any, torch.Tensor]:
    """Inputs, and targets that can be learned from them."""
    g = torch.Generator().manual_seed(seed)
    shapes = {
        "images": (3, 8, 8), "series": (5, 4), "rows": (4,), "signals": (4, 12),
    }  # fmt: skip
    words = torch.randint(0, 7, (count, 6), generator=g)
    y = torch.randint(0, CLASSES, (count,), generator=g)
    if case.inputs == "words":
        return words, words
    x = torch.randn(count, *shapes.get(case.inputs, (4,)), generator=g)
    x = x + y.reshape(-1, *[1] * (x.ndim - 1)) - 1
    targets = {
        "classes": lambda: y, "numbers": lambda: x[:, :2] ** 2,
        "pixels": lambda: (x.mean(1) > 0).long(), "shares": lambda: x.sigmoid(),
    }[case.targets]()  # fmt: skip
    return ((x, words) if case.inputs == "rows and words" else x), targets
