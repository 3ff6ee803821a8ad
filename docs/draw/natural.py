"""Draw docs/natural.png: six speakers say seven, ten people draw one character.

python docs/draw/natural.py
"""

import argparse
from pathlib import Path

import numpy as np

from focusfl import data
from focusfl.core.files import write
from focusfl.studies.report.figure import blank, render

PICTURE = Path(__file__).parents[1] / "natural.png"
DIGIT, CHARACTER = "seven", "Sanskrit/character20"


def first(own: data.Federation, client: int, what: str) -> np.ndarray:
    """A client's first sample of a class, for training or for tests."""
    label = own.classes.index(what)
    for part in (own.train[client], own.test[client]):
        if (part["y"] == label).any():
            return part["x"][np.argmax(part["y"] == label), ..., 0]
    raise ValueError(f"client {client} must have a sample of {what}; it has none.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.parse_args()
    try:
        spoken, drawn = data.spoken_digits(), data.omniglot("character")
    except ValueError as error:
        parser.exit(2, f"{error}\n")
    figure = blank(figsize=(9.6, 3.4), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=(1.5, 1))
    panels = above.subplots(1, len(spoken.names))
    for i, (panel, name) in enumerate(zip(panels, spoken.names, strict=True)):
        panel.imshow(first(spoken, i, DIGIT).T, origin="lower", vmin=-14, vmax=4)
        panel.set_title(name, fontsize=10)
    others = below.subplots(1, 10)
    for i, panel in enumerate(others):
        panel.imshow(first(drawn, i, CHARACTER), cmap="gray_r")
        panel.set_title(drawn.names[i], fontsize=10)
    for panel in (*panels, *others):
        panel.set(xticks=[], yticks=[])
    write(PICTURE, render(figure, "png"))


if __name__ == "__main__":
    main()
