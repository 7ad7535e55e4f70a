"""Witnesses: others who sign a digest, and only if the tree grew from the one that they signed before.

A witness remembers the last tree of each origin. Somebody who has the key that signs digests can rewrite the ledger,
but gets no signature of the witness for the new tree, because no proof exists that it contains the old one.

The client keeps no state. It asks with the old size 0; the witness answers with the size that it signed last, and gets
the proof from there. The answer has signatures of the checkpoint; only one that the witness's key verifies is added to
the digest, all else is ignored.

Authority: C2SP tlog-witness, "add-checkpoint"; tlog-cosignature, "Ed25519 signed message"
"""

import base64
import http.client
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

from auditlake.errors import BadUsage, ConfigError, LakeUnusable
from auditlake.exchange import Address, Exchange, IsOver, OutOfTime, never_over
from auditlake.ledger.merkle import consistency_path
from auditlake.ledger.signed_note import PublicKey

_ANSWER_S = 20.0
_ASKED = 3
"""So often a witness is asked for one digest: another process may have asked it meanwhile."""
_SIZE_TYPE = "text/x.tlog.size"
_SIZE_DIGITS = 19
_REGISTER = "Give its operator the origin, and the key that auditlake digest --show-key prints."
_AGAIN = "Run auditlake digest again (follow and capture ask whenever they seal), or fix `witness` in [digest]."


@dataclass(frozen=True, slots=True)
class Witness:
    """URL of a witness, the key that verifies its signatures, and whether to stop waiting for its answer."""

    url: str
    key: PublicKey
    is_over: IsOver = never_over

    @classmethod
    def of(cls, url: str, key: str, is_over: IsOver = never_over) -> "Witness":
        """Parse the settings of a witness, whose URL was checked with them; raises ConfigError."""
        fix = "Set `witness_key` in [digest] to the key that its operator publishes."
        try:
            parsed = PublicKey.parse(key)
        except BadUsage as exc:
            raise ConfigError(f"the key of the witness is wrong: {exc.message}", fix) from None
        if not parsed.is_witness:
            raise ConfigError(f"{parsed.name} is the key of a log, need the one of a witness", fix)
        return cls(url, parsed, is_over)

    def cosigned(self, note: str, leaves: Sequence[bytes]) -> str:
        """Return a digest of a tree with these leaves, signed by the witness too; raises LakeUnusable."""
        old, origin = 0, note.partition("\n")[0]
        for _ in range(_ASKED):
            path = consistency_path(leaves, old) if old else []
            proof = "".join(f"{base64.b64encode(each).decode()}\n" for each in path)
            status, content, signed = self._ask(f"old {old}\n{proof}\n{note}".encode())
            if status == HTTPStatus.OK:
                return note + self._signature(note, content)
            if signed is None or signed == old:
                raise self._refusal(status, origin, old)
            if signed > len(leaves):
                raise LakeUnusable(
                    f"the witness {self.url} has signed {signed} leaves of {origin}, this lake has {len(leaves)}",
                    "The lake was set back to an older state: compare it with a digest, auditlake verify --digest.",
                )
            old = signed
        raise LakeUnusable(f"the witness {self.url} signs other trees of {origin} meanwhile", _AGAIN)

    def _ask(self, body: bytes) -> tuple[int, str, int | None]:
        """Return status and content of an answer, and the size that was signed last if that is its content."""
        address = Address.parse(self.url)
        connection = address.connection(_ANSWER_S)
        headers = {"Content-Type": "text/plain; charset=utf-8"}
        try:
            exchange = Exchange(connection, f"{address.path.rstrip('/')}/add-checkpoint", body, headers)
            answer = exchange.head(_ANSWER_S, self.is_over)
            content = exchange.content(self.is_over).decode(errors="replace")
        except (OSError, http.client.HTTPException, ValueError) as exc:
            raise LakeUnusable(f"the witness {self.url} cannot be asked: {_reason(exc)}", _AGAIN) from exc
        finally:
            connection.close()
        kind = answer.getheader("Content-Type", "").partition(";")[0].strip()
        is_size = answer.status == HTTPStatus.CONFLICT and kind == _SIZE_TYPE
        return answer.status, content, _size(content) if is_size else None

    def _signature(self, note: str, content: str) -> str:
        """Return the line of an answer with the witness's signature of a digest; raises LakeUnusable."""
        for line in content.splitlines():
            if self.key.signed(note.partition("\n\n")[0] + "\n", line):
                return f"{line}\n"
        raise LakeUnusable(
            f"the witness {self.url} answers without a valid signature of {self.key.name} ({self.key.key_id.hex()})",
            "Fix `witness_key` in [digest], or do not trust the witness.",
        )

    def _refusal(self, status: int, origin: str, old: int) -> LakeUnusable:
        match status:
            case HTTPStatus.NOT_FOUND:
                return LakeUnusable(f"the witness {self.url} does not know {origin}", _REGISTER)
            case HTTPStatus.FORBIDDEN:
                return LakeUnusable(f"the witness {self.url} does not know the key that signs {origin}", _REGISTER)
            case HTTPStatus.CONFLICT | HTTPStatus.UNPROCESSABLE_ENTITY if old:
                return LakeUnusable(
                    f"the witness {self.url} has signed {old} leaves of {origin} that are not the first of this lake",
                    "The ledger was changed: compare it with a digest, auditlake verify --digest.",
                )
            case _:
                return LakeUnusable(f"the witness {self.url} answers {status}, need 200", _AGAIN)


def _reason(exc: Exception) -> str:
    """Return why there is no answer, without quoting the reply."""
    if isinstance(exc, OutOfTime | TimeoutError):
        return "no answer in time"
    return (isinstance(exc, OSError) and str(exc)) or type(exc).__name__


def _size(content: str) -> int | None:
    """Return the size of a tree as a witness writes it; None if it is not one."""
    text = content.removesuffix("\n")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _SIZE_DIGITS else None
