"""Where data sets are looked for, and where what is made of them is kept."""

import os
from pathlib import Path

from focusfl.checks import shown

Place = str | Path | None  # a folder, or None for where the environment says


def folder(data_dir: Place = None) -> Path:
    """Say where data sets are looked for first.

    The argument, else $FOCUSFL_DATA, else the cache folder.
    """
    return _folders(data_dir)[0]


def cache_folder() -> Path:
    """Say where downloads and faster copies go: $FOCUSFL_CACHE or ~/.cache/focusfl."""
    named = os.environ.get("FOCUSFL_CACHE")
    return _clean(named) if named else Path.home() / ".cache" / "focusfl"


def find(what: str, choices: list[list[str]], how: str, data_dir: Place) -> list[Path]:
    """Find the first choice of files that is complete in some folder.

    Raise ValueError, with the advice `how`, if there is none.
    """
    folders = _folders(data_dir)
    for place in folders:
        for files in choices:
            paths = [place / file for file in files]
            if all(path.is_file() for path in paths):
                return paths
    looked = " and ".join(
        str(place) + " (no such folder)" * (not place.is_dir()) for place in folders
    )
    wanted = ", or ".join(_listed(files) for files in choices)
    raise ValueError(
        f"the data set {what} is missing: looked in {looked} for {wanted}. {how} Set "
        "FOCUSFL_DATA to the folder that holds it."
    )


def _folders(data_dir):
    if data_dir is not None:
        if not isinstance(data_dir, str | Path):
            raise ValueError(f"data_dir must be a folder; got {shown(data_dir)}.")
        return [_clean(data_dir)]  # asked for by name: nothing else will do
    named = os.environ.get("FOCUSFL_DATA")
    return ([_clean(named)] if named else []) + [cache_folder()]


def _clean(path):
    return Path(os.path.expandvars(path)).expanduser()


def _listed(files):
    return ", ".join(files[:-1]) + " and " * (len(files) > 1) + files[-1]
