"""CIFAR-10 in 8 x 8 pixels, as cifar8.npz beside this file. Fetches it, 170 MB."""

import argparse
from pathlib import Path

import numpy as np

from focusfl import data
from focusfl.core.files import renamed


def shrunk(images: np.ndarray) -> np.ndarray:
    """The means of squares of 4 x 4 pixels, one row of numbers for an image."""
    squares = images.reshape(-1, 8, 4, 8, 4, 3).mean((2, 4), dtype=np.float32)
    return squares.reshape(len(images), -1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()
    try:
        whole = data.cifar10()
    except ValueError as error:
        parser.exit(2, f"{error}\n")
    x = np.concatenate([shrunk(whole.train_x), shrunk(whole.test_x)])
    y = np.concatenate([whole.train_y, whole.test_y])
    target = Path(__file__).with_name("cifar8.npz")
    with renamed(target) as part, part.open("wb") as file:
        np.savez(file, x=x, y=y)
    print(f"{target.name}: {len(x)} images of {x.shape[1]} numbers")


if __name__ == "__main__":
    main()
