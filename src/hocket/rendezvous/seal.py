"""Seals: what lies in a store that others may read, or write, is read and changed by nobody without the job's secret.

    tag = HMAC-SHA256(one key, label, text)        sealed = tag, text xor SHAKE-256(another key, tag)

This is deterministic authenticated encryption, SIV (Rogaway & Shrimpton 2006, "A provable-security treatment of the
key-wrap problem"; RFC 5297 is the same with AES), out of what the standard library has: the tag is a pseudorandom
function of all that is sealed, so it is the nonce of the keystream, and what it is compared with after opening. Both
keys are derived from the secret by HMAC. Equal texts under equal labels look equal, which a card that is tried again
has to: a note is written once. A seal says nothing of when it was made: an old one is as good as a new one, under its
label. It is as strong as the secret: where a launcher gave none, and ranks of one host derive it from the job's name,
who can guess that can open it, and the links are protected by the user id only (`links`).
"""

from __future__ import annotations

import hashlib
import hmac

from ..errors import RendezvousError

_TAG = 32  # bytes


def seal(secret: bytes, label: str, text: bytes) -> bytes:
    """`text`, which only `unseal` with the same secret and label gives back."""
    tag = _tag(secret, label, text)
    return tag + _mix(secret, tag, text)


def unseal(secret: bytes, label: str, sealed: bytes) -> bytes:
    """What was sealed. Raises RendezvousError where it was not, with this secret and label, or has been changed."""
    tag, text = sealed[:_TAG], _mix(secret, sealed[:_TAG], sealed[_TAG:])
    if not hmac.compare_digest(tag, _tag(secret, label, text)):
        raise RendezvousError(
            "it was not sealed with this job's secret, or has been changed since: do all ranks have one HOCKET_SECRET, "
            "and who else writes into the store?"
        )
    return text


def _tag(secret: bytes, label: str, text: bytes) -> bytes:
    name = label.encode()
    return hmac.digest(_key(secret, b"tag"), len(name).to_bytes(8, "little") + name + text, "sha256")


def _mix(secret: bytes, tag: bytes, text: bytes) -> bytes:
    stream = hashlib.shake_256(_key(secret, b"stream") + tag).digest(len(text))
    return bytes(a ^ b for a, b in zip(text, stream, strict=True))


def _key(secret: bytes, what: bytes) -> bytes:
    return hmac.digest(secret, b"hocket seal " + what, "sha256")
