"""Digests in buckets with Object Lock: S3 requires a checksum, in these words; moto wants another header."""

import base64
from collections.abc import Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler

import pytest

from auditlake.ledger.digest import store
from auditlake.ledger.signed_note import Checkpoint
from auditlake.store.files import put_if_absent
from auditlake.store.place import parse_url
from tests.http_server import serving
from tests.ledger_lake import KEY

_CHECKPOINT = Checkpoint("auditlake/1/d/x", 7, sha256(b"root").digest())


class _Locked(BaseHTTPRequestHandler):
    """Answers a PUT as S3 does for a bucket with Object Lock: it must have a checksum, which must be right."""

    bodies: list[bytes]

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        sent = self.headers.get("x-amz-checksum-sha256")
        if sent == base64.b64encode(sha256(body).digest()).decode():
            self.bodies.append(body)
            self._reply(200, b"")
            return
        required = b"Content-MD5 OR x-amz-checksum- HTTP header is required for Put Object requests with Object Lock"
        self._reply(400, b"<Error><Code>InvalidRequest</Code><Message>%s</Message></Error>" % required)

    def _reply(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Be silent."""


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[bytes]]]:
    """Run a store that requires checksums; yield the URL of a bucket in it, and the objects that it has accepted."""
    bodies: list[bytes] = []
    with serving(type("Handler", (_Locked,), {"bodies": bodies})) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "tests")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        yield f"s3://locked-{url.rpartition(':')[2]}", bodies


def test_a_digest_is_sent_with_a_checksum(locked: tuple[str, list[bytes]]) -> None:
    """Without one the store refuses the request, which is why other files of a lake cannot be there."""
    url, accepted = locked
    note = KEY.sign(_CHECKPOINT)
    store(parse_url(f"{url}/digests"), _CHECKPOINT, note)
    assert accepted == [note.encode()]
    with pytest.raises(OSError, match=r"InvalidRequest|400"):
        put_if_absent(parse_url(f"{url}/other"), b"content")
