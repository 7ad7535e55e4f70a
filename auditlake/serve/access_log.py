"""Record of who looked at what: one line of JSON for each request, appended to a file before its answer is sent.

    {"time": "2026-11-25T12:00:00.000Z", "user": "ann", "address": "10.0.0.7", "route": "/rows",
     "tables": ["public.orders"], "at": "0/16B3748", "status": 200}

`tables` are those that were asked for, or that a statement read; without any, the answer is about every table that the
user may see. `at`, `before`, `after`, `since`, `versus` and `transaction` are as they were asked. Keys, values, filters
and statements are not recorded. Requests that show no rows are left out: static files, steps and bars of the timeline,
completions. The file is opened for each line, so it can be moved away. Without its line no answer is sent.
"""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

from starlette.datastructures import QueryParams
from starlette.types import Scope

from auditlake.errors import ConfigError
from auditlake.serve.grants import User

TABLES = "auditlake.tables"
"""Key of the scope of a request under which a statement's tables are."""
_QUIET = frozenset({"/api/v1/step", "/api/v1/timeline", "/api/v1/complete", "/api/openapi.json", "/sign-in"})
_STATIC = "/static/"
_MOMENTS = ("at", "before", "after", "since", "versus", "transaction")
_LONGEST = 300
_MODE = 0o600
_REFUSED = 400


class AccessLog:
    """The file of one server."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError if it cannot be appended to."""
        self._path = path
        try:
            self._append(b"")
        except OSError as exc:
            raise ConfigError(
                f"{path} cannot be appended to: {exc.strerror}", "Give --access-log another file."
            ) from exc

    def record(self, scope: Scope, user: User | None, status: int) -> None:
        """Append the line of a request; raises OSError."""
        path = str(scope["path"])
        if path.startswith(_STATIC) or (path in _QUIET and status < _REFUSED):
            return
        asked = QueryParams(scope["query_string"])  # of a name that is there twice, the last one counts, as for answers
        client = scope.get("client")
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "user": None if user is None else user.name,
            "address": client[0] if client else None,
            "route": path[:_LONGEST],
            "tables": [each[:_LONGEST] for each in scope.get(TABLES, asked.getlist("table"))],
            **{name: asked[name][:_LONGEST] for name in _MOMENTS if asked.get(name)},
            "status": status,
        }
        self._append(json.dumps(line).encode() + b"\n")

    def _append(self, line: bytes) -> None:
        # O_NONBLOCK: opening a named pipe without a reader would block the event loop.
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, _MODE)
        try:
            if os.write(file, line) != len(line):
                raise OSError(28, "only a part of a line was written")
        finally:
            os.close(file)
