"""Who a site is: its name and folder at home; its public key, and certificates, at the server."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from focusfl.core.validation import check_positive

if TYPE_CHECKING:
    from flwr.app import Context

    from focusfl.privacy.account import Limit

FOLDER = "~/.focusfl"
RENEWAL = timedelta(days=42)  # before its end a certificate is to be renewed
Keys = Mapping[str, str] | str | Path  # by site, or a folder with SITE.pub for each


class Identity(NamedTuple):
    """A site, as its SuperNode is configured."""

    site: str
    number: int | None  # its place among the sites, where they share a data set
    folder: Path  # where it keeps what must last
    key: Path | None = None  # file of the key of secure sums
    limit: "Limit | None" = None  # the most that it may reveal


def identify(context: "Context") -> Identity:
    """Read which site this is from the SuperNode's configuration.

    `site` is its name, else that in the file `site-file`, else site-N of
    `partition-id=N`; `state` is a folder that lasts, ~/.focusfl/SITE if not given; `sums-key`
    is the file of the key that all sites with secure sums share; `epsilon` is the most that the
    site may reveal, in all jobs together, at `delta`, 1e-5 if not given.

    Raises:
        ValueError: If none of the three is given, or a number is out of its range.
    """
    config = context.node_config
    number = config.get("partition-id")
    if "site" in config:
        site = str(config["site"])
    elif "site-file" in config:
        site = Path(str(config["site-file"])).expanduser().read_text().strip()
    elif number is not None:
        site = f"site-{number}"
    else:
        raise ValueError(
            "a SuperNode must say which site it is: start it with --node-config "
            "'site=\"NAME\"', 'site-file=\"FILE\"' or 'partition-id=NUMBER'."
        )
    folder = Path(str(config.get("state") or Path(FOLDER) / site)).expanduser()
    key = Path(str(config["sums-key"])).expanduser() if "sums-key" in config else None
    limit = _limit(config) if "epsilon" in config else None
    return Identity(site, None if number is None else int(number), folder, key, limit)


def _limit(config: Mapping[str, Any]) -> "Limit":
    from focusfl.privacy.account import Limit
    from focusfl.privacy.accounting import check_delta

    epsilon, delta = config["epsilon"], config.get("delta", 1e-5)
    check_positive("epsilon in the SuperNode's configuration", epsilon)
    check_delta(delta)
    return Limit(float(epsilon), float(delta))


def read_keys(keys: Keys, sites: Sequence[str]) -> dict[bytes, str]:
    """Read the public keys of all sites.

    Args:
        keys: the texts of the keys by site, or a folder with a file SITE.pub for each.
        sites: names of all sites of the job.

    Returns:
        Sites by their keys, as Flower writes these.

    Raises:
        ValueError: If a site has no key that can be read, or two have the same.
    """
    if isinstance(keys, Mapping):
        texts, where = {site: text.encode() for site, text in keys.items()}, "the job"
    else:
        folder = Path(keys).expanduser().absolute()
        texts, where = {f.stem: f.read_bytes() for f in sorted(folder.glob("*.pub"))}, str(folder)
    if missing := [site for site in sites if site not in texts]:
        raise ValueError(
            f"keys must have a public key of every site; {', '.join(missing)} "
            f"{'has' if len(missing) == 1 else 'have'} none in {where}."
        )
    sites_by_key: dict[bytes, str] = {}
    for site in sites:
        other = sites_by_key.setdefault(canonical(texts[site], f"the public key of {site}"), site)
        if other != site:
            raise ValueError(
                f"every site must have a key of its own; {other} and {site} have "
                f"the same in {where}."
            )
    return sites_by_key


def canonical(text: bytes, what: str = "a public key") -> bytes:
    """Give a public key as Flower writes it, from OpenSSH's format or PEM.

    Raises:
        ValueError: If it is no such key; the message calls it `what`.
    """
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


def expiries(folder: Path, now: datetime | None = None) -> list[str]:
    """Say which certificates in a folder have ended, will within `RENEWAL`, or are damaged."""
    from cryptography import x509

    notices, now = [], now or datetime.now(UTC)
    for file in sorted(folder.glob("*.crt")):
        try:
            end = x509.load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc
        except Exception as error:  # cryptography has many for what is no certificate
            notices.append(f"{file.name} cannot be read as a certificate: {error}.")
            continue
        if end - now < RENEWAL:
            when = f"ends in {(end - now).days} days" if end > now else "has ended"
            what = "focusfl deploy certificates FOLDER --renew"
            if file.name == "ca.crt":
                what = "a new folder of keys, whose ca.crt every site needs"
            notices.append(f"{file.name} {when}, on {end:%Y-%m-%d}: {what}.")
    return notices
