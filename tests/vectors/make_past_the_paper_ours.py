"""Write past_the_paper_ours.npz: trajectories of methods that are in no paper.

Plain numpy, written from their rules and not from the library, which it does not
import: the transported trackers are kept as y and P, moved with x, where the library
keeps lines. Run it anywhere: `python tests/vectors/make_past_the_paper_ours.py`.
"""

from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
FILES = ["bernoulli_tau3", "cyclic_tau1", "ridge_weighted_tau5"]


class Setting:
    """A vector file: quadratics, who takes part, the step and the local steps."""

    def __init__(self, name):
        with np.load(HERE / f"{name}.npz") as v:
            self.H, self.h, self.masks, self.x0 = (v[key] for key in ("H", "h", "masks", "x0"))
            self.eta, self.tau = float(v["eta"]), int(v["tau"])
        self.N, self.d = self.h.shape

    def grad(self, i, x):
        return self.H[i] @ x - self.h[i]

    def rounds(self):
        """The sets of the rounds; an empty one leaves everything as it is."""
        return [np.flatnonzero(mask) for mask in self.masks]


def cut(value, most):
    return min(max(value, 0.0), most)


def focus_mean(s):
    x, y, memory = s.x0.copy(), np.zeros(s.d), np.zeros((s.N, s.d))
    out = [x]
    for active in s.rounds():
        if len(active):
            pushed = np.zeros(s.d)
            for i in active:
                z, u, total = x, np.zeros(s.d), np.zeros(s.d)
                for _ in range(s.tau):
                    z = z - s.eta * u
                    g = s.grad(i, z)
                    u = g - memory[i]
                    total = total + g
                pushed = pushed + total / s.tau - memory[i]
                memory[i] = total / s.tau
            y = y + pushed
            x = x - s.eta * y
        out.append(x)
    return np.array(out)


def anchored_focus(s, anchor=0.2):
    x, rho = s.x0.copy(), anchor / (s.N * s.eta)
    mean, point = np.zeros((s.N, s.d)), np.zeros((s.N, s.d))
    seen, out = np.zeros(s.N, bool), [x]
    for active in s.rounds():
        if len(active):
            for i in active:
                z, u, grads = x, np.zeros(s.d), []
                for _ in range(s.tau):
                    z = z - s.eta * u
                    grads.append(s.grad(i, z))
                    u = grads[-1] - mean[i]
                mean[i], point[i], seen[i] = np.mean(grads, axis=0), x, True
            drawn = mean + rho * (x - point)
            x = x - s.eta * drawn[seen].sum(0)
        out.append(x)
    return np.array(out)


class Clients:
    """What everybody remembers, and what it makes of it."""

    def __init__(self, s):
        self.point, self.g = np.zeros((s.N, s.d)), np.zeros((s.N, s.d))
        self.rho, self.seen = np.zeros(s.N), np.zeros(s.N, bool)

    def guess(self, i, x):
        return self.g[i] + self.rho[i] * (x - self.point[i])

    def renew(self, i, point, g, most, x):
        """Store a gradient; give how the guess at x and the curvature changed."""
        before, rho = self.guess(i, x), 0.0
        if self.seen[i]:
            move, change = point - self.point[i], g - self.g[i]
            rho = cut(move @ change / (move @ move), most)
        more = rho - self.rho[i]
        self.point[i], self.g[i], self.rho[i], self.seen[i] = point, g, rho, True
        return self.guess(i, x) - before, more


def t_focus(s):
    x, y, P, clients = s.x0.copy(), np.zeros(s.d), 0.0, Clients(s)
    out = [x]
    for active in s.rounds():
        if len(active):
            pushed, more = np.zeros(s.d), 0.0
            for i in active:
                guess, z, u = clients.guess(i, x), x, np.zeros(s.d)
                for _ in range(s.tau):
                    z = z - s.eta * u
                    g = s.grad(i, z)
                    u = g - guess
                a, b = clients.renew(i, z, g, 1 / (s.N * s.eta), x)
                pushed, more = pushed + a, more + b
            y, P = y + pushed, P + more
            x = x - s.eta * y
            y = y * (1 - s.eta * P)
        out.append(x)
    return np.array(out)


def t_scaffold(s, option, momentum=0.5):
    x, y, P, clients, share = s.x0.copy(), np.zeros(s.d), 0.0, Clients(s), 1.0
    # What the gradient of local step t is multiplied by in the sum of all steps.
    weights = [sum(momentum**j for j in range(s.tau - t)) for t in range(s.tau)]
    out = [x]
    for active in s.rounds():
        if len(active):
            moved, pushed, more = np.zeros(s.d), np.zeros(s.d), 0.0
            gamma = 1.0 if option == "1-up" else np.sqrt(share)
            for i in active:
                guess, z, move = clients.guess(i, x), x, np.zeros(s.d)
                points, grads = [], []
                for _ in range(s.tau):
                    points.append(z)
                    grads.append(s.grad(i, z))
                    slope = y / s.N + gamma * (grads[0] - guess) + grads[-1] - grads[0]
                    move = momentum * move - s.eta * slope
                    z = z + move
                most = 1 / (s.tau * s.eta)
                if option == 1:
                    g = grads[0]
                elif option == 2:
                    way, rho = points[-1] - x, 0.0
                    if s.tau > 1:
                        rho = cut(way @ (grads[-1] - grads[0]) / (way @ way), most)
                    g = np.mean(grads, axis=0) + rho * (x - np.mean(points, axis=0))
                else:
                    g = np.average(grads, axis=0, weights=weights)
                a, b = clients.renew(i, x, g, most, x)
                moved, pushed, more = moved + z - x, pushed + a, more + b
            y, P = y + pushed, P + more
            delta = moved / len(active)
            x, y = x + delta, y + P * delta
            share = (share + len(active) / s.N) / 2
        out.append(x)
    return np.array(out)


METHODS = {
    "focus_mean": focus_mean,
    "anchored_focus": anchored_focus,
    "t_focus": t_focus,
    "t_scaffold_1": lambda s: t_scaffold(s, 1),
    "t_scaffold_2": lambda s: t_scaffold(s, 2),
    "t_scaffold_1up": lambda s: t_scaffold(s, "1-up"),
}


if __name__ == "__main__":
    found = {
        f"{file}_{name}": method(Setting(file))
        for file in FILES
        for name, method in METHODS.items()
    }
    np.savez_compressed(HERE / "past_the_paper_ours.npz", **found)
    for name, trajectory in found.items():
        print(f"{name:36} moved {np.linalg.norm(trajectory[-1] - trajectory[0]):.3g}")
