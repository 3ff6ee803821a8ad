"""The folders of data sets: where files are looked for, and where they are stored."""

import os
from importlib.util import find_spec
from pathlib import Path

from focusfl.core.compilation import cache_folder
from focusfl.core.validation import shown
from focusfl.data.registry import Entry, entry

Place = str | Path | None  # a folder, or None for where the environment says


def folder(data_dir: Place = None) -> Path:
    """Return the folder in which data sets are looked for first.

    It is the argument, else $FOCUSFL_DATA, else the cache folder.

    Raises:
        ValueError: If the argument is not the name of a folder.
    """
    return _folders(data_dir)[0]


def find(name: str | Entry, data_dir: Place = None, fetch: bool = True) -> list[Path]:
    """Find the files of a data set of the registry, or download them.

    Looks in `data_dir`, or in $FOCUSFL_DATA and then the cache folder, for the publisher's
    files or for others with the same content. Missing files are downloaded into the cache
    folder, unless `data_dir` is given or FOCUSFL_OFFLINE is set.

    Args:
        name: of the data set; or one that is not in the registry.
        data_dir: the only folder to look in; None: the usual ones.
        fetch: whether missing files may be downloaded.

    Returns:
        The paths of the files, or the folder of the pip package that holds the data set.

    Raises:
        ValueError: If files are missing and cannot be downloaded, or a pip package that holds
            the data set is not installed.
    """
    from focusfl.data import fetching

    wanted = entry(name)
    paths = present(wanted, data_dir)
    if paths is not None:
        return paths
    if wanted.package:
        raise ValueError(
            f"the data set {wanted.name} is in a package: pip install {wanted.package}."
        )
    if fetch and data_dir is None and not fetching.offline():
        return fetching.fetch(name)
    folders = _folders(data_dir)
    looked = " and ".join(
        str(place) + " (no such folder)" * (not place.is_dir()) for place in folders
    )
    choices = ", or ".join(" and ".join(files) for files in _choices(wanted)[::-1])
    how = " Leave data_dir out then." if data_dir is not None else ""
    why = " FOCUSFL_OFFLINE is set: unset it first." * fetching.offline()
    raise ValueError(
        f"the data set {wanted.name} is missing: looked in {looked} for {choices}. "
        f"`focusfl data fetch {wanted.name}` fetches it.{why}{how}"
    )


def present(wanted: Entry, data_dir: Place = None) -> list[Path] | None:
    """Return the files of a data set in the first folder that has all; None if none has.

    For a data set in a pip package this is the folder of the package, if it is installed.
    """
    if wanted.package:
        spec = find_spec(wanted.package.replace("-", "_"))
        return [Path(place) for place in spec.submodule_search_locations or ()] if spec else None
    for place in _folders(data_dir):
        for files in _choices(wanted):
            paths = [place / file for file in files]
            if all(path.is_file() for path in paths):
                return paths
    return None


def _choices(wanted: Entry) -> list[tuple[str, ...]]:
    """List sets of files with the same content; those of the publisher are the last."""
    return [*wanted.others, tuple(file.path for file in wanted.files)]


def _folders(data_dir):
    if data_dir is not None:
        if not isinstance(data_dir, str | Path):
            raise ValueError(f"data_dir must be a folder; got {shown(data_dir)}.")
        return [_clean(data_dir)]  # asked for by name: nothing else will do
    named = os.environ.get("FOCUSFL_DATA")
    return ([_clean(named)] if named else []) + [cache_folder()]


def _clean(path):
    return Path(os.path.expandvars(path)).expanduser()
