"""The public keys of sites, and how long the certificates beside them are good."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

Keys = Mapping[str, str] | str | Path  # by site, or a folder with SITE.pub for each

SOON = timedelta(days=42)  # before its end a certificate is to be renewed


def read(keys: Keys, sites: Sequence[str]) -> dict[bytes, str]:
    """Sites by their keys; ValueError unless each has one of its own."""
    if isinstance(keys, Mapping):
        texts = {site: text.encode() for site, text in keys.items()}
    else:
        texts = in_folder(Path(keys).expanduser())
    missing = [site for site in sites if site not in texts]
    if missing:
        raise ValueError(
            f"keys must have a public key of every site; {', '.join(missing)} "
            f"{'has' if len(missing) == 1 else 'have'} none in {_where(keys)}."
        )
    sites_by_key: dict[bytes, str] = {}
    for site in sites:
        key = canonical(texts[site], f"the public key of {site}")
        if key in sites_by_key:
            raise ValueError(
                f"every site must have a key of its own; {sites_by_key[key]} and {site} have "
                f"the same in {_where(keys)}."
            )
        sites_by_key[key] = site
    return sites_by_key


def in_folder(folder: Path) -> dict[str, bytes]:
    """The public keys in a folder, by the names of their files."""
    return {file.stem: file.read_bytes() for file in sorted(folder.glob("*.pub"))}


def canonical(text: bytes, what: str = "a public key") -> bytes:
    """A public key as Flower writes it, from OpenSSH's format or PEM."""
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

    pem = text.lstrip().startswith(b"-----")
    load = form.load_pem_public_key if pem else form.load_ssh_public_key
    try:
        key = load(text.strip())
    except Exception as error:  # cryptography has many for what is no key
        raise ValueError(f"{what} cannot be read: {error}") from None
    if not isinstance(key, EllipticCurvePublicKey):
        raise ValueError(
            f"{what} must be of the kind ecdsa (ssh-keygen -t ecdsa -b 384); it is not."
        )
    return key.public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)


def ending(folder: Path, now: datetime | None = None) -> list[str]:
    """Say which certificates in a folder have ended, or will soon."""
    from cryptography import x509

    notices, now = [], now or datetime.now(UTC)
    for file in sorted(folder.glob("*.crt")):
        end = x509.load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc
        if end - now < SOON:
            when = f"ends in {(end - now).days} days" if end > now else "has ended"
            what = "focusfl deploy certificates FOLDER --renew"
            if file.name == "ca.crt":
                what = "a new folder of keys, whose ca.crt every site needs"
            notices.append(f"{file.name} {when}, on {end:%Y-%m-%d}: {what}.")
    return notices


def _where(keys: Keys) -> str:
    if isinstance(keys, Mapping):
        return "the job"
    return str(Path(keys).expanduser().absolute())
