"""Targets: each reads bytes by one parser of the library, and keeps one law.

Bytes give a value, or an error that the parser documents: no other error, no end of the process,
no wait, no memory. Where content has a checksum, content that was changed is not read.

Most content is behind a checksum that random changes do not pass. So the first byte of an input
says how the rest is written: 0 as it is; else its checksums are computed anew, or the rest is
packed as the one member of a sound archive.
"""

import atexit
import functools
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import sqlite3
import tempfile
import wave
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

import focusfl as ff
from focusfl import data
from focusfl.core import files, models
from focusfl.core.result import Result
from focusfl.data import flash, registry, tables
from focusfl.deploy import certificates, monitor, ownership, watch
from focusfl.flower import evaluation, events, identity
from focusfl.flower.protocol import ProtocolServer, Site, messages, store
from focusfl.flower.secure import Keys, Secure, SecureServer, SecureSite
from focusfl.participation import from_events
from focusfl.privacy.account import BudgetExceeded, Terms
from focusfl.simulation import checkpoint
from focusfl.studies import spec, toml, verify
from focusfl.studies import store as studies
from focusfl.suite import store as suite

MARK = b"\n==part "  # before a part of a message or of a folder, with its name and a line's end
RAW, ANEW = b"\0", b"\1"
DEEP = 20_000  # brackets, one inside the other


class Broken(AssertionError):
    """A target whose law does not hold for an input."""


class Target(NamedTuple):
    """One parser."""

    read: Callable[[bytes], Any]
    seeds: Callable[[], Iterable[bytes]]
    errors: tuple[type[Exception], ...] = (ValueError,)  # that the parser documents
    words: tuple[bytes, ...] = ()  # that mean something in this format


TARGETS: dict[str, Target] = {}


def target(seeds: Callable[[], Iterable[bytes]], *errors: type[Exception], words: str = ""):
    """Register a reader under its name."""

    def register(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        every = tuple(word.encode() for word in words.split())
        TARGETS[read.__name__] = Target(read, seeds, errors or (ValueError,), every)
        return read

    return register


@functools.cache
def scratch() -> Path:
    """A folder of this process, in memory where there is such a place."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="focusfl-fuzz-", dir=memory))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def place(name: str) -> Path:
    """An empty folder by this name."""
    folder = scratch() / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def lay(name: str, content: bytes) -> Path:
    """A file by this name."""
    path = scratch() / name
    path.write_bytes(content)
    return path


def join(first: bytes, **parts: bytes) -> bytes:
    """Write several contents as one input."""
    return first + b"".join(MARK + k.encode() + b"\n" + v for k, v in parts.items())


def split(content: bytes) -> tuple[bytes, dict[str, bytes]]:
    """Read what `join` wrote, whatever came of it."""
    first, *rest = content.split(MARK)
    parts = (part.partition(b"\n") for part in rest)
    return first, {name.decode("latin-1"): part for name, _, part in parts}


def reseal(content: bytes) -> bytes:
    """Put the right seal into a file's content, in the place of the first one."""
    at = content.find(files.SEAL.encode())
    if at < 0:
        return content
    at += len(files.SEAL)
    blank = content[:at] + b"0" * files.DIGITS + content[at + files.DIGITS :]
    return content[:at] + hashlib.sha256(blank).hexdigest().encode() + content[at + files.DIGITS :]


def read_sealed(name: str, content: bytes, read: Callable) -> Any:
    """Read a sealed file; Broken if one was read whose seal is not right.

    A right one may be of another content: atheris sees what is compared, and forges it.
    """
    anew, content = content[:1] != RAW, content[1:]
    value = read(lay(name, reseal(content) if anew else content))
    if not anew and reseal(content) != content:
        raise Broken("a file with another checksum was read")
    return value


def make_zip(**members: bytes) -> bytes:
    """An archive of these members."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def archive_of(content: bytes, *names: str) -> bytes:
    """An input as an archive: as it is, or its parts as members of a sound one."""
    if content[:1] == RAW:
        return content[1:]
    first, parts = split(content[1:])
    return make_zip(**dict(zip(names, [first, *parts.values()], strict=False)))


def npy(array: Any) -> bytes:
    """An array as NumPy writes it."""
    file = io.BytesIO()
    np.save(file, np.asarray(array))
    return file.getvalue()


# Messages


NAMES = ("paris", "rome")
PARAMS = {"w": np.linspace(-1, 1, 6).reshape(2, 3), "b": np.ones(3)}
ALGORITHMS = (
    ff.Focus(),
    ff.AnchoredFocus(),
    ff.Compressed(ff.Focus(), ff.compression.Quantize(4)),
    ff.Compressed(ff.Focus(), ff.compression.TopK(2)),
    ff.Scaffnew(),
)


class Work(Exception):
    """A server has asked for more gradients than fuzzing waits for."""


@functools.cache
def job(number: int) -> tuple[ProtocolServer, Site]:
    """The server of a job after one round, and its first site."""
    algorithm = ALGORITHMS[number]
    folder = place(f"job-{number}")
    server = ProtocolServer(algorithm, PARAMS, NAMES, folder, job="job", lr=0.1, local_steps=2)
    atexit.register(server.close)
    sites = [Site(algorithm, "job", name) for name in NAMES]
    for _ in range(2):  # the first may be a warm-up
        for site in sites:
            if site.site in server.free:
                reply = site.answer(server.request(site.site), gradient)
                assert server.receive(site.site, reply).applied
        server.close_round()
    return server, sites[0]


def gradient(x: Any, batch: Any) -> Any:
    """A gradient, of a batch of the first ones."""
    if batch.number > 64:
        raise Work
    return ff.core.tree.map(lambda a: a / 2, x)


def message_of(content: bytes) -> messages.Wired:
    """A message of an input: its checksums as they are, or computed anew."""
    (first, parts), anew = split(content[1:]), content[:1] != RAW
    if not anew:
        return {"header": first, **parts}
    try:
        header = json.loads(first)
        header["parts"] = {name: messages.digest(part) for name, part in parts.items()}
        first = json.dumps(header).encode()
    except (ValueError, TypeError, RecursionError):
        pass
    return {"header": messages.digest(first).encode() + b"\n" + first, **parts}


def inputs_of(message: messages.Wired) -> Iterator[bytes]:
    """A message as inputs: as it is, and without its checksum."""
    parts = {name: blob for name, blob in message.items() if name != "header"}
    yield RAW + join(message["header"], **parts)
    yield ANEW + join(message["header"].partition(b"\n")[2], **parts)


def deep_header() -> bytes:
    return ANEW + b'{"protocol": 3, "parts": ' + b"[" * DEEP


def deep_tree(part: str) -> bytes:
    """A model under many names, one inside the other."""
    name = "x" + "/a" * DEEP
    blob = messages.save({name: np.zeros(1)})
    return join(b"", **{part: blob})


def receive_seeds() -> Iterator[bytes]:
    for number in range(len(ALGORITHMS)):
        server, site = job(number)
        request = server.request(site.site)
        for reply in (site.answer(request, gradient), site.leave(request)):
            yield from (bytes([number]) + each for each in inputs_of(reply))
    yield b"\0" + deep_header()


@target(
    receive_seeds, words='push missing leave spent "round": "version": "model": -1 1e308 up state'
)
def receive(content: bytes) -> Any:
    """A server takes a reply, whoever sent it: counted or refused, and then nothing changes."""
    server, site = job(content[0] % len(ALGORITHMS) if content else 0)
    before = messages.pack(server.server), messages.pack(server.state(site.site)), server.free
    receipt = server.receive(site.site, message_of(content[1:]))
    after = messages.pack(server.server), messages.pack(server.state(site.site)), server.free
    if receipt.status == "refused" and before != after:
        raise Broken("a refused message has changed the server")
    server.spent.clear()
    server.drop_round()
    return receipt


def answer_seeds() -> Iterator[bytes]:
    for number in range(len(ALGORITHMS)):
        server, site = job(number)
        yield from (bytes([number]) + each for each in inputs_of(server.request(site.site)))
        with_state = {**server.request(site.site)}
        with_state["state"] = messages.pack(server.state(site.site))
        yield from (bytes([number]) + each for each in inputs_of(with_state))
    head = inputs_of(job(0)[0].request("paris"))
    header = split(list(head)[1][1:])[0]
    yield b"\0" + ANEW + header + deep_tree("down")
    yield b"\0" + deep_header()


@target(
    answer_seeds,
    ValueError,
    ArithmeticError,
    Work,
    words='"lr": "local_steps": "num_clients": "grads_done": 1e308',
)
def answer(content: bytes) -> Any:
    """A site takes a request, whoever sent it."""
    site = job(content[0] % len(ALGORITHMS) if content else 0)[1]
    cache = dict(site.cache)
    try:
        with np.errstate(all="ignore"):
            return site.answer(message_of(content[1:]), gradient)
    finally:
        site.cache.clear()
        site.cache.update(cache)


KEYS = Keys((bytes(range(32)),))


@functools.cache
def secure_job() -> tuple[SecureServer, SecureSite]:
    """The server of a job with secure sums after one round, and its first site."""
    algorithm, secure = ff.Compressed(ff.Focus(), ff.FixedPoint(50, 44)), Secure(minimum=2)
    server = SecureServer(
        algorithm, PARAMS, NAMES, place("secure"), secure=secure, job="job", lr=0.1
    )
    atexit.register(server.close)
    sites = [SecureSite(algorithm, "job", name, secure=secure, keys=KEYS) for name in NAMES]
    for site in sites:
        assert server.receive(site.site, site.answer(server.request(site.site), gradient)).applied
    server.close_round()
    return server, sites[0]


def secure_seeds() -> Iterator[bytes]:
    server, site = secure_job()
    yield from inputs_of(site.answer(server.request(site.site), gradient))


@target(secure_seeds)
def secure_receive(content: bytes) -> Any:
    """A server of secure sums takes a reply: counted or refused, and then nothing changes."""
    server, site = secure_job()
    before = server._packed_server(), server.free
    receipt = server.receive(site.site, message_of(content))
    if receipt.status == "refused" and before != (server._packed_server(), server.free):
        raise Broken("a refused message has changed the server")
    server.drop_round()
    return receipt


def journal_seeds() -> Iterator[bytes]:
    journal = secure_job()[0]._journal
    for entries in (journal, journal.add("generation"), journal.add("forget", site="rome",
                    weight=1.0, num_clients=2.0)):  # fmt: skip
        yield json.dumps(entries.ops).encode()
    yield b"[" * DEEP


@target(journal_seeds, words='"op": "update" "forget" "generation" "masks": "lr": 1e999 null NaN')
def journal(content: bytes) -> Any:
    """A site of secure sums replays a journal that its server has made up."""
    server, site = secure_job()
    mine = server._journal
    parts = [mine.base, content, *mine.blobs]
    packed = {str(n): np.frombuffer(part, np.uint8) for n, part in enumerate(parts)}
    request, _ = messages.decode(server.request("paris"), messages.Request, {*site.carries})
    return site.answer(messages.encode(request, {"journal": messages.pack(packed), "new": b""}),
                       gradient)  # fmt: skip


@target(lambda: [b"ab" * 32, b"ab" * 32 + b"\n" + b"cd" * 32])
def sums_key(content: bytes) -> Any:
    """The file of the key that sites of secure sums share."""
    return Keys.read(lay("sums.key", content))


def evaluate_seeds() -> Iterator[bytes]:
    yield from inputs_of(evaluation.ask("job", PARAMS))
    header = split(list(inputs_of(evaluation.ask("job", PARAMS)))[1][1:])[0]
    yield ANEW + header + deep_tree("model")


@target(evaluate_seeds)
def evaluate(content: bytes) -> Any:
    """A site evaluates a model, whoever sent it."""
    with np.errstate(all="ignore"):
        return evaluation.answer(message_of(content), "job", lambda x: {"loss": 1.0}, lambda x: x)


def gradient_seeds() -> Iterator[bytes]:
    parts = {evaluation.GRADIENT: messages.pack(PARAMS)}
    yield from inputs_of(messages.encode(evaluation.Header(evaluation.GRADIENT, "job"), parts))


@target(gradient_seeds)
def site_gradient(content: bytes) -> Any:
    """A server takes a site's evaluation: a gradient, or none."""
    records = evaluation.to_records(message_of(content))
    return evaluation.gradient_of(records, "job", PARAMS)


COMPRESSORS = (
    ff.compression.Quantize(4),
    ff.compression.Quantize(3, block=4),
    ff.compression.FixedPoint(20, 10),
    ff.compression.TopK(3),
    ff.compression.TopK(0.5),
    ff.compression.RandomK(3),
    ff.compression.LowRank(1),
)


def push_seeds() -> Iterator[bytes]:
    for number, compressor in enumerate(COMPRESSORS):
        for dtype in (np.float32, np.float64):
            a = np.linspace(-1, 1, 12, dtype=dtype).reshape(3, 4)
            kind = number + len(COMPRESSORS) * (dtype is np.float64)
            yield bytes([kind]) + compressor.encode(a, 0, 0)


@target(push_seeds)
def push(content: bytes) -> Any:
    """A push as a compressor's bytes."""
    wide, number = divmod(content[0] if content else 0, len(COMPRESSORS))
    dtype = np.float64 if wide % 2 else np.float32
    with np.errstate(all="ignore"):
        array = COMPRESSORS[number].decode(content[1:], (3, 4), dtype, 0, 0)
    if array.shape != (3, 4) or array.dtype != dtype:
        raise Broken(f"read {array.dtype} of shape {array.shape}")
    return array


# What a server and its sites keep


def reopen(path: Path) -> None:
    """Read all that a server reads of its database."""
    folder = path.parent.parent
    job = {"job": path.parent.name, "lr": 0.1, "local_steps": 2}
    with ProtocolServer(ALGORITHMS[0], PARAMS, NAMES, folder, **job) as server:
        for site in server.free:
            server.request(site)
        server.states()


@functools.cache
def sound_database() -> bytes:
    """The database of a job after one round, without what SQLite keeps beside it."""
    job(0)
    path = place("sound") / "server.db"
    with closing(sqlite3.connect(scratch() / "job-0" / "job" / "server.db")) as db:
        db.execute("VACUUM INTO ?", [str(path)])
    return path.read_bytes()


def database_seeds() -> Iterator[bytes]:
    yield sound_database()


@target(database_seeds)
def database(content: bytes) -> Any:
    """A server's database, damaged anywhere."""
    folder = place("database") / "job"
    folder.mkdir()
    (folder / "server.db").write_bytes(content)
    reopen(folder / "server.db")


KINDS = (
    lambda content: None,
    lambda content: int.from_bytes(content[:8], "big", signed=True),
    lambda content: float(np.frombuffer(content[:8].ljust(8, b"\0"), float)[0]),
    lambda content: content.decode("latin-1"),
    lambda content: content,
    lambda content: messages.digest(content).encode() + content,
)
REAL = 2  # of these, a number
COLUMNS = [("job", name) for name in store.JobRow._fields]
COLUMNS += [("sites", name) for name in store.SiteRow._fields]


def row_seeds() -> Iterator[bytes]:
    server = job(0)[0]._store
    values = {"job": server.job()._asdict(), "sites": server.site("paris")._asdict()}
    for number, (table, name) in enumerate(COLUMNS):
        value = values[table][name]
        for kind, write in enumerate(
            (
                lambda v: b"",
                lambda v: int(v).to_bytes(8, "big", signed=True),
                lambda v: np.float64(v).tobytes(),
                lambda v: v.encode(),
                lambda v: v,
                lambda v: v,
            )
        ):
            try:
                content = write(value)
                yield bytes([number, kind]) + content
            except (TypeError, ValueError, AttributeError):
                yield bytes([number, kind])


@target(row_seeds)
def row(content: bytes) -> Any:
    """One cell of a server's database, of any of SQLite's types."""
    table, name = COLUMNS[content[0] % len(COLUMNS) if content else 0]
    value = KINDS[content[1] % len(KINDS) if content[1:] else 0](content[2:])
    folder = place("row") / "job"
    folder.mkdir()
    path = folder / "server.db"
    path.write_bytes(sound_database())
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA synchronous = OFF")
        try:
            where = "WHERE rowid = 1" if table == "sites" else ""
            db.execute(f"UPDATE {table} SET {name} = ? {where}", [value])
        except (sqlite3.Error, OverflowError, UnicodeError):
            return
    reopen(path)


@functools.cache
def private_site() -> tuple[Site, bytes]:
    """A private site, and the account of the gradients it has computed."""
    about = {"clip": 1.0, "noise": 20.0, "level": "record", "delta": 1e-5, "budget": None}
    terms = Terms.of(SimpleNamespace(**about, accountant="pld"))
    site = Site(ALGORITHMS[0], "job", "paris", private=terms, folder=place("private"))
    site.account.spend(4, 0)
    return site, site.account.path.read_bytes()


def account_seeds() -> Iterator[bytes]:
    yield private_site()[1]


@target(account_seeds, ValueError, BudgetExceeded)
def account(content: bytes) -> Any:
    """A private site's account: from a damaged one nothing is spent."""
    site, sound = private_site()
    site.account.path.write_bytes(content)
    summary = site.account.summary
    site.account.spend(4, 0)
    checksum, _, body = content.partition(b"\n")
    if content != sound and checksum != hashlib.sha256(body).hexdigest().encode():  # not forged
        raise Broken(f"gradients were allowed by a damaged account: {summary}")


def event_seeds() -> Iterator[bytes]:
    lines = [
        {"event": "begin", "round": 0, "online": [*NAMES], "pid": 1, "rounds": 2, "time": 1.0,
         "everybody": [*NAMES], "metrics": {"loss": 1.0}},
        {"event": "notice", "why": "ca.crt ends in 3 days"},
        {"event": "waiting", "missing": ["rome"], "why": "for rome"},
        {"event": "warm", "round": 0, "counted": [*NAMES], "seconds": 1.5,
         "bytes": {"down": 3, "up": 4}, "why": "", "generation": 1},
        {"event": "open", "round": 0, "generation": 1, "online": [*NAMES]},
        {"event": "nothing", "site": "rome", "why": "lost"},
        {"event": "refused", "site": "rome", "why": "its norm is 1e300"},
        {"event": "round", "round": 0, "rounds": 2, "counted": ["paris"], "missing": ["rome"],
         "late": ["paris"], "eta": 3.5, "seconds": 1.25, "generation": 1, "gone": [],
         "barred": ["rome"], "bytes": {"down": 1, "up": 2}, "epsilon": {"paris": 0.5},
         "metrics": {"loss": 0.5, "grad_norm": 0.1}},
        {"event": "evaluation", "after": 1, "sites": 2, "of": "all", "metrics": {"grad_norm": 2}},
        {"event": "stranger", "why": "no key"},
        {"event": "end", "round": 2, "warnings": [], "why": [], "healthy": True, "of": "all",
         "metrics": {"grad_norm": 0.1}, "diverged": False, "counted": {"paris": 2}},
        {"event": "failed", "why": "it could not"},
    ]  # fmt: skip
    yield b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    yield from (json.dumps(line).encode() + b"\n" for line in lines)
    yield b'{"event": ' + b"[" * DEEP


@target(
    event_seeds, words='"event": "round": "begin" "end" "metrics": {} [] null -1 NaN Infinity 1e999'
)
def event(content: bytes) -> Any:
    """The events of a job, as the page, Prometheus and `status` have them."""
    folder = place("events")
    (folder / events.FILE).write_bytes(content)
    jobs = monitor.Jobs(folder).look()
    watch.exposition({str(where): facts for where, facts in jobs.items()})
    return json.dumps(watch.without_infinity({str(k): v for k, v in jobs.items()}), allow_nan=False)


def process_seeds() -> Iterator[bytes]:
    yield b'{"superlink": [999999999, "focusfl"], "node": [999999998, "x"]}'
    yield b'{"pid": 999999999, "began": 1.5}'
    yield b"[" * DEEP


@target(process_seeds)
def processes(content: bytes) -> Any:
    """What `deploy local` has started in a folder."""
    folder = scratch()
    if re.search(rb"\d{1,8}\b", content) and not re.search(rb"\d{9}", content):
        return  # a process that there may be
    lay(ownership.MARKER, content)
    lay(ownership.PROCESSES, content)
    ownership.driver_of(folder)
    return ownership.started(folder)


def key_seeds() -> Iterator[bytes]:
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    keys = (
        ec.derive_private_key(7, ec.SECP384R1()),
        ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32)),
    )
    for key in keys:
        public = key.public_key()
        yield public.public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH) + b" paris\n"
        yield public.public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)


@target(key_seeds, words="ssh-rsa ssh-ed25519 ecdsa-sha2-nistp384 -----BEGIN PUBLIC KEY-----")
def key(content: bytes) -> Any:
    """A site's public key."""
    return identity.canonical(content)


def certificate_seeds() -> Iterator[bytes]:
    certificates.make(folder := place("keys"), ["localhost"], [])
    yield (folder / "ca.crt").read_bytes()


@target(certificate_seeds)
def certificate(content: bytes) -> Any:
    """A certificate whose end is looked for."""
    folder = place("certificates")
    (folder / "server.crt").write_bytes(content)
    return identity.expiries(folder)


# Models, checkpoints, studies


@functools.cache
def model_inputs() -> list[bytes]:
    path = scratch() / "written.safetensors"
    some = {"layer": {"w": PARAMS["w"], "b": PARAMS["b"]}, "a.b": np.arange(3, dtype=np.int8)}
    metrics = {"loss": np.array([1.0, 0.5]), "down": np.zeros(2), "up": np.ones(2)}
    result = Result(some, metrics, None, None, 0.1, None, None, None)
    contents = [models.save_model(path, some).read_bytes(), result.save(path).read_bytes()]
    contents += [models.save_model(path, np.arange(4.0)).read_bytes()]
    return [flag + content for content in contents for flag in (RAW, ANEW)]


def model_seeds() -> Iterator[bytes]:
    yield from model_inputs()
    deep = models.save({"a": np.zeros(1)}, {models.METADATA: "[" * DEEP})
    yield RAW + deep
    yield RAW + models.save({".".join("a" * DEEP): np.zeros(1)})
    yield RAW + models.save({"a": np.zeros(1), "a.b": np.zeros(1)})
    long = json.dumps({"a": {"dtype": "F64", "shape": [0, 10**15], "data_offsets": [0, 0]}})
    yield RAW + len(long).to_bytes(8, "little") + long.encode()


MODEL_WORDS = (
    '"dtype": "shape": "data_offsets": BF16 F16 F8_E4M3 U64 BOOL C64 "paths": "about": seal'
)


@target(model_seeds, words=MODEL_WORDS)
def model(content: bytes) -> Any:
    """A model as safetensors, of whoever wrote it."""
    return read_sealed("model.safetensors", content, models.read_model)


@target(model_seeds, words=MODEL_WORDS)
def result(content: bytes) -> Any:
    """A result that was saved."""
    return read_sealed("result.safetensors", content, Result.load)


@functools.cache
def checkpoint_inputs() -> list[bytes]:
    with checkpoint.open_checkpoint(checkpoint.Checkpoint(str(place("kept")), 0)) as kept:
        kept.restore(STATE, LOG, lambda: {"rounds": 3})
        kept.write(STATE, LOG)
        content = (kept.folder / checkpoint.NAME).read_bytes()
    return [RAW + content, ANEW + content]


STATE, LOG = {"x": np.arange(6.0), "k": np.int32(3)}, {"loss": np.zeros(3, np.float32)}


def checkpoint_seeds() -> Iterator[bytes]:
    yield from checkpoint_inputs()
    with zipfile.ZipFile(io.BytesIO(checkpoint_inputs()[0][1:])) as archive:
        members = [archive.read(name) for name in CHECKPOINT_MEMBERS]
    yield b"\2" + join(members[0], **dict(zip("abc", members[1:], strict=True)))


CHECKPOINT_MEMBERS = (
    "facts.npy",
    "['log']['loss'].npy",
    "['state']['k'].npy",
    "['state']['x'].npy",
)


@target(
    checkpoint_seeds, words="descr fortran_order shape <f8 <i4 |O |V8 True (3,) (999999999999,)"
)
def run(content: bytes) -> Any:
    """The checkpoint of a run that is to go on."""
    if content[:1] not in (RAW, ANEW):
        file = io.BytesIO(archive_of(content, *CHECKPOINT_MEMBERS))
        with zipfile.ZipFile(file, "a") as archive:
            archive.comment = files.BLANK.encode()
        content = ANEW + file.getvalue()

    def read(path: Path) -> Any:
        folder = checkpoint.CheckpointFile(path.parent, 1)
        return folder.restore(STATE, LOG, lambda: {"rounds": 3})

    place("run")
    return read_sealed(f"run/{checkpoint.NAME}", content, read)


STUDY = """
rounds = 8
lr = 1e-3
seeds = 2
per_client = true
models = "last"
eval_every = 2
on_empty = "skip"
[problem]
kind = "ridge"
num_clients = 4
dim = 6
rows = 12
[participation.some]
kind = "bernoulli"
p = 0.4
[participation.full]
[algorithms.focus]
[algorithms.fedavg]
lr = [1e-4,
  1e-3]  # both
"""


@functools.cache
def study_folder() -> Path:
    """A study that has ended, as a run of `focusfl run` leaves it, but made by hand."""
    folder = place("study")
    row = {
        "participation": "full", "algorithm": "focus", "lr": 0.1, "local_steps": 1, "seed": 0,
        "model": "models/a.safetensors",
    }  # fmt: skip
    points = np.arange(3)
    curves = {"round": points, "vectors_sent": 2.0 * points, "loss": 1 / (1.0 + points)}
    (folder / "models").mkdir()
    models.save_model(folder / row["model"], PARAMS)
    about = {"name": "study", "study": {}, "scenarios": {"full": {}}}
    run = studies.Run(row, curves, clients={"loss": np.arange(4.0)})
    studies.save(folder, about, [run], {"full": (points, points)})
    return folder


def read_study(folder: Path) -> Any:
    study = studies.Study.load(folder)
    for run in study.runs:
        run.row.get("model") and study.model(algorithm="focus")
    return study.table(), study.clients(), study.summary()


@functools.cache
def manifest_inputs() -> list[bytes]:
    content = (study_folder() / studies.MANIFEST).read_bytes()
    return [RAW + content, ANEW + content]


def manifest_seeds() -> Iterator[bytes]:
    yield from manifest_inputs()
    yield RAW + b'{"format": 5, "runs": ' + b"[" * DEEP


@target(manifest_seeds, words='"files": "groups": "runs": "format": 5 "scenarios": null [] {} ../')
def manifest(content: bytes) -> Any:
    """The manifest of a study whose other files are sound."""
    folder = scratch() / "copy"
    if not folder.exists():
        shutil.copytree(study_folder(), folder)

    def read(path: Path) -> Any:
        verify.verify(folder)
        return read_study(folder)

    return read_sealed(f"copy/{studies.MANIFEST}", content, read)


TABLES = (studies.CURVES, f"{studies.WHOLE}{studies.CLIENTS}", studies.PARTICIPATION)


def table_seeds() -> Iterator[bytes]:
    for number, name in enumerate(TABLES):
        content = (study_folder() / name).read_bytes()
        yield bytes([number]) + content
        yield bytes([number + len(TABLES)]) + content


@target(table_seeds, words="PAR1 ARROW:schema focusfl points rows")
def table(content: bytes) -> Any:
    """A table of a study whose manifest is sound, or gives the checksum of this very table."""
    anew, number = divmod(content[0] if content else 0, len(TABLES))
    folder = scratch() / "tables"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(study_folder(), folder)
    (folder / TABLES[number]).write_bytes(content[1:])
    if anew:
        here = studies.Folder(folder, studies.read_manifest(folder))
        here.add(TABLES[number])
        here.save()
    value = read_study(folder)
    if not anew and content[1:] != (study_folder() / TABLES[number]).read_bytes():
        raise Broken("a table with another checksum was read")
    return value


def toml_seeds() -> Iterator[bytes]:
    yield STUDY.encode()
    yield b'a = """\n[x]\nb = 1\n"""\n[t."q.r"]\n"k k" = {a = 1}\n[[l]]\nz = 1979-05-27T07:32:00Z\n'
    yield b"a = " + b"[" * DEEP
    yield b"a = [" + b"1,\n" * 20_000 + b"]\n"
    yield b"a." * 1000 + b"a = 1\n"
    yield b"a = " + b"9" * 20_000 + b"\n"


@target(toml_seeds, words="\"\"\" ''' [[ ]] [problem] = , inf nan 0x 1e9 true 1979-05-27 #")
def text(content: bytes) -> Any:
    """A file of TOML, and the lines on which its keys stand."""
    source = toml.read(lay("study.toml", content))
    if wrong := [n for n in source.lines.values() if not 1 <= n <= content.count(b"\n") + 1]:
        raise Broken(f"there is no line {wrong[0]}")
    return source


def study_seeds() -> Iterator[bytes]:
    yield STUDY.encode()
    yield STUDY.replace("ridge", "quadratics").encode()
    yield STUDY.replace("per_client = true", "[privacy]\nclip = 1.0\nnoise = 20.0").encode()
    yield (STUDY + '[compression]\nkind = "top_k"\nk = 2\n[schedule]\nkind = "cosine"\n').encode()


@target(
    study_seeds,
    words="kind lr rounds seeds [schedule] [stop] [latency] [secure] [compression] true 0 -1 nan",
)
def study(content: bytes) -> Any:
    """A study as a file; its problem is small."""
    if re.search(rb"[1-9]\d\d|\d[\d_]{3}|[eExXoO][+-]?\d\d|\$|~|\.py|npz", content):
        return  # sizes that the machine has no room or time for; files of other people
    path = lay("study.toml", content)
    source = toml.read(path)
    return spec.build_study(source, "study")


def suite_seeds() -> Iterator[bytes]:
    content = json.dumps(
        json.loads(suite.SHIPPED.read_bytes()) | {"seal": files.BLANK, "rows": ROWS[:2]}
    ).encode()
    yield RAW + reseal(content)
    yield ANEW + content
    yield RAW + b'{"rows": ' + b"[" * DEEP


ROWS = json.loads(suite.SHIPPED.read_bytes())["rows"]


@target(suite_seeds, words='"columns": "rows": null NaN 1e999')
def results(content: bytes) -> Any:
    """Results of the suite."""
    return read_sealed(suite.RESULTS, content, suite.load)


# Data sets


@contextmanager
def only(name: str, files: Iterable[str], *contents: bytes) -> Iterator[Path]:
    """A folder that has these files of a data set and no others."""
    folder = place(name)
    for file, content in zip(files, contents, strict=True):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(content)
    yield folder


def files_of(name: str) -> list[str]:
    """The names of a data set's files."""
    return [file.path for file in registry.entry(name).files]


def idx(*shape: int) -> bytes:
    header = bytes([0, 0, 8, len(shape)]) + b"".join(n.to_bytes(4, "big") for n in shape)
    return header + bytes(int(np.prod(shape)))


def idx_seeds() -> Iterator[bytes]:
    yield ANEW + idx(2, 3, 3)
    yield RAW + gzip.compress(idx(2, 3, 3), mtime=0)
    yield ANEW + bytes([0, 0, 8, 3]) + b"\0\0\0\0" + b"\xff" * 8


@target(idx_seeds)
def images(content: bytes) -> Any:
    """Images as MNIST has them."""
    first = content[1:] if content[:1] == RAW else gzip.compress(content[1:], 1)
    rest = [gzip.compress(idx(2)), gzip.compress(idx(1, 3, 3)), gzip.compress(idx(1))]
    with only("mnist", files_of("mnist"), first, *rest) as folder:
        return data.mnist(folder)


def libsvm_seeds() -> Iterator[bytes]:
    yield b"+1 3:0.5 7:1\n-1 1:-1e-3 # a comment\n"
    yield b"1 999999999999:1\n2 1:1\n"
    yield b"1 " + b"9" * 5000 + b":1\n"


@target(libsvm_seeds, words=": +1 -1 nan inf 1e308 # \xd9\xa3")
def libsvm(content: bytes) -> Any:
    """Lines of LIBSVM."""
    return tables.read_libsvm_text(lay("libsvm.txt", content))


def heart_seeds() -> Iterator[bytes]:
    yield b"63.0,1.0,1.0,145.0,233.0,1.0,2.0,150.0,0.0,2.3,3.0,0.0,6.0,0\n" * 2
    yield b"63,1,4,145,?,1,0,?,0,2.3,?,?,?,1\n" * 2
    yield b"63\r1,4\n"


@target(heart_seeds, words='? , " nan inf 1e999')
def patients(content: bytes) -> Any:
    """Patients of a hospital."""
    sound = next(iter(heart_seeds()))
    with only("heart", files_of("heart_disease"), content, sound, sound, sound) as folder:
        return data.heart_disease(folder, "mean"), data.heart_disease(folder)


FOLDS = b"pid,fold2\nA,train_0\nB,test_5\n"
BRCA = b"pid,age,E,T\nA,60,1,100\nB,50.5,0,30\n"


def survival_seeds() -> Iterator[bytes]:
    yield join(BRCA, folds=FOLDS)
    yield join(b"pid,E\nA,1\n", folds=FOLDS)


@target(survival_seeds, words="pid fold2 train_ test_ ? nan")
def survival(content: bytes) -> Any:
    """Patients of TCGA-BRCA and their split."""
    first, parts = split(content)
    folds = parts.get("folds", FOLDS)
    with only("tcga", files_of("tcga_brca"), first, folds) as folder:
        return data.tcga_brca(folder)


@functools.cache
def png() -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        crc = zlib.crc32(kind + body).to_bytes(4, "big")
        return len(body).to_bytes(4, "big") + kind + body + crc

    rows = zlib.compress((b"\0" + bytes(14)) * 105, 9)
    head = (105).to_bytes(4, "big") * 2 + bytes([1, 0, 0, 0, 0])
    chunks = chunk(b"IHDR", head), chunk(b"IDAT", rows), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


DRAWN = "images_background/Latin/character01/0394_01.png"


def drawing_seeds() -> Iterator[bytes]:
    yield ANEW + png()
    yield RAW + make_zip(**{DRAWN: png()})
    yield RAW + make_zip(**{DRAWN: png()}).replace(b"PK\1\2\24\3", b"PK\1\2\24\3", 1)


@target(drawing_seeds, words="IHDR IDAT IEND PK")
def drawings(content: bytes) -> Any:
    """An archive of Omniglot's drawings."""
    from focusfl.data.omniglot import _read  # the module has a function by its name beside it

    return _read(lay("drawings.zip", archive_of(content, DRAWN)))


@functools.cache
def wav() -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((1, 2, 8000, 0, "NONE", ""))
        sound.writeframes(np.arange(300, dtype="<i2").tobytes())
    return file.getvalue()


SPOKEN = "recordings/7_jackson_32.wav"


def sound_seeds() -> Iterator[bytes]:
    yield ANEW + wav()
    yield RAW + make_zip(**{SPOKEN: wav()})


@target(sound_seeds, words="RIFF WAVE fmt data LIST PK")
def sounds(content: bytes) -> Any:
    """An archive of spoken digits."""
    from focusfl.data import speech

    path = lay("sounds.zip", archive_of(content, SPOKEN))
    return speech.log_mel(speech._read(path)[0])


LOGS = {
    f"phone {n}": {
        "messages": "2020-01-29 00:10:00\tscreen_off\n2020-01-29 00:11:00\tbattery_charged_on\n"
        "2020-01-29 00:12:00\twifi\n2020-01-29 07:00:00\t55.0%\n2020-02-02 20:00:00\tscreen_on\n"
        "2020-02-02 21:00:00\tbattery_charged_off\n2020-02-02 22:00:00\t4G\n"
        "2020-02-02 23:00:00\tUnknown\n"
    }
    for n in range(2)
}


def log_seeds() -> Iterator[bytes]:
    whole = json.dumps(LOGS).encode()
    yield ANEW + whole
    yield RAW + gzip.compress(whole, mtime=0)
    yield ANEW + whole.replace(b"2020-02-02 23", b"9020-02-02 23")
    yield ANEW + b'{"a": ' + b"[" * DEEP


@target(
    log_seeds, words="messages screen_on screen_off wifi Unknown 2020-01-30 \\t \\n NaT 9999- -"
)
def logs(content: bytes) -> Any:
    """Logs of phones, as a data set and as the user's own."""
    raw = content[1:] if content[:1] == RAW else gzip.compress(content[1:], 1)
    wrong = None
    with only("flash", ["state_traces.json.gz"], raw) as folder:
        path = folder / "state_traces.json.gz"
        for read in (lambda: flash.availability(flash._read(path)),
                     lambda: from_events(path)):  # fmt: skip
            try:
                read()
            except ValueError as error:
                wrong = error
    if wrong:
        raise wrong


def avail_seeds() -> Iterator[bytes]:
    matrix = np.array([[1, 0], [-1, 1]], np.int8)
    yield ANEW + npy(matrix)
    yield RAW + make_zip(**{"avail.npy": npy(matrix)})
    yield ANEW + npy(matrix).replace(b"(2, 2)", b"(2, 9)")
    for shape in (b"(10**9,", b"(99999999999999,),"):
        head = b"{'descr': '<f8', 'fortran_order': False, 'shape': " + shape + b" }"
        yield ANEW + b"\x93NUMPY\1\0" + len(head).to_bytes(2, "little") + head


NPY_WORDS = "descr fortran_order shape <f8 <i4 |i1 |b1 |O |V8 <M8[s] True (3,) (999999999999,) -1"


@target(avail_seeds, words=NPY_WORDS)
def trace(content: bytes) -> Any:
    """A trace of who was there."""
    path = lay("trace.npz", archive_of(content, "avail.npy"))
    return ff.participation.Trace(path, unknown="hold").marginals(1)


def sample_seeds() -> Iterator[bytes]:
    x, y = npy(np.arange(8.0).reshape(4, 2)), npy(np.array([0, 1, 1, 0]))
    client = npy(np.array(["a", "b", "a", "b"]))
    yield ANEW + join(x, y=y, client=client)
    yield ANEW + join(x, y=y)
    yield RAW + make_zip(**{"x.npy": x, "y.npy": y})
    yield ANEW + join(npy(np.full((2, 1), 1e300)), y=npy(np.array([0, 1])))


@target(sample_seeds, words=NPY_WORDS)
def samples(content: bytes) -> Any:
    """Samples of the user's."""
    path = lay("samples.npz", archive_of(content, "x.npy", "y.npy", "client.npy"))
    return data.read_samples(path)


def play_seeds() -> Iterator[bytes]:
    yield b"First Citizen:\nBefore we proceed, hear me speak.\n\nAll:\nWe know't, we know't.\n"


@target(play_seeds, words=": \n\n")
def play(content: bytes) -> Any:
    """The plays of Shakespeare."""
    with only("plays", files_of("shakespeare"), content) as folder:
        return data.shakespeare(2, 5, 0.5, folder)
