"""All lies of a server up to some length, against the algebra of masks.

    python tests/secure/model.py [LENGTH]

The server of secure sums sees c = m + p for every reply: m is a push, which follows from the
model and state that it has sent to that site, and p the mask. It may add and subtract what it
sees. It has opened a push if some combination of replies, other than a known number, has no mask.
Pushes are symbols (site, model, state), as two pushes from the same three are the same, and
a push at the model of the site's last push is 0 (as of FOCUS). Lies: any of the models, an old
state, the same request again, other sites' requests. The search goes through all sequences.

Masks are drawn by a rule: "fresh" for every reply, as `Keys.mask` does; and those that others
might use, each of which the search breaks: one for (site), for (site, round), for (site, version,
round), and pairwise masks that cancel in the sum over all sites of a round.
"""

import itertools
import sys
from collections.abc import Iterator

import numpy as np

SITES, MODELS, ROUNDS = (0, 1, 2), (0, 1), (0, 1)
Ask = tuple[int, int, int, int]  # site, model, version of the state, round


def masks(rule: str, asks: list[Ask]) -> list[dict[object, int]]:
    """Give the mask of each reply: whole multiples of independent random numbers."""
    rows = []
    for turn, (site, _, version, index) in enumerate(asks):
        if rule == "fresh":
            rows.append({turn: 1})
        elif rule == "site":
            rows.append({site: 1})
        elif rule == "site and round":
            rows.append({(site, index): 1})
        elif rule == "site, version and round":
            rows.append({(site, version, index): 1})
        else:  # pairwise
            pairs = [(min(site, other), max(site, other)) for other in SITES if other != site]
            rows.append({(pair, index): 1 if pair[0] == site else -1 for pair in pairs})
    return rows


def push(ask: Ask) -> object:
    """Name a push; None if it is 0: a state of version v was left by a push at model v."""
    site, model, version, _ = ask
    return None if model == version else (site, model, version)


def opened(rule: str, asks: list[Ask]) -> bool:
    """Whether some combination of the replies has no mask, and says something of pushes."""
    rows = masks(rule, asks)
    noise, pushes = _matrix(rows), _matrix([{p: 1} if (p := push(a)) else {} for a in asks])
    # Combinations without a mask: the null space of the masks, transposed.
    _, sizes, basis = np.linalg.svd(noise.T)
    null = basis[(np.abs(sizes) > 1e-9).sum() :]
    return bool(np.abs(null @ pushes).max(initial=0) > 1e-9)


def _matrix(rows: list[dict]) -> np.ndarray:
    names = sorted({name for row in rows for name in row}, key=repr)
    return np.array([[row.get(name, 0) for name in names] for row in rows], float).reshape(
        len(rows), len(names)
    )


def sequences(length: int) -> Iterator[list[Ask]]:
    """List all sequences of requests; their order does not matter, so sorted ones do."""
    asks = list(itertools.product(SITES, MODELS, MODELS, ROUNDS))
    for chosen in itertools.combinations_with_replacement(asks, length):
        yield list(chosen)


def search(rule: str, longest: int) -> tuple[int, list[Ask] | None]:
    """Look for a sequence of requests that opens something; give how many were tried."""
    tried = 0
    for length in range(1, longest + 1):
        for asks in sequences(length):
            tried += 1
            if opened(rule, asks):
                return tried, asks
    return tried, None


def main() -> int:
    longest = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    for rule in ("fresh", "site", "site and round", "site, version and round", "pairwise"):
        tried, attack = search(rule, longest)
        words = f"opened by {attack}" if attack else "nothing opened"
        print(f"{rule}: {tried} sequences of at most {longest} requests, {words}")
        if (rule == "fresh") == bool(attack):
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
