"""Certificates for the server, keys for the sites, secrets for operators."""

import ipaddress
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from focusfl.core.files import renamed
from focusfl.flower.protocol.settings import check_name

DAYS = 365  # that a server's certificate is good for
YEARS = 10  # that sites can go on trusting the authority
TOKEN, SECRET = "operator.token", "superexec.secret"
AUTHORITY = "focusfl certificate authority"
TAKEN = ("ca", "server")
ENDINGS = (".crt", ".key", ".pub", ".token", ".secret")


def make(folder: Path, hosts: Sequence[str], sites: Sequence[str]) -> list[Path]:
    """Write what a server needs, and SITE, SITE.pub for every site.

    Of the server: ca.crt, which sites trust, and ca.key, with which the certificate is
    renewed; server.crt and server.key; the operators' token and the secret of what runs
    the server app. What is there already stays: run it again to add a site. All but
    certificates and public keys can be read by their owner alone.
    """
    for site in sites:
        check_name("a site", site)
        if site in TAKEN or site.endswith(ENDINGS):
            raise ValueError(f"a site cannot be called {site!r}: files here are.")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = [] if (folder / "server.crt").exists() else _server(folder, hosts)
    files += make_secrets(folder)
    for site in sites:
        if not (folder / site).exists() and not (folder / f"{site}.pub").exists():
            files += _site(folder, site)
    return files


def make_secrets(folder: Path) -> list[Path]:
    """Write what operators and the server app show to a SuperLink, if it is missing."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    missing = [folder / n for n in (TOKEN, SECRET) if not (folder / n).exists()]
    return [_write(file, secrets.token_urlsafe(32).encode()) for file in missing]


def renew(folder: Path, hosts: Sequence[str] = ()) -> list[Path]:
    """Write another server.crt, for the same hosts unless others are given.

    The authority and the server's key stay, so sites need nothing new.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    for name in ("ca.key", "ca.crt", "server.key", "server.crt"):
        if not (folder / name).is_file():
            raise ValueError(
                f"renewing needs {name}, which is not in {folder}. Without ca.key make "
                "a new folder, and give every site its ca.crt."
            )
    key, authority = (
        load_pem_private_key((folder / name).read_bytes(), None)
        for name in ("server.key", "ca.key")
    )
    old = x509.load_pem_x509_certificate((folder / "server.crt").read_bytes())
    named = old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    own = _of_server(hosts or [str(name.value) for name in named], key, authority)
    return [_write(folder / "server.crt", own, private=False)]


def _server(folder: Path, hosts: Sequence[str]) -> list[Path]:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    if not hosts:
        raise ValueError("a server certificate needs at least one host name.")
    authority, key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True,
        content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    issued_by = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    roots = _certificate(
        _called(AUTHORITY), authority, authority, YEARS * DAYS,
        [
            (x509.BasicConstraints(ca=True, path_length=0), True),
            (usage, True),
            (issued_by, False),
        ],
    )  # fmt: skip
    own = _of_server(hosts, key, authority)
    return [
        _write(folder / "ca.key", _private(authority)),
        _write(folder / "ca.crt", roots, private=False),
        _write(folder / "server.key", _private(key)),
        _write(folder / "server.crt", own, private=False),
    ]


def _of_server(hosts: Sequence[str], key: Any, authority: Any) -> bytes:
    """The certificate of a server with these names."""
    from cryptography import x509

    issued_by = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(
        x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    )
    return _certificate(
        _called(hosts[0]), key, authority, DAYS,
        [
            (x509.SubjectAlternativeName([_host(name) for name in hosts]), False),
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (issued_by, False),
        ],
    )  # fmt: skip


def _certificate(name: Any, key: Any, authority: Any, days: int, extensions: Any) -> bytes:
    """A certificate of a name and a key, signed by the authority, as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives import serialization as form

    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(_called(AUTHORITY))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - timedelta(hours=1))
        .not_valid_after(datetime.now(UTC) + timedelta(days=days))
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    return builder.sign(authority, hashes.SHA384()).public_bytes(form.Encoding.PEM)


def _called(name: str) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(name: str) -> Any:
    """A host in a certificate: an address, or a name."""
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _private(key: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization as form

    return key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())


def _site(folder: Path, site: str) -> list[Path]:
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.OpenSSH, form.NoEncryption())
    public = key.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    return [
        _write(folder / f"{site}.pub", public + b"\n", private=False),
        _write(folder / site, private),
    ]


def _write(path: Path, content: bytes, private: bool = True) -> Path:
    with renamed(path, private=private) as part:
        part.write_bytes(content)
    return path
