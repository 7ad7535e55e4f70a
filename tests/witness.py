"""A witness of digests, written from C2SP tlog-witness and RFC 9162 with no code of auditlake's; it can misbehave."""

import base64
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tests import http_server

Answer = tuple[int, str, bytes]
"""Status, type of the content, content."""
_PLAIN = "text/plain"
_NAME = "witness.example/w1"
_TIME_S = 1_700_000_000


def is_consistent(old: int, new: int, roots: tuple[bytes, bytes], proof: Sequence[bytes]) -> bool:
    """Verify a consistency proof between trees of 0 < old <= new leaves: RFC 9162, section 2.1.4.2."""
    if old == new:
        return not proof and roots[0] == roots[1]
    path = [roots[0], *proof] if old & (old - 1) == 0 else [*proof]
    if not path:
        return False
    fn, sn = old - 1, new - 1
    while fn & 1:
        fn, sn = fn >> 1, sn >> 1
    first = second = path[0]
    for node in path[1:]:
        if sn == 0:
            return False
        if fn & 1 or fn == sn:
            first, second = (sha256(b"\1" + node + each).digest() for each in (first, second))
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            second = sha256(b"\1" + second + node).digest()
        fn, sn = fn >> 1, sn >> 1
    return sn == 0 and (first, second) == roots


@dataclass
class Witness:
    """What a witness knows: the public key of a log, as auditlake prints it, and the last tree of each origin."""

    log: str
    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    trees: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    answer: Answer | None = None
    """What it answers whatever it is asked."""
    asked: list[bytes] = field(default_factory=list)
    url: str = ""

    @property
    def public_key(self) -> str:
        content = b"\4" + self.key.public_key().public_bytes_raw()
        key_id = sha256(f"{_NAME}\n".encode() + content).hexdigest()[:8]
        return f"{_NAME}+{key_id}+{base64.b64encode(content).decode()}"

    def add_checkpoint(self, body: bytes) -> Answer:
        """Answer a request."""
        self.asked.append(body)
        if self.answer is not None:
            return self.answer
        head, _, note = body.decode().partition("\n\n")
        asked, *proof = head.split("\n")
        text, _, signatures = note.partition("\n\n")
        origin, size, root = text.split("\n")
        if not self._is_signed(f"{text}\n", signatures):
            return 403, _PLAIN, b""
        known, known_root = self.trees.get(origin, (0, b""))
        if int(asked.removeprefix("old ")) != known:
            return 409, "text/x.tlog.size", f"{known}\n".encode()
        roots = known_root, base64.b64decode(root)
        if known and not is_consistent(known, int(size), roots, [base64.b64decode(each) for each in proof]):
            return 422, _PLAIN, b""
        self.trees[origin] = int(size), roots[1]
        return 200, _PLAIN, self.cosignature(f"{text}\n").encode()

    def _is_signed(self, text: str, signatures: str) -> bool:
        name, key_id, encoded = self.log.split("+", 2)
        public = Ed25519PublicKey.from_public_bytes(base64.b64decode(encoded)[1:])
        for _, signer, content in (line.split(" ") for line in signatures.splitlines()):
            raw = base64.b64decode(content)
            if signer == name and raw[:4].hex() == key_id:
                try:
                    public.verify(raw[4:], text.encode())
                except InvalidSignature:
                    return False
                return True
        return False

    def cosignature(self, text: str) -> str:
        """Return a line that signs a checkpoint."""
        signature = self.key.sign(f"cosignature/v1\ntime {_TIME_S}\n{text}".encode())
        content = bytes.fromhex(self.public_key.split("+")[1]) + _TIME_S.to_bytes(8) + signature
        return f"— {_NAME} {base64.b64encode(content).decode()}\n"


@contextmanager
def serving(witness: Witness) -> Iterator[Witness]:
    """Serve a witness on a free port, below a path."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/w/add-checkpoint"
            status, kind, content = witness.add_checkpoint(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with http_server.serving(Handler) as url:
        witness.url = f"{url}/w"
        yield witness
