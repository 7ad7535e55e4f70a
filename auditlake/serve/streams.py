"""Streamed responses, in a bounded number of places, of which one client has less than half.

The response releases its place, however it ends; the handler does if there is none. A client that goes away ends the
response, at whichever await it is; HEAD gets no more than the head.
"""

import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from auditlake.sandbox.failures import Busy
from auditlake.sandbox.processes import share_of

T = TypeVar("T")


class StreamPlaces:
    """The places for one kind of streams."""

    def __init__(self, most: int, kind: str, instead: str) -> None:
        """Allow `most` streams; `kind` names them, `instead` is the command that needs no place."""
        self._most, self._kind, self._instead = most, kind, instead
        self._used: Counter[Hashable] = Counter()
        self._lock = threading.Lock()

    async def open(self, client: Hashable, opened: Callable[[], Awaitable[T]]) -> tuple[T, Callable[[], None]]:
        """Open a client's stream in a place; return it, and what gives the place back. Raises Busy, as `opened`."""
        give_back = self._take(client)
        try:
            return await opened(), give_back
        except BaseException:  # also if the client has gone
            give_back()
            raise

    def _take(self, client: Hashable) -> Callable[[], None]:
        with self._lock:
            if self._used.total() >= self._most or self._used[client] >= share_of(self._most):
                raise Busy(f"too many {self._kind} are open", f"Try again later, or use {self._instead}.")
            self._used[client] += 1
        held = [client]

        def give_back() -> None:
            with self._lock:
                self._used -= Counter(held)
                held.clear()

        return give_back


class StreamedResponse(StreamingResponse):
    """A response that calls `ended` when it has ended; its iterator may never have been started."""

    def __init__(self, content: Any, ended: Callable[[], None], **given: Any) -> None:  # noqa: ANN401 - as starlette
        super().__init__(content, **given)
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        try:
            if scope["method"] == "HEAD":
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                await send({"type": "http.response.body"})
            else:
                await super().__call__(scope, receive, send)
        finally:
            self._ended()
