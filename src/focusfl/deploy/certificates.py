"""Certificates and keys for a federation on several hosts, and nginx in front of it.

In the folder, readable by its owner alone where it is secret:

ca.crt, ca.key              the authority of this federation, good for ten years
server.crt, server.key      of the server, good for a year
superexec.secret            what `flower-superexec` shows to the SuperLink
nginx.conf                  the proxy at the server
SITE.pub                    the site's public key, by which the SuperLink knows it
SITE/                       what the site is given: key, for its SuperNode; client.crt,
                            client.key, ca.crt and nginx.conf, for its proxy
"""

import ipaddress
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from focusfl.core.files import renamed
from focusfl.flower.protocol.settings import check_name

DAYS = 365  # that a server's certificate is good for
AUTHORITY_DAYS = 3650  # so long is the authority's, and a site's, which has no other way
SECRET = "superexec.secret"
AUTHORITY = "focusfl certificate authority"
ENDINGS = (".conf", ".crt", ".key", ".log", ".parts", ".pid", ".pub", ".secret")
CONFIGURATIONS = Path(__file__).parent / "nginx"


def make(folder: Path, hosts: Sequence[str], sites: Sequence[str]) -> list[Path]:
    """Write what a server and its sites need; keep the files that are there already.

    Args:
        folder: where to write; with a folder that was written before, sites are added.
        hosts: names or addresses by which sites reach the server; their proxies call
            the first that is a name, as nginx checks no addresses.
        sites: names. If the folder has a SITE.pub, the site has made its key itself.

    Returns:
        The files that were written.

    Raises:
        ValueError: If a site's name is none for a file, there are no hosts, or the folder has
            other files of these names.
    """
    for site in sites:
        check_name("a site", site)
        if site.endswith(ENDINGS):
            raise ValueError(f"a site cannot be called {site!r}: files here are.")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = [] if (folder / "server.crt").exists() else _server(folder, hosts)
    files += make_secret(folder)
    for site in sites:
        if not (folder / site).exists():
            files += _site(folder, site)
    return files


def make_secret(folder: Path) -> list[Path]:
    """Write the secret by which superexec, which runs the server app, is known to Flower.

    Nothing is written, and nothing returned, if it is there already.
    """
    file = folder / SECRET
    return [] if file.exists() else [_write(file, secrets.token_urlsafe(32).encode())]


def renew(folder: Path, hosts: Sequence[str] = ()) -> list[Path]:
    """Write another server.crt, for the same hosts unless others are given.

    The authority and the server's key stay, so sites need nothing new.

    Raises:
        ValueError: If the authority's or the server's files are not in the folder.
    """
    for name in ("ca.key", "ca.crt", "server.key", "server.crt"):
        if not (folder / name).is_file():
            raise ValueError(
                f"renewing needs {name}, which is not in {folder}. Without ca.key make "
                "a new folder, and give every site its ca.crt."
            )
    names = hosts or _hosts(folder)
    return [_write(folder / "server.crt", _of_server(folder, names), private=False)]


def _server(folder: Path, hosts: Sequence[str]) -> list[Path]:
    if not hosts:
        raise ValueError("a server certificate needs at least one host name.")
    names = ("ca.key", "ca.crt", "server.key", "nginx.conf")
    if there := [name for name in names if (folder / name).exists()]:
        raise ValueError(
            f"{folder} has {', '.join(there)} and no server.crt, and they would be replaced; "
            "name another folder, or move them away."
        )
    authority, key = _new_key(), _new_key()
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True,
        content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    issuer = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    basic = x509.BasicConstraints(ca=True, path_length=0)
    extensions = [(basic, True), (usage, True), (issuer, False)]
    root = _certificate(AUTHORITY, authority.public_key(), authority, AUTHORITY_DAYS, extensions)
    proxy = (CONFIGURATIONS / "server.conf").read_text().replace("HOST", _name(hosts))
    return [
        _write(folder / "ca.key", _private(authority)),
        _write(folder / "ca.crt", root, private=False),
        _write(folder / "server.key", _private(key)),
        _write(folder / "server.crt", _of_server(folder, hosts), private=False),
        _write(folder / "nginx.conf", proxy.encode(), private=False),
    ]


def _site(folder: Path, site: str) -> list[Path]:
    """Write a site's key, unless it made one itself, and what its proxy needs."""
    home, public = folder / site, folder / f"{site}.pub"
    home.mkdir(mode=0o700)
    files = []
    if not public.exists():
        key = _new_key()
        text = key.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
        # Flower reads OpenSSH's format, nginx PEM: it is the same key.
        files += [
            _write(public, text + b"\n", private=False),
            _write(home / "key", _private(key, form.PrivateFormat.OpenSSH)),
            _write(home / "client.key", _private(key)),
        ]
    key = form.load_ssh_public_key(public.read_bytes())
    # For the server it is a client, for its own SuperNode a server, and of this host alone:
    # with these names it cannot pass for the server, whatever the site is called.
    usage = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
    client = _leaf(folder, site, key, AUTHORITY_DAYS, usage, ["localhost", "127.0.0.1"])
    proxy = (CONFIGURATIONS / "site.conf").read_text().replace("HOST", _name(_hosts(folder)))
    return [
        *files,
        _write(home / "client.crt", client, private=False),
        _write(home / "ca.crt", (folder / "ca.crt").read_bytes(), private=False),
        _write(home / "nginx.conf", proxy.encode(), private=False),
    ]


def _of_server(folder: Path, hosts: Sequence[str]) -> bytes:
    """Make the certificate of a server with these names, for the key in the folder."""
    key = _load(folder / "server.key").public_key()
    return _leaf(folder, hosts[0], key, DAYS, [ExtendedKeyUsageOID.SERVER_AUTH], hosts)


def _leaf(folder: Path, name: str, key: Any, days: int, usage: list, hosts: Sequence[str]) -> bytes:
    """Make a certificate for some hosts, signed by the authority in the folder."""
    authority = _load(folder / "ca.key")
    issuer = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(
        x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    )
    basic = x509.BasicConstraints(ca=False, path_length=None)
    names = x509.SubjectAlternativeName([
        x509.IPAddress(ipaddress.ip_address(host)) if _is_address(host) else x509.DNSName(host)
        for host in hosts
    ])  # fmt: skip
    purpose = x509.ExtendedKeyUsage(usage)
    extensions = [(basic, True), (issuer, False), (purpose, False), (names, False)]
    return _certificate(name, key, authority, days, extensions)


def _certificate(name: str, key: Any, authority: Any, days: int, extensions: list) -> bytes:
    """Make a certificate of a name and a public key, signed by the authority, as PEM."""

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])

    builder = (
        x509.CertificateBuilder()
        .subject_name(named(name))
        .issuer_name(named(AUTHORITY))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - timedelta(hours=1))
        .not_valid_after(datetime.now(UTC) + timedelta(days=days))
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    return builder.sign(authority, hashes.SHA384()).public_bytes(form.Encoding.PEM)


def _hosts(folder: Path) -> list[str]:
    """Read the hosts for which the server's certificate is."""
    old = x509.load_pem_x509_certificate((folder / "server.crt").read_bytes())
    names = old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names]


def _name(hosts: Sequence[str]) -> str:
    return next((host for host in hosts if not _is_address(host)), hosts[0])


def _is_address(host: str) -> bool:
    try:
        return bool(ipaddress.ip_address(host))
    except ValueError:
        return False


def _new_key() -> Any:
    return ec.generate_private_key(ec.SECP384R1())


def _load(file: Path) -> Any:
    return form.load_pem_private_key(file.read_bytes(), None)


def _private(key: Any, kind: Any = form.PrivateFormat.PKCS8) -> bytes:
    return key.private_bytes(form.Encoding.PEM, kind, form.NoEncryption())


def _write(path: Path, content: bytes, private: bool = True) -> Path:
    with renamed(path, private=private) as part:
        part.write_bytes(content)
    return path
