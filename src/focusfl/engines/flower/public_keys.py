"""The public keys of sites: what a node must hold to be one of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

Keys = Mapping[str, str] | str | Path  # by site, or a folder with SITE.pub for each


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
    found: dict[bytes, str] = {}
    for site in sites:
        key = canonical(texts[site], f"the public key of {site}")
        if key in found:
            raise ValueError(
                f"every site must have a key of its own; {found[key]} and {site} have "
                f"the same in {_where(keys)}."
            )
        found[key] = site
    return found


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


def _where(keys: Keys) -> str:
    return "the job" if isinstance(keys, Mapping) else str(keys)
