"""The key that the sites of a job share, and what they do with it: seal and mask.

Two primitives, both of the package `cryptography`: AES-256-GCM for what sites alone read, and
the key stream of AES-256 in counter mode for numbers that a server adds up without reading
them (Castelluccia, Mykletun, Tsudik 2005, https://doi.org/10.1109/MOBIQUITOUS.2005.25). Each
message and each push has a key of its own, derived by HKDF from 16 random bytes.
"""

import os
import secrets
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from focusfl.core.files import renamed
from focusfl.flower.protocol.messages import Refused

BYTES = 32  # of a key
ID, SALT = 4, 16  # bytes by which a key is told from others; random ones of a message
PREFIX = ID + SALT  # bytes before what is sealed, and before the numbers of a push
OVERHEAD = PREFIX + 16  # bytes that sealing adds


@dataclass(frozen=True, repr=False)
class Keys:
    """The keys of a job's sites.

    Attributes:
        secrets: 32 bytes each. The first seals; the others open what they sealed before.
    """

    secrets: tuple[bytes, ...]

    @classmethod
    def read(cls, path: Path) -> "Keys":
        """Read a file of keys, one a line in hexadecimal digits; ValueError if it is none."""
        try:
            keys = tuple(bytes.fromhex(line) for line in path.read_text().split())
        except OSError as error:
            raise ValueError(f"the key of secure sums cannot be read: {error}.") from None
        except ValueError:
            keys = ()
        if not keys or {len(key) for key in keys} != {BYTES}:
            raise ValueError(
                f"{path} must have a key of {2 * BYTES} hexadecimal digits in each line, as "
                "focusfl deploy keys writes it."
            )
        return cls(keys)

    @classmethod
    def create(cls, path: Path, rotate: bool = False) -> None:
        """Write a file with a new key.

        Args:
            path: of the file, which its owner alone can read.
            rotate: put the new key before those of the file, which still open what they
                have sealed.

        Raises:
            ValueError: If there is a file already and it is not to be rotated, or none that is.
        """
        if path.exists() != rotate:
            raise ValueError(
                f"there is no {path} to rotate." if rotate else
                f"{path} is there already: a job whose key is replaced is lost. --rotate "
                "puts a new key before the old one."
            )  # fmt: skip
        old = cls.read(path).secrets if rotate else ()
        path.parent.mkdir(parents=True, exist_ok=True)
        with renamed(path, private=True) as part:
            lines = [key.hex() + "\n" for key in (secrets.token_bytes(BYTES), *old)]
            part.write_text("".join(lines))

    @cached_property
    def _by_id(self) -> dict[bytes, bytes]:
        return {_derive(key, b"id", b"", ID): key for key in self.secrets}

    def seal(self, content: bytes, about: str) -> bytes:
        """Encrypt and authenticate; `about` must be the same where it is opened."""
        prefix = self._prefix()
        return prefix + self._gcm(prefix).encrypt(bytes(12), content, about.encode())

    def open(self, blob: bytes, about: str) -> bytes:
        """Give what was sealed; Refused if it was not, by these keys and about this."""
        try:
            return self._gcm(blob[:PREFIX]).decrypt(bytes(12), blob[PREFIX:], about.encode())
        except InvalidTag:
            raise Refused(f"it is not what a site of this job has sealed: {about}.") from None

    def mask(self, numbers: np.ndarray) -> bytes:
        """Hide whole numbers, (size,) uint64, so that sums modulo 2^64 can be unmasked."""
        prefix = self._prefix()
        return prefix + (numbers + self._stream(prefix, numbers.size)).tobytes()

    def unmask(self, total: np.ndarray, prefixes: list[bytes]) -> np.ndarray:
        """Take the masks of pushes with these prefixes from their sum."""
        for prefix in prefixes:
            total = total - self._stream(prefix, total.size)
        return total

    def _prefix(self) -> bytes:
        return next(iter(self._by_id)) + os.urandom(SALT)

    def _key(self, prefix: bytes, purpose: bytes) -> bytes:
        key = self._by_id.get(prefix[:ID])
        if key is None or len(prefix) != PREFIX:
            raise Refused(
                f"it needs the key {prefix[:ID].hex()}, and this site has "
                f"{', '.join(name.hex() for name in self._by_id)}."
            )
        return _derive(key, purpose, prefix[ID:], BYTES)

    def _gcm(self, prefix: bytes) -> AESGCM:
        # A key for this message alone: its nonce can be 0.
        return AESGCM(self._key(prefix, b"seal"))

    def _stream(self, prefix: bytes, size: int) -> np.ndarray:
        key = self._key(prefix, b"mask")
        stream = (
            Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(8 * size))
        )
        return np.frombuffer(stream, "<u8")


def _derive(key: bytes, purpose: bytes, salt: bytes, length: int) -> bytes:
    return HKDF(SHA256(), length, salt, b"focusfl " + purpose).derive(key)
