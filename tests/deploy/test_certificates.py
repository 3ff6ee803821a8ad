import ssl
import stat
from datetime import UTC, datetime, timedelta

import pytest

from focusfl.deploy import certificates
from focusfl.flower.identity import expiries

SECRETS = (
    "ca.key",
    "server.key",
    "superexec.secret",
    "paris/key",
    "paris/client.key",
)
GIVEN = ("key", "client.key", "client.crt", "ca.crt", "nginx.conf")  # to a site


def test_certificates_are_good_for_their_hosts_and_keys_are_secret(tmp_path):
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    folder = tmp_path / "keys"
    files = certificates.make(folder, ["127.0.0.1", "localhost"], ["paris", "rome"])
    assert len(files) == 6 + 2 * 6 and stat.S_IMODE(folder.stat().st_mode) == 0o700
    for name in SECRETS:
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server.crt", folder / "server.key")
    for host, good in (("127.0.0.1", True), ("localhost", True), ("other.org", False)):
        assert _shakes_hands(server, folder / "ca.crt", host) is good
    load_ssh_private_key((folder / "rome" / "key").read_bytes(), None)
    before = (folder / "rome" / "key").read_bytes(), (folder / "ca.crt").read_bytes()
    again = certificates.make(folder, ["127.0.0.1"], ["rome", "oslo"])
    assert {file.name for file in again} == {"oslo.pub", *GIVEN}
    assert before == ((folder / "rome" / "key").read_bytes(), (folder / "ca.crt").read_bytes())


@pytest.mark.parametrize("site", ["../rome", "", "ca.crt", "server.key", "x.pub", "a b"])
def test_a_site_cannot_be_called_like_another_file(site, tmp_path):
    with pytest.raises(ValueError, match="a site"):
        certificates.make(tmp_path / "keys", ["localhost"], [site])
    assert not (tmp_path / "keys").exists()


@pytest.mark.parametrize("name", ["ca.key", "ca.crt", "server.key", "nginx.conf"])
def test_files_of_others_are_not_replaced(name, tmp_path):
    (tmp_path / name).write_text("theirs")
    with pytest.raises(ValueError, match=f"has {name} and no server.crt"):
        certificates.make(tmp_path, ["localhost"], ["paris"])
    assert [(f.name, f.read_text()) for f in tmp_path.iterdir()] == [(name, "theirs")]


def test_a_certificate_is_renewed_and_sites_need_nothing_new(tmp_path):
    folder = tmp_path / "keys"
    certificates.make(folder, ["127.0.0.1", "localhost"], [])
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    (written,) = certificates.renew(folder)
    after = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert {n for n in after if after[n] != before[n]} == {"server.crt"}
    assert written.name == "server.crt"
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server.crt", folder / "server.key")
    for host, good in (("127.0.0.1", True), ("localhost", True), ("other.org", False)):
        assert _shakes_hands(server, folder / "ca.crt", host) is good
    certificates.renew(folder, ["other.org"])
    server.load_cert_chain(folder / "server.crt", folder / "server.key")
    assert _shakes_hands(server, folder / "ca.crt", "other.org")
    (folder / "ca.key").unlink()
    with pytest.raises(ValueError, match="renewing needs ca.key"):
        certificates.renew(folder)


def test_the_end_of_a_certificate_is_said_weeks_before(tmp_path):
    folder = tmp_path / "keys"
    certificates.make(folder, ["localhost"], [])
    assert expiries(folder) == [] == expiries(tmp_path / "none")
    now = datetime.now(UTC)
    (soon,) = expiries(folder, now + timedelta(days=335))
    assert "server.crt ends in 29 days" in soon and "--renew" in soon
    (over,) = expiries(folder, now + timedelta(days=400))
    assert "server.crt has ended" in over
    both = expiries(folder, now + timedelta(days=3640))
    assert "ca.crt ends in 9 days" in both[0] and "every site" in both[0]


def _shakes_hands(server, roots, host) -> bool:
    client = ssl.create_default_context(cafile=roots)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    ends = [ssl.MemoryBIO() for _ in range(4)]
    near = client.wrap_bio(ends[0], ends[1], server_hostname=host)
    far = server.wrap_bio(ends[2], ends[3], server_side=True)
    for _ in range(10):
        done = 0
        for end in (near, far):
            try:
                end.do_handshake()
                done += 1
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLCertVerificationError:
                return False
        ends[2].write(ends[1].read())
        ends[0].write(ends[3].read())
    return done == 2
