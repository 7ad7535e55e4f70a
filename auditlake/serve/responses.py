"""Responses: an answer with its ETag, and an error as a problem with an HTTP status."""

from hashlib import blake2b

from starlette.requests import Request
from starlette.responses import Response

from auditlake.errors import AuditlakeError, BadUsage, InvariantBroken, NotAnswerable
from auditlake.messages import report_bug
from auditlake.serve import models

_KEPT_S = 3600
_STATUS: tuple[tuple[type[AuditlakeError], int], ...] = ((BadUsage, 400), (NotAnswerable, 422))


def problem(exc: Exception) -> Response:
    """Return an error as JSON; a bug is reported on stderr, without its message, which may quote rows."""
    found, status = described(exc)
    return Response(found.model_dump_json(), status, media_type="application/json")


def described(exc: Exception) -> tuple[models.Problem, int]:
    """Return what a page or the API shows of an error, and the HTTP status."""
    if isinstance(exc, AuditlakeError) and not isinstance(exc, InvariantBroken):
        status = next((code for kind, code in _STATUS if isinstance(exc, kind)), 503)
        return models.Problem(error=exc.message, hint=exc.hint, code=exc.exit_code), status
    report_bug(exc)
    return models.Problem(error="a bug in auditlake", hint="The server's log has where it happened.", code=1), 500


def tagged(request: Request, body: bytes, media_type: str, fixed: bool) -> Response:  # noqa: FBT001
    """Return a body with its ETag, or that the client has it already."""
    tag = f'"{blake2b(body, digest_size=12).hexdigest()}"'
    headers = {"etag": tag, "cache-control": f"private, max-age={_KEPT_S}" if fixed else "private, no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=media_type, headers=headers)
