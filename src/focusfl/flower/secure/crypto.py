"""Keys, shares and masks, out of `cryptography` and the Shamir that Flower uses.

Flower's own generator of masks folds its seed into 32 bits, which can be tried out one
by one; here masks are a ChaCha20 stream of a key of 256. Flower brings both packages.
"""

import hashlib
from collections.abc import Mapping
from secrets import token_bytes
from typing import NamedTuple

import numpy as np
from Crypto.Protocol.SecretSharing import Shamir
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from focusfl.flower.protocol.messages import Refused

SECRET = 32  # bytes of a seed, of a key, of a share of either
BLOCK = 16  # bytes that Shamir's sharing takes at once
NOTHING = bytes(16)  # where a key is used for one text alone


class Keys(NamedTuple):
    """A site's secrets of one session."""

    seal: bytes  # private key of what is sent to one other site
    mask: bytes  # private key of masks that cancel between two sites
    seed: bytes  # of the mask that the others can take away

    @property
    def public(self) -> bytes:
        """What everybody may know: two public keys."""
        return public_of(self.seal) + public_of(self.mask)


def new_keys() -> Keys:
    """Secrets that nobody has had before."""
    return Keys(token_bytes(SECRET), token_bytes(SECRET), token_bytes(SECRET))


def public_of(private: bytes) -> bytes:
    """The public key of a private one."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agree(private: bytes, public: bytes, what: bytes) -> bytes:
    """The key that two sites have in common, for one purpose."""
    try:
        key = X25519PrivateKey.from_private_bytes(private)
        shared = key.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise Refused("a public key is none.") from None
    return HKDF(SHA256(), SECRET, None, b"focusfl secure " + what).derive(shared)


def seal(key: bytes, text: bytes, about: bytes) -> bytes:
    """A text that only who has the key can read, or could have written."""
    nonce = token_bytes(12)
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, text, about)


def unseal(key: bytes, sealed: bytes, about: bytes) -> bytes:
    """The text again; Refused if it is another one, or about something else."""
    try:
        return ChaCha20Poly1305(key).decrypt(sealed[:12], sealed[12:], about)
    except (InvalidTag, ValueError):
        raise Refused("a share cannot be opened.") from None


def digest(secret: bytes) -> bytes:
    """What a secret can be known by, and not found out from: it is random."""
    return hashlib.sha256(secret).digest()


def split(secret: bytes, threshold: int, parts: int) -> list[bytes]:
    """Shares of a secret: so many of them give it, fewer nothing at all."""
    blocks = [secret[i : i + BLOCK] for i in range(0, SECRET, BLOCK)]
    shares = [Shamir.split(threshold, parts, block, ssss=False) for block in blocks]
    return [b"".join(part for _, part in share) for share in zip(*shares, strict=True)]


def combine(shares: Mapping[int, bytes]) -> bytes:
    """The secret of exactly as many shares as it takes, by their places from 0."""
    blocks = [
        [(place + 1, share[i : i + BLOCK]) for place, share in shares.items()]
        for i in range(0, SECRET, BLOCK)
    ]
    return b"".join(Shamir.combine(block, ssss=False) for block in blocks)


def mask(key: bytes, size: int) -> np.ndarray:
    """So many numbers modulo 2^64 that nobody without the key can tell from chance."""
    stream = Cipher(ChaCha20(key, NOTHING), None).encryptor().update(bytes(8 * size))
    return np.frombuffer(stream, "<u8")


def between(me: str, private: bytes, publics: Mapping[str, bytes], size: int) -> np.ndarray:
    """The masks that a site has with others: theirs with it are the opposite."""
    total = np.zeros(size, "<u8")
    for other, public in publics.items():
        shared = mask(agree(private, public, b"mask"), size)
        total = total + shared if me < other else total - shared
    return total
