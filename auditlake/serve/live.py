"""Live changes as Server-Sent Events: each committed transaction is one event, with its changes and its cursor.

    event: transaction
    id: the cursor after it
    data: {"lsn": …, "actor": …, …, "changes": […], "more": false}

A browser that reconnects sends the last `id`, and the stream continues after it. A slow subscriber delays only its own
stream: the feed just reads files of the lake. At most `_MOST` streams are open at a time, each for `_LONGEST_S`. One
event has at most `_MOST_CHANGES` changes, of long ones as many as have room (`bounds`); `more` is true if the
transaction has others. A failure is reported, and ends the stream with an event `problem` that has the error as JSON.

A user who may not see every table gets the transactions that changed one that is seen, with these tables' changes. The
tables are those that were seen at the beginning of the stream: once they are others, because one was renamed, it ends
before the next event, and a browser that reconnects gets a new one.
"""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import islice

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from auditlake.audit.bounds import Room
from auditlake.audit.json_output import transaction_json
from auditlake.audit.lake_reader import Reader
from auditlake.errors import AuditlakeError
from auditlake.feed.change import ChangedTransaction, change_fields
from auditlake.feed.feed import Feed
from auditlake.feed.request import FeedRequest
from auditlake.lsn import Lsn
from auditlake.serve import models
from auditlake.serve.endpoints import cut_short, read_parameters
from auditlake.serve.resources import Resources
from auditlake.serve.streams import StreamedResponse, StreamPlaces
from auditlake.temporal.moments import read_known

_MOST = 16
_MOST_CHANGES = 1_000
_POLL_S = 0.1
_ALIVE_S = 15.0
_LONGEST_S = 3_000.0


class OfChanges(models.Model):
    """Start and selection of a stream."""

    since: str | None = Field(
        default=None, description="From this moment on, or `beginning`; now by default.", max_length=200
    )
    after: str | None = Field(default=None, description="After this cursor.", max_length=200)
    table: list[str] = Field(default=[], max_length=50)
    op: list[str] = Field(default=[], max_length=4)


class Live:
    """The open streams of one server."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._places = StreamPlaces(_MOST, "streams of changes", "auditlake log --follow --changes")
        self._closed = threading.Event()

    def close(self) -> None:
        """End every stream."""
        self._closed.set()

    async def respond(self, request: Request) -> Response:
        """Answer with a stream of events."""
        asked = read_parameters(OfChanges, request.query_params)
        seen = self._resources.seen_by(request)
        after = request.headers.get("last-event-id") or asked.after
        wanted = FeedRequest(None if after else asked.since, after, tuple(asked.table), ops=tuple(asked.op))
        now = datetime.now(self._resources.zone)
        opened = partial(seen.run, lambda: _Stream.open(seen, wanted, now), request.is_disconnected)
        stream, give_back = await self._places.open(seen.client, opened)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamedResponse(self._events(stream), give_back, media_type="text/event-stream", headers=headers)

    async def _events(self, stream: "_Stream") -> AsyncIterator[str]:
        with closing(stream.feed):
            try:
                async for each in self._taken(stream):
                    yield each
            except Exception as exc:  # noqa: BLE001 - reported, and sent; the stream has begun, so it has its status
                found = cut_short("a stream of changes", stream.resources.disclosed(exc))
                if not await self._is_over(stream, Lsn(0)):  # else it may name a table that the user no longer sees
                    yield f"event: problem\ndata: {found.model_dump_json()}\n\n"

    async def _is_over(self, stream: "_Stream", lsn: Lsn) -> bool:
        """Return whether the user sees other tables than at the beginning, in a state of the lake that has `lsn`."""
        if stream.only is None:
            return False
        while (seen := await asyncio.to_thread(stream.seen)) and seen.watermark < lsn:  # noqa: ASYNC110 - read each second
            await asyncio.sleep(_POLL_S)
        return seen is None or seen.known.only != stream.only

    async def _taken(self, stream: "_Stream") -> AsyncIterator[str]:
        silent_s, until = 0.0, time.monotonic() + _LONGEST_S
        yield f"retry: 2000\nid: {stream.feed.cursor}\n\n"
        while not self._closed.is_set() and time.monotonic() < until:
            found = await asyncio.to_thread(stream.feed.take, 0)
            if found and await self._is_over(stream, found[-1].lsn):
                return
            for each in found:
                yield await asyncio.to_thread(event, each)
            silent_s = 0.0 if found else silent_s + _POLL_S
            if silent_s >= _ALIVE_S:
                silent_s = 0.0
                yield ": alive\n\n"
            if not found:
                await asyncio.sleep(_POLL_S)


@dataclass(frozen=True, slots=True)
class _Stream:
    """A feed, and the names of the tables that were seen when it began; None if all are."""

    resources: Resources
    feed: Feed
    only: frozenset[str] | None

    @classmethod
    def open(cls, resources: Resources, wanted: FeedRequest, now: datetime) -> "_Stream":
        """Open the feed of the tables that are seen; raises Hidden, and what `FeedRequest.open` does."""
        lake = resources.reader().lake
        known = resources.grant.limited(read_known(lake))
        return cls(resources, wanted.open(lake, now, threading.Event(), known), known.only)

    def seen(self) -> Reader | None:
        """Return the lake as the user sees it now; None if that is no table, or it cannot be read."""
        try:
            return self.resources.reader()
        except AuditlakeError:  # the next stream says why
            return None


def event(committed: ChangedTransaction) -> str:
    """Format one transaction as an event."""
    changes = map(change_fields, committed.changes)
    room = Room()
    shown = room.fitting(islice(changes, _MOST_CHANGES))
    more = room.is_cut or next(changes, None) is not None
    data = {**transaction_json(committed), "changes": shown, "more": more}
    return f"event: transaction\nid: {committed.cursor}\ndata: {json.dumps(data)}\n\n"
