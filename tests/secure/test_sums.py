"""A server that reads nothing comes to what the plain one comes to."""

from dataclasses import replace

import numpy as np
import pytest

import focusfl as ff
from focusfl.core import tree
from focusfl.flower.protocol import Refused
from focusfl.flower.secure import Keys, Secure, open_model
from secure.jobs import (
    ALGORITHM,
    KEYS,
    NAMES,
    OPTIMUM,
    SECURE,
    answer,
    in_whole_numbers,
    open_server,
    open_sites,
    play,
)

ALGORITHMS = [
    ff.Focus(), ff.Focus(memory="last"), ff.Scaffold(), ff.Scaffold(option=1), ff.MIFA(),
    ff.FedAvg(), ff.FedVARP(), ff.FedADMM(), ff.ServerOpt(ff.Focus(), "momentum", 0.5, 0.3),
    ff.ClientOpt(ff.Focus(), prox=0.1),
]  # fmt: skip


def gap(a, b):
    parts = [0.0]
    tree.map(lambda a, b: parts.append(float(np.max(np.abs(a - b), initial=0))), a, b)
    return max(parts)


@pytest.mark.parametrize("inner", ALGORITHMS, ids=repr)
def test_it_is_the_plain_protocol(inner, tmp_path):
    """Under coins, with a removal and a new generation, state for state to rounding."""
    algorithm, rng = in_whole_numbers(inner), np.random.default_rng(1)
    plain = open_server(tmp_path / "plain", None, algorithm, local_steps=2)
    sealed = open_server(tmp_path / "sealed", SECURE, algorithm, local_steps=2)
    sites, secure_sites = open_sites(None, algorithm), open_sites(SECURE, algorithm)
    with plain, sealed:
        for index in range(16):
            names = [name for name in NAMES if rng.random() < 0.7 and name not in plain.gone]
            if len(names) < SECURE.minimum:
                continue
            play(plain, sites, names)
            play(sealed, secure_sites, names)
            if index == 9:
                plain.remove("west")
                sealed.remove("west")
            if index == 12:
                plain.new_generation()
                sealed.new_generation()
            server, states = sealed.open_job(KEYS)
            assert gap(server, plain.server) < 1e-12
            assert (plain.generation, plain.gone) == (sealed.generation, sealed.gone)
            for (_, mine), (_, other) in zip(states, plain.states(), strict=True):
                assert gap(mine, other) < 1e-12


def test_it_is_exact_and_its_sums_are_those_of_the_states(tmp_path):
    with open_server(tmp_path) as server:
        sites = open_sites()
        for _ in range(60):
            play(server, sites)
        state, states = server.open_job(KEYS)
        assert np.abs(state.x - OPTIMUM).max() < 1e-11
        assert gap(state, ALGORITHM.recompute(state, states)) < 1e-12
    model, rounds = open_model(tmp_path / "job" / "server.db", KEYS)
    assert rounds == 59 and np.abs(model - OPTIMUM).max() < 1e-11


def test_lost_replies_wiped_sites_and_killed_servers(tmp_path):
    """Whoever renews the base may be lost: then the journal grows, and nothing else."""
    rng, sites = np.random.default_rng(2), open_sites()
    server = open_server(tmp_path)
    lengths = []
    for _ in range(150):
        for name in rng.permutation(NAMES):
            reply = answer(sites[name], server.request(name))
            if rng.random() < 0.6:
                server.receive(name, reply)
            if rng.random() < 0.2:
                sites[name].cache.clear()
        if len(server.counted) >= SECURE.minimum:
            server.close_round()
        if rng.random() < 0.1:
            server.close()
            server = open_server(tmp_path)
        lengths.append(len(server._journal.ops))
    state, states = server.open_job(KEYS)
    server.close()
    assert max(lengths) > 1  # it came to that
    assert gap(state, ALGORITHM.recompute(state, states)) < 1e-12
    assert np.abs(state.x - OPTIMUM).max() < 1e-8


def test_a_key_is_rotated(tmp_path):
    """Sites that have both keys go on; who has the old one alone is refused by a reason."""
    Keys.create(tmp_path / "key")
    old = Keys.read(tmp_path / "key")
    sites = open_sites(keys=old)
    with open_server(tmp_path) as server:
        play(server, sites)
        Keys.create(tmp_path / "key", rotate=True)
        new = Keys.read(tmp_path / "key")
        assert new.secrets[1:] == old.secrets
        sites = {name: replace(site, keys=new) for name, site in sites.items()}
        for _ in range(60):
            play(server, sites)
        with pytest.raises(Refused, match="needs the key .* and this site has"):
            answer(open_sites(keys=old)["north"], server.request("north"))
        only_new = Keys(new.secrets[:1])
        state, _ = server.open_job(only_new)
        assert np.abs(state.x - OPTIMUM).max() < 1e-10


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_norm": 1.0}, "max_norm needs single pushes"),
        ({"weights": dict.fromkeys(NAMES, 1.0)}, "weights needs single pushes"),
        ({"secure": Secure(minimum=5)}, "at most the number of sites, 4; got 5"),
        ({"algorithm": in_whole_numbers(ff.Scaffnew())}, "answer changes its clients' states"),
        ({"algorithm": ff.Focus()}, "the algorithm must be Compressed"),
        ({"algorithm": in_whole_numbers(ff.Focus(warm_start=True))}, "Give warm_start=False"),
        ({"algorithm": ff.Compressed(ff.Focus(), ff.FixedPoint(bits=53))}, None),
    ],
)
def test_jobs_that_cannot_have_secure_sums(options, words, tmp_path):
    if words is None:
        return open_server(tmp_path, **options).close()
    with pytest.raises(ValueError, match=words):
        open_server(tmp_path, **options)
    assert not list(tmp_path.iterdir())  # nothing is half-written


def test_files_of_keys(tmp_path):
    file = tmp_path / "key"
    with pytest.raises(ValueError, match="cannot be read"):
        Keys.read(file)
    with pytest.raises(ValueError, match="needs keys=Keys.read"):
        open_sites(keys=Keys(()))
    with pytest.raises(ValueError, match="no .* to rotate"):
        Keys.create(file, rotate=True)
    Keys.create(file)
    assert file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ValueError, match="a job whose key is replaced is lost"):
        Keys.create(file)
    file.write_text("beef\n")
    with pytest.raises(ValueError, match="64 hexadecimal digits"):
        Keys.read(file)
