"""Who a node is: by its key, by its name, or by its word."""

import pytest
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import ec
from loopback import FOCUS, PROBLEM, SITES, Loopback, Node, events, job, nodes

from focusfl.deploy import certificates
from focusfl.flower import client_app
from focusfl.flower.app import run
from focusfl.flower.identity import canonical


def new_key():
    key = ec.generate_private_key(ec.SECP256R1()).public_key()
    return key.public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)


KEYS = {site: new_key().decode() + f" {site}@host" for site in SITES}


def fleet(folder, **more):
    """The four sites, each with its name and its key."""
    here = nodes(folder)
    for site, node in zip(SITES, here.values(), strict=True):
        node.name, node.key = site, canonical(KEYS[site].encode())
    return here


def stranger(folder, **more):
    return Node(client_app(PROBLEM, FOCUS), 0, folder / "stranger", **more)


def asked(grid):
    return {node for _, node, _ in grid.asked}


def why(folder):
    return [event["why"] for event in events(folder, "stranger")]


@pytest.mark.parametrize("name", ["", "site-0", "anybody"])
def test_who_has_no_key_of_the_job_is_asked_for_nothing(tmp_path, name):
    """The newest node, by whatever name, which before this took a site over."""
    here = fleet(tmp_path)
    grid = Loopback({**here, 999: stranger(tmp_path, name=name, key=new_key())})
    run(grid, job(tmp_path, rounds=3, keys=KEYS))
    assert asked(grid) == set(here)
    assert why(tmp_path) == ["node 999: it has the key of no site"]
    assert events(tmp_path, "notice") == []


def test_a_key_says_who_it_is_whatever_the_name(tmp_path):
    here = fleet(tmp_path)
    here[100].name, here[101].name, here[102].name = "site-1", "", "nobody"
    grid = Loopback(here)
    run(grid, job(tmp_path, rounds=3, keys=KEYS))
    assert asked(grid) == set(here) and why(tmp_path) == []
    for event in events(tmp_path, "round"):
        assert sorted(event["counted"]) == sorted(SITES)


def test_a_site_is_followed_to_another_node_with_its_key(tmp_path):
    here = fleet(tmp_path)

    def moved(grid, round):
        if round == 2 and 103 in grid.nodes:
            grid.nodes[203] = grid.nodes.pop(103)

    run(Loopback(here, moved), job(tmp_path, rounds=6, keys=KEYS, deadline=5.0))
    assert "site-3" in events(tmp_path, "round")[-1]["counted"]
    assert why(tmp_path) == []


def test_keys_may_be_a_folder_on_the_server(tmp_path):
    folder = tmp_path / "keys"
    folder.mkdir()
    for site, text in KEYS.items():
        (folder / f"{site}.pub").write_text(text)
    grid = Loopback({**fleet(tmp_path), 999: stranger(tmp_path, name="site-0")})
    plain = job(tmp_path, rounds=2)
    run(grid, plain.configured({"keys": str(folder)}))
    assert 999 not in asked(grid) and len(why(tmp_path)) == 1


WRONG = {
    "missing": ({"site-3": None}, "site-3 has none"),
    "twice": ({"site-3": KEYS["site-0"]}, "site-0 and site-3 have the same"),
    "no key": ({"site-1": "ssh-nothing AAAA"}, "the public key of site-1"),
    "another kind": (
        {"site-1": "ssh-ed25519 " + "AAAAC3NzaC1lZDI1NTE5AAAAI" + "A" * 43},
        "must be of the kind ecdsa",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_keys_that_cannot_bind_are_refused_in_a_line(tmp_path, what):
    change, said = WRONG[what]
    keys = {k: v for k, v in {**KEYS, **change}.items() if v is not None}
    with pytest.raises(ValueError, match=said):
        job(tmp_path, keys=keys)


def test_among_named_sites_nobody_is_taken_at_their_word(tmp_path):
    """A node that was registered without a name took a named site over."""
    here = {999: stranger(tmp_path), **fleet(tmp_path), 55: stranger(tmp_path)}
    grid = Loopback(here)
    run(grid, job(tmp_path, rounds=3))
    assert {kind for kind, node, _ in grid.asked if node in (55, 999)} <= {"query"}
    assert {line.split(":")[0] for line in why(tmp_path)} == {"node 55", "node 999"}
    assert "without a name" in why(tmp_path)[0]
    assert "believed by name" in events(tmp_path, "notice")[0]["why"]


def test_who_came_before_the_names_is_shown_out(tmp_path):
    here = nodes(tmp_path)

    def named(grid, round):
        if round == 2 and 300 not in grid.nodes:
            grid.nodes |= {300 + i: node for i, node in enumerate(fleet(tmp_path).values())}

    grid = Loopback(dict(here), named)
    run(grid, job(tmp_path, rounds=9, deadline=5.0))
    last = {node for kind, node, group in grid.asked if group == "8"}
    assert last == {300, 301, 302, 303}
    assert {line.split(":")[0] for line in why(tmp_path)} == {f"node {n}" for n in here}


def test_of_two_with_one_name_the_first_has_it_until_it_is_gone(tmp_path):
    here = fleet(tmp_path)

    def second(grid, round):
        if round == 1:
            grid.nodes[999] = Node(grid.nodes[101].app, 0, tmp_path / "site-0", "site-0")
        if round == 5:
            grid.nodes.pop(100, None)

    grid = Loopback(here, second)
    run(grid, job(tmp_path, rounds=12, deadline=5.0))
    groups = {int(g) for kind, node, g in grid.asked if node == 999 and kind == "train"}
    assert groups and min(groups) > 5
    assert why(tmp_path) == ["node 999: node 100 is 'site-0' already"]


def test_a_certificate_that_ends_soon_is_said_when_a_job_begins(tmp_path, monkeypatch):
    folder = tmp_path / "keys"
    monkeypatch.setattr(certificates, "DAYS", 20)
    certificates.make(folder, ["localhost"], SITES)
    here = nodes(tmp_path)
    for site, node in zip(SITES, here.values(), strict=True):
        node.key = canonical((folder / f"{site}.pub").read_bytes())
    run(Loopback(here), job(tmp_path, rounds=1, keys=folder))
    (notice,) = events(tmp_path, "notice")
    assert "server.crt ends in 19 days" in notice["why"]
