"""The registry: every data set, what it is, and where its files come from.

To add a data set, put an `Entry` into DATA_SETS:

- A set on the web names its `files`, each with an address that is pinned to a version
  or commit, and a checksum that its publisher or its repository gives. Never invent a
  checksum: where there is none, leave it empty and let the loader check the content.
- A set that a pip package holds names that `package` and no files.

`loader` is the function of `focusfl.data` that reads the set.
"""

from typing import NamedTuple

from focusfl.checks import unknown


class File(NamedTuple):
    """One file of a data set, as its publisher has it.

    A checksum is "sha256:…", "md5:…", "git-blob:…", which `git hash-object` says, or
    "git-tree:FOLDER:…", which git says of a folder inside a zip archive: an archive
    that its host packs anew has no lasting checksum of its own. "" means unknown.
    """

    path: str  # below the data folder
    url: str
    checksum: str
    size: int | None  # bytes; None if nobody says


class Entry(NamedTuple):
    """One data set."""

    name: str
    what: str  # one line
    clients: int | None  # None if the user deals the samples out
    licence: str
    citation: str
    loader: str  # its name in focusfl.data
    files: tuple[File, ...] = ()
    others: tuple[tuple[str, ...], ...] = ()  # sets of files with the same content
    package: str = ""  # the pip package that holds it, in place of files

    @property
    def size(self) -> int | None:
        """Bytes to fetch; None if that of some file is not known."""
        sizes = [file.size for file in self.files]
        return None if None in sizes else sum(size or 0 for size in sizes)


DATA_SETS: dict[str, Entry] = {}


def entry(name: str) -> Entry:
    """Give the data set of this name.

    Raises:
        ValueError: If there is none.
    """
    if name not in DATA_SETS:
        raise ValueError(unknown("data set", name, list(DATA_SETS)))
    return DATA_SETS[name]
