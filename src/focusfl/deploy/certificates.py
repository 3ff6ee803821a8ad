"""Certificates for the server and keys for the sites.

python -m focusfl.deploy.certificates keys --hosts fl.example.org --sites paris rome
"""

import argparse
import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

DAYS = 365  # that a certificate is good for
TAKEN = ("", ".", "..", "ca", "server")


def make(folder: Path, hosts: Sequence[str], sites: Sequence[str]) -> list[Path]:
    """Write ca.crt, server.crt and server.key, and SITE, SITE.pub for every site.

    What is there already stays: run it again to add a site. Private keys can be read
    by their owner alone. The authority signs once and its key is thrown away.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for site in sites:
        if Path(site).name != site or site in TAKEN:
            raise ValueError(f"a site must have a plain name; got {site!r}.")
    files = [] if (folder / "server.crt").exists() else _server(folder, hosts)
    for site in sites:
        if not (folder / site).exists():
            files += _site(folder, site)
    return files


def _server(folder: Path, hosts: Sequence[str]) -> list[Path]:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ec

    if not hosts:
        raise ValueError("a server certificate needs at least one host name.")
    authority, key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    ca = _called("focusfl certificate authority")
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True,
        content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    issued_by = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    roots = _certificate(
        ca, authority, ca, authority,
        [
            (x509.BasicConstraints(ca=True, path_length=0), True),
            (usage, True),
            (issued_by, False),
        ],
    )  # fmt: skip
    own = _certificate(
        _called(hosts[0]), key, ca, authority,
        [
            (x509.SubjectAlternativeName([_host(name) for name in hosts]), False),
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (
                x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(
                    issued_by
                ),
                False,
            ),
        ],
    )  # fmt: skip
    private = key.private_bytes(
        form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()
    )
    return [
        _write(folder / "ca.crt", roots, 0o644),
        _write(folder / "server.key", private, 0o600),
        _write(folder / "server.crt", own, 0o644),
    ]


def _certificate(
    name: Any, key: Any, issuer: Any, signer: Any, extensions: Any
) -> bytes:
    """A certificate of a name and a key, signed by its issuer, as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives import serialization as form

    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - timedelta(hours=1))
        .not_valid_after(datetime.now(UTC) + timedelta(days=DAYS))
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    return builder.sign(signer, hashes.SHA384()).public_bytes(form.Encoding.PEM)


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


def _site(folder: Path, site: str) -> list[Path]:
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        form.Encoding.PEM, form.PrivateFormat.OpenSSH, form.NoEncryption()
    )
    public = key.public_key().public_bytes(
        form.Encoding.OpenSSH, form.PublicFormat.OpenSSH
    )
    return [
        _write(folder / f"{site}.pub", public + b"\n", 0o644),
        _write(folder / site, private, 0o600),
    ]


def _write(path: Path, content: bytes, mode: int) -> Path:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    return path


def main() -> None:
    """Make what several hosts need, from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hosts", nargs="+", required=True, help="of the server")
    parser.add_argument("--sites", nargs="+", default=[], help="a name each")
    options = parser.parse_args()
    for file in make(options.folder, options.hosts, options.sites):
        print(f"written: {file}")


if __name__ == "__main__":
    main()
