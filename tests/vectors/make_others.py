"""Write others.npz: methods of other papers, on the problems and rounds of the vectors.

    python tests/vectors/make_others.py

Plain NumPy, from the papers' own statements: the server has tables of all clients, as
papers write it, and nothing here imports focusfl. A round of nobody is skipped.
"""

from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
FILES = ("bernoulli_tau3", "cyclic_tau1", "ridge_weighted_tau5")


class Setting:
    """One of the files: quadratics f_i(x) = x·H_i x / 2 - h_i·x, and who takes part."""

    def __init__(self, file):
        v = np.load(HERE / f"{file}.npz")
        self.H, self.h, self.x0 = v["H"], v["h"], v["x0"]
        self.lr, self.steps = float(v["eta"]), int(v["tau"])
        self.sets = [np.flatnonzero(mask) for mask in v["masks"]]
        self.N, self.d = self.h.shape

    def grad(self, i, x):
        return self.H[i] @ x - self.h[i]

    def descend(self, i, z, more):
        """Local steps along the gradient and what else a method adds to it."""
        for _ in range(self.steps):
            z = z - self.lr * (self.grad(i, z) + more(z))
        return z

    def follow(self, play):
        """The model before every round and after the last."""
        x, found = self.x0, [self.x0]
        for S in self.sets:
            x = play(x, S) if len(S) else x
            found.append(x)
        return np.array(found)

    def table(self, start=None):
        return np.zeros((self.N, self.d)) if start is None else np.tile(start, (self.N, 1))


def feddyn(s, alpha):
    """Acar et al., Algorithm 1, with gradient steps for the inner problem."""
    lam, h = s.table(), np.zeros(s.d)  # lam_i is the paper's gradient of L_i

    def play(x, S):
        nonlocal h
        theta = {i: s.descend(i, x, lambda z, i=i: -lam[i] + alpha * (z - x)) for i in S}
        for i in S:
            lam[i] = lam[i] - alpha * (theta[i] - x)
        h = h - alpha / s.N * sum(theta[i] - x for i in S)
        return np.mean([theta[i] for i in S], 0) - h / alpha

    return s.follow(play)


def fedlt(s, rho):
    """Bastianello et al., Algorithm 1, without noise; y is what the server sends."""
    z, w = s.table(s.x0), s.table(s.x0)

    def play(_, S):
        y = z.mean(0)
        for i in S:
            v = 2 * y - z[i]
            w[i] = s.descend(i, w[i], lambda u, v=v: (u - v) / rho)
            z[i] = z[i] + 2 * (w[i] - y)
        return z.mean(0)

    return s.follow(play)


def fedadmm(s, rho):
    """Gong et al., Algorithm 1, with a server step of |S| / N: the mean over all."""
    w, y = s.table(s.x0), s.table()

    def play(theta, S):
        augmented = w + y / rho
        for i in S:
            w[i] = s.descend(i, w[i], lambda u, i=i: y[i] + rho * (u - theta))
            y[i] = y[i] + rho * (w[i] - theta)
        change = (w + y / rho - augmented)[S]
        return theta + len(S) / s.N * change.mean(0)

    return s.follow(play)


def amplified_scaffold(s, P, gamma):
    """Crawshaw and Liu, Algorithm 1; a client's variate is its mean over the window."""
    G_i, seen = s.table(), [[] for _ in range(s.N)]
    G, start, done = np.zeros(s.d), s.x0, 0

    def play(x, S):
        nonlocal G, start, done
        ends = []
        for i in S:
            z = x
            for _ in range(s.steps):
                g = s.grad(i, z)
                seen[i].append(g)
                z = z - s.lr * (g - G_i[i] + G)
            ends.append(z)
        x, done = np.mean(ends, 0), done + 1
        if done % P == 0:
            x = start = start + gamma * (x - start)
            for i in range(s.N):
                if seen[i]:
                    G_i[i] = np.mean(seen[i], 0)
                    seen[i].clear()
            G = G_i.mean(0)
        return x

    return s.follow(play)


def fednova(s, momentum, server_lr):
    """Wang et al., equation 9: x -= tau_eff lr sum p_i G_i a_i / |a_i|_1."""
    powers = [momentum ** np.arange(s.steps - k) for k in range(s.steps)]
    a = np.array([own.sum() for own in powers])  # how often gradient k is in the move

    def play(x, S):
        mean = np.zeros(s.d)
        for i in S:
            z, v, G = x, np.zeros(s.d), []
            for _ in range(s.steps):
                G.append(s.grad(i, z))
                v = momentum * v + G[-1]
                z = z - s.lr * v
            mean += np.array(G).T @ a / a.sum() / len(S)
        return x - server_lr * s.lr * a.sum() * mean

    return s.follow(play)


def tamuna(s):
    """Condat et al., Algorithm 1, with s = |S|, no compression, and fixed steps."""
    h = s.table()

    def play(x, S):
        ends = {i: s.descend(i, x, lambda z, i=i: -h[i]) for i in S}
        mean, many = np.mean([ends[i] for i in S], 0), len(S)
        chi = s.N * (many - 1) / (many * (s.N - 1))
        eta = chi / s.steps  # p chi, where 1 / p is the mean number of steps
        for i in S:
            h[i] = h[i] + eta / s.lr * (mean - ends[i])
        return mean

    return s.follow(play)


def fedbuff(s, K, server_lr):
    """Nguyen et al., Algorithm 1: who is in S arrives; it leaves with the new x."""
    held, version, buffer = [(s.x0, 0)] * s.N, 0, []

    def play(x, S):
        nonlocal version, buffer
        for i in S:
            begin, then = held[i]
            delta = s.descend(i, begin, lambda z: 0) - begin
            buffer.append(delta / np.sqrt(1 + version - then))
        if len(buffer) >= K:
            x, version = x + server_lr * np.mean(buffer, 0), version + 1
            buffer = []
        for i in S:
            held[i] = (x, version)
        return x

    return s.follow(play)


def all_of(file):
    """Trajectories by name."""
    s = Setting(file)
    together = s.steps * s.lr
    return {
        "feddyn": feddyn(s, 1 / together),
        "feddyn_alpha2": feddyn(s, 2.0),
        "fedlt": fedlt(s, together),
        "fedlt_rho_half": fedlt(s, 0.5),
        "fedadmm": fedadmm(s, 1 / together),
        "fedadmm_rho2": fedadmm(s, 2.0),
        "amplified_scaffold": amplified_scaffold(s, 4, 1.5),
        "amplified_scaffold_period3": amplified_scaffold(s, 3, 1.0),
        "fednova": fednova(s, 0.0, 1.0),
        "fednova_momentum": fednova(s, 0.5, 0.7),
        "tamuna": tamuna(s),
        "fedbuff": fedbuff(s, 10, 1.0),
        "fedbuff_size3": fedbuff(s, 3, 0.7),
    }


if __name__ == "__main__":
    found = {
        f"{file}_{name}": trajectory for file in FILES for name, trajectory in all_of(file).items()
    }
    np.savez(HERE / "others.npz", **found)
