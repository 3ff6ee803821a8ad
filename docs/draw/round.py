"""Draw one round of FOCUS in four pictures, and what absence does, with real numbers.

Four clients with f_i(x) = (x - b_i)^2 / 2; every number comes from `ff.Focus`.
"""

import argparse

import numpy as np
import svg

import focusfl as ff
from focusfl.core import Round

B = (10.0, 20.0, 30.0, 60.0)  # what each client wants; x* is their mean, 30
EARLIER, NOW = [[0, 1, 2, 3]], [0, 2]
LR, STEPS, N = 0.1, 2, len(B)
WIDTH, HEIGHT = 720, 392
PLACES = [20 + 174 * i for i in range(N)]


def play(alg, server, clients, active, index):
    """One round by the contract; also what was pushed, by client."""
    rd = Round(index, LR, STEPS, N, len(active))
    down, ups, clients = alg.broadcast(server), {}, list(clients)
    for i in active:
        local = alg.pull(clients[i], down)
        for _ in range(STEPS):
            local = alg.step(local, lambda x, batch, i=i: x - B[i], None, rd)
        clients[i], ups[i] = alg.push(clients[i], down, local, rd)
    total = {"y": sum(up["y"] for up in ups.values())}
    return alg.update(server, total, rd), clients, {i: up["y"] for i, up in ups.items()}


def number(value) -> str:
    return f"{round(float(value), 2):g}".replace("-", "−")


def signed(value) -> str:
    return ("+ " if value >= 0 else "− ") + number(abs(value))


def scenario(name, title, server, below, clients, arrows, heads, foot, middle="", glow=False):
    """The server above, the clients below, and what happens between them."""
    parts = [
        svg.text(20, 34, title, 20, weight="600"),
        svg.box(160, 54, 400, 84, "#eef5fb" if glow else "#f7f8fa", svg.BLUE),
        svg.text(360, 84, "server", 17, svg.PALE, "middle"),
        svg.text(360, 114, server, 20, anchor="middle", weight="600"),
    ]
    for i, x in enumerate(PLACES):
        here = i in NOW
        parts.append(
            svg.box(x, 250, 158, 84, "#fff" if here else "#f4f4f6",
                    svg.BLUE if here else svg.LINE, dash="" if here else "5 4")
        )  # fmt: skip
        colour = svg.INK if here else svg.PALE
        head = heads.get(i, f"client {i + 1}" + ("" if here else ", away"))
        parts.append(svg.text(x + 79, 279, head, 16, svg.PALE, "middle"))
        parts.append(svg.text(x + 79, 311, clients[i], 18, colour, "middle"))
    for i, words in arrows.items():
        x, top = PLACES[i] + 79, 360 + (PLACES[i] + 79 - 360) * 0.42
        ends = (top, 142, x, 246) if below == "down" else (x, 246, top, 142)
        parts.append(svg.arrow(*ends, svg.BLUE if below == "down" else svg.ORANGE))
        left = i == NOW[0]
        at = (x + top) / 2 + (-18 if left else 18)
        anchor = "end" if left else "start"
        parts.append(svg.text(at, 200, words, 17, anchor=anchor, weight="600"))
    parts.append(svg.text(360, 200, middle, 18, svg.ORANGE, "middle", "600"))
    parts.append(svg.text(360, 370, foot, 17, svg.INK, "middle"))
    svg.write(name, title, WIDTH, HEIGHT, parts)


def round_pictures():
    alg = ff.Focus(memory="last")
    server, client = alg.init(np.float64(0.0))
    clients = [client] * N
    for index, active in enumerate(EARLIER):
        server, clients, _ = play(alg, server, clients, active, index)
    after, moved, ups = play(alg, server, clients, NOW, len(EARLIER))
    x, y, y_new = number(server.x), number(server.y), number(after.y)

    def added(memories):
        first, *rest = (memory.grad for memory in memories)
        return " ".join([number(first), *map(signed, rest)])

    old = [f"g = {number(c.grad)}" for c in clients]
    new = [f"g = {number(c.grad)}" for c in moved]
    change = {i: f"y{'₁₂₃₄'[i]} = {number(ups[i])}" for i in NOW}
    turned = list(old)
    for i in NOW:
        turned[i] = f"{number(clients[i].grad)} → {number(moved[i].grad)}"
    scenario(
        "round-1", "1. Pull", f"x = {x},  y = {y}", "down", old,
        {i: f"x = {x}" for i in NOW}, {},
        f"y is the sum of everybody's last gradient:  {added(clients)} = {y}",
    )  # fmt: skip
    scenario(
        "round-2", "2. Local steps follow the change of the gradient",
        f"x = {x},  y = {y}", "up", turned, {},
        {i: f"client {i + 1}: gradient" for i in NOW},
        "yᵢ: the gradient now less that left behind;  " + ",  ".join(change.values()),
        middle="τ times:  xᵢ ← xᵢ − η yᵢ",
    )  # fmt: skip
    scenario(
        "round-3", "3. Push, and sum",
        f"y = {y} {' '.join(map(signed, ups.values()))} = {y_new}", "up", new,
        change, {}, f"still the sum of everybody's last:  {added(moved)} = {y_new}",
        glow=True,
    )  # fmt: skip
    scenario(
        "round-4", "4. The server steps",
        f"x = {x} − {LR} · ({y_new}) = {number(after.x)}", "up", new, {}, {},
        "clients 2 and 4 were away, and counted: with the gradient they left behind",
        middle="x ← x − η y", glow=True,
    )  # fmt: skip


def delay_picture(rounds=48, num_clients=8, side=13):
    """How old the gradients in y are: absence is an age, not a weight."""
    p = np.geomspace(0.9, 0.06, num_clients)
    here = ff.participation.masks(ff.participation.Bernoulli(p), num_clients, rounds, seed=3)
    age, ages = np.full(num_clients, -1), []
    for row in here:
        age = np.where(row, 0, np.where(age < 0, -1, age + 1))
        ages.append(age)
    shades = ("#0072B2", "#4d9ccb", "#99c7e2", "#d5e7f2")
    bounds = (0, 1, 4, 12)  # ages [0, 1), [1, 4), ...
    names = ("here now", "1–3 rounds old", "4–11", "12 and more")
    left, right = 92, 92 + side * rounds
    parts = [svg.text(20, 32, "The gradients that make up y, by age", 18, weight="600")]
    parts.append(svg.text(right, 32, "rounds →", 14, svg.PALE, "end"))
    grid = np.array(ages).T
    for i in range(num_clients):
        parts.append(svg.text(20, 68 + 22 * i, f"p = {p[i]:.2f}", 14, svg.PALE))
    ends = (*bounds[1:], np.inf)
    for shade, low, high in zip(shades, bounds, ends, strict=True):
        here = (grid >= low) & (grid < high)
        parts.append(svg.cells(here, left, 52, side, 22, shade))
    x = left
    for shade, name in zip(shades, names, strict=True):
        parts.append(svg.cells([[True]], x, 242, 16, 18, shade))
        parts.append(svg.text(x + 24, 255, name, 14, svg.PALE))
        x += 50 + 8 * len(name)
    svg.write("delay", "Age of the gradients in y", 740, 276, parts)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.split("\n")[0]).parse_args()
    round_pictures()
    delay_picture()
