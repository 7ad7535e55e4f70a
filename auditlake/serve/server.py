"""Server of the page: bind the address, serve until a signal ends it; routes, answers, errors as answers, static files.

`serve` runs the process, `create_app` makes the ASGI application. A question is answered, and its answer formatted, in
a thread of `Resources`; the event loop only waits. Every answer has an ETag, with which a browser asks again: also an
answer as of a past LSN changes, because it has the number of all commits and whether a table is parked now, and because
a new snapshot of a table may correct it.
"""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.metadata import version
from importlib.resources import files
from types import FrameType
from typing import Any
from urllib.parse import parse_qsl

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from auditlake.config import parse_address
from auditlake.counters import Beat, Counter, beat, begin, counted
from auditlake.errors import BadUsage, ConfigError, NotAnswerable
from auditlake.serve import models
from auditlake.serve.access import COOKIE, Access, Guard, hosts_of, require_safe
from auditlake.serve.access_log import TABLES, AccessLog
from auditlake.serve.commit_answers import OfComparison, undo_script
from auditlake.serve.connections import MOST, Connection, end_slow
from auditlake.serve.endpoints import (
    Endpoint,
    Handler,
    caught,
    cut_short,
    endpoints,
    openapi,
    parse_body,
    read_parameters,
    tagged,
)
from auditlake.serve.export import OfExport, export
from auditlake.serve.lake_answers import StatusAnswers
from auditlake.serve.live import Live
from auditlake.serve.pages import Pages
from auditlake.serve.resources import Resources
from auditlake.serve.sql_answers import OfCompletion, OfSql, Statements
from auditlake.serve.streams import StreamedResponse, StreamPlaces
from auditlake.signals import ENDING, handled

_MOST_BODY_BYTES = 2**20
_MOST_UNDO_BYTES = 64 * 2**20
_MOST_EXPORTS = 8
_MOST_FIELDS = 10
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

_POSTED = (
    ("sql", "Run a statement as of a moment.", OfSql, models.AnswerJson),
    ("complete", "Complete a statement at the cursor.", OfCompletion, models.CompletionsJson),
)

_ENDING_S = 2
_TICKS_PER_S = 10
_BEAT_S = 5.0


def create_app(
    resources: Resources, access: Access, spark: Mapping[str, str] | None = None, access_log: AccessLog | None = None
) -> Guard:
    """Return the application behind its guard; `access_log` records who asked for what."""
    listed = endpoints(StatusAnswers().status)
    pages = Pages(resources, listed, signs_in=access.signs_in)
    statements, live = Statements(spark or {}), Live(resources)

    async def describe(_: Request) -> Response:
        return Response(_document(), media_type="application/json")

    routes = [
        Route("/api/openapi.json", describe),
        *(Route(each.path, _answering(resources, each)) for each in listed),
        Route("/api/v1/export", _exporting(resources)),
        Route("/api/v1/undo", _undoing(resources)),
        Route("/api/v1/sql", _posted(resources, OfSql, statements.answer), methods=["POST"]),
        Route("/api/v1/complete", _posted(resources, OfCompletion, statements.complete), methods=["POST"]),
        Route("/api/v1/changes", caught(live.respond)),
        Route("/sql/answer", _posted(resources, OfSql, statements.answer, pages.sql_answer), methods=["POST"]),
        Route("/static/{name}", _static),
        *pages.routes(),
        Route("/sign-in", _signing_in(access, pages), methods=["GET", "POST"]),
        Route("/sign-out", _sign_out, methods=["POST"]),
    ]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        resources.prepare()
        begin(Beat.SERVE)
        beating = asyncio.create_task(_beat())
        yield
        beating.cancel()
        live.close()
        statements.close()
        resources.close()

    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={404: pages.not_found})
    return Guard(app, access, access_log)


async def _beat() -> None:
    """Record that the event loop runs, for as long as it does."""
    while True:
        beat(Beat.SERVE)
        await asyncio.sleep(_BEAT_S)


@cache
def _document() -> str:
    """Return the OpenAPI document; it is the same for every server."""
    return json.dumps(openapi(endpoints(StatusAnswers().status), _POSTED, version("auditlake")))


def _answering(resources: Resources, endpoint: Endpoint) -> Handler:
    async def answer(request: Request) -> Response:
        asked, seen = read_parameters(endpoint.asked, request.query_params), resources.seen_by(request)
        with counted(Counter.QUESTIONS, Counter.QUESTION_SECONDS, "audit"):
            body = await seen.run(
                lambda: endpoint.answer(seen, asked).model_dump_json().encode(), request.is_disconnected
            )
        return tagged(request, body, "application/json")

    return caught(answer)


def _posted(
    resources: Resources,
    model: type[models.Model],
    answer: Callable[[Resources, Any], models.Model],
    shown: Callable[[Any], str] = models.Model.model_dump_json,
) -> Handler:
    """Return a handler of JSON requests; `shown` formats the answer."""

    async def respond(request: Request) -> Response:
        asked, seen = parse_body(model, await _body(request)), resources.seen_by(request)
        found = await seen.run(lambda: answer(seen, asked), request.is_disconnected)
        request.scope[TABLES] = getattr(found, "tables", [])
        body = await seen.run(lambda: shown(found), request.is_disconnected)
        return Response(body, media_type="application/json")

    return caught(respond)


async def _body(request: Request) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_BODY_BYTES:
            raise BadUsage(f"the request has more than {_MOST_BODY_BYTES:,} bytes", "Send a shorter one.")
    return body


def _exporting(resources: Resources) -> Handler:
    places = StreamPlaces(_MOST_EXPORTS, "exports", "auditlake sql --format csv")

    async def answer(request: Request) -> Response:
        asked, seen = read_parameters(OfExport, request.query_params), resources.seen_by(request)
        opened = partial(seen.run, lambda: export(seen, asked), request.is_disconnected)
        download, give_back = await places.open(seen.client, opened)
        pieces = _Pieces(seen, download.chunks)
        headers = {"content-disposition": f'attachment; filename="{download.name}"'}
        ended = lambda: pieces.close(give_back)  # noqa: E731 - of this export
        return StreamedResponse(pieces.each(), ended, media_type=download.media_type, headers=headers)

    return caught(answer)


class _Pieces:
    """The pieces of an export, made in threads of the pool, one after the other."""

    def __init__(self, resources: Resources, chunks: Generator[bytes, None, None]) -> None:
        self._resources, self._chunks = resources, chunks
        self._one = threading.Lock()

    async def each(self) -> AsyncIterator[bytes]:
        """Yield them; a failure is reported, and the client sees that the response is not complete."""
        try:
            while (chunk := await self._resources.run(self._next)) is not None:
                yield chunk
        except Exception as exc:
            cut_short("an export", exc)
            raise

    def _next(self) -> bytes | None:
        with self._one:
            return next(self._chunks, None)

    def close(self, closed: Callable[[], None]) -> None:
        """End the export in a thread, once no piece is made any more: its client may have gone before."""

        def end() -> None:
            try:
                with self._one:
                    self._chunks.close()
            finally:
                closed()

        self._resources.finish(end)


def _undoing(resources: Resources) -> Handler:
    async def answer(request: Request) -> Response:
        asked, seen = read_parameters(OfComparison, request.query_params), resources.seen_by(request)
        text = await seen.run(lambda: _whole(undo_script(seen, asked)), request.is_disconnected)
        return PlainTextResponse(text, headers={"content-disposition": 'inline; filename="undo.sql"'})

    return caught(answer)


def _whole(statements: Iterator[str]) -> str:
    parts, size = [], 0
    for statement in statements:
        parts.append(statement)
        size += len(statement)
        if size > _MOST_UNDO_BYTES:
            raise NotAnswerable(
                f"the script has more than {_MOST_UNDO_BYTES:,} characters",
                "Write it to a file: auditlake diff A B --format sql -R > undo.sql.",
            )
    return "\n".join(parts) + "\n"


async def _static(request: Request) -> Response:
    name, folder = request.path_params["name"], files("auditlake.serve") / "static"
    kind = _TYPES.get(name[name.rfind(".") :])
    if kind is None or name not in {each.name for each in folder.iterdir()}:
        return PlainTextResponse("No such file.\n", 404)
    # Pages name static files with the hash of their content, so a browser may keep them.
    headers = {"cache-control": "public, max-age=31536000, immutable"}
    return Response((folder / name).read_bytes(), media_type=kind, headers=headers)


def _signing_in(access: Access, pages: Pages) -> Handler:
    async def answer(request: Request) -> Response:
        if request.method != "POST":
            return pages.sign_in(_local(request.query_params.get("next")), failed=False)
        try:
            form = dict(parse_qsl((await _body(request)).decode(errors="replace"), max_num_fields=_MOST_FIELDS))
        except (ClientDisconnect, BadUsage, ValueError):
            return PlainTextResponse("The form cannot be read.\n", 400)
        wanted = _local(form.get("next"))
        session = access.session(form.get("token", ""))
        if session is None:
            return pages.sign_in(wanted, failed=True)
        response = RedirectResponse(wanted, 303)
        secure = "https" in {request.url.scheme, request.headers.get("x-forwarded-proto")}
        response.set_cookie(COOKIE, session, httponly=True, samesite="lax", secure=secure, path="/")
        return response

    return answer


def _local(path: str | None) -> str:
    """Return a path of this server; `/` for anything else."""
    found = path or "/"
    return found if found.startswith("/") and not found.startswith(("//", "/\\")) and found.isprintable() else "/"


async def _sign_out(_: Request) -> Response:
    response = RedirectResponse("/sign-in", 303)
    response.delete_cookie(COOKIE, path="/")
    return response


@dataclass(frozen=True, slots=True)
class Listen:
    """Address of the server, its names besides the address, who has access, and the log of who looked at what."""

    address: str = "127.0.0.1"
    port: int = 8640
    names: tuple[str, ...] = ()
    access: Access = field(default_factory=Access)
    access_log: AccessLog | None = None


def parse_listen(text: str) -> tuple[str, int]:
    """Parse ADDRESS:PORT, or PORT alone; raises ConfigError."""
    try:
        return parse_address(text)
    except ValueError as exc:
        raise ConfigError(f"--listen {exc}", "For example 127.0.0.1:8640, or [::1]:8640.") from None


def serve(
    resources: Resources, listen: Listen, spark: dict[str, str], started: Callable[[str], None], stop: threading.Event
) -> None:
    """Serve until SIGINT or SIGTERM, which set `stop`; `started` gets the URL. Raises ConfigError."""
    require_safe(listen.address, listen.access)
    bound = bind(listen)
    port = bound.getsockname()[1]
    access = replace(listen.access, hosts=hosts_of(listen.address, port, listen.names))
    config = uvicorn.Config(
        create_app(resources, access, spark, listen.access_log),
        log_level="critical",
        access_log=False,  # a URL has keys and values of rows
        server_header=False,
        proxy_headers=False,  # which would replace the address of the client by one that the client has sent
        http=Connection,
        ws="none",
        timeout_graceful_shutdown=_ENDING_S,
    )
    shown = f"[{listen.address}]" if ":" in listen.address else listen.address
    with bound:
        started(f"http://{shown}:{port}/")
        _Server(config, stop).run(sockets=[bound])


class _Server(uvicorn.Server):
    """Server that ends slow connections, and ends normally on a signal; uvicorn's own raises the signal again then."""

    def __init__(self, config: uvicorn.Config, stop: threading.Event) -> None:
        super().__init__(config)
        self._stop = stop

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End after the current requests."""
        self._stop.set()
        super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        """End slow connections; called ten times per second."""
        if counter % _TICKS_PER_S == 0:
            end_slow(self.server_state.connections, asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle the signals that ask the process to end."""
        with handled(ENDING, self.handle_exit):
            yield


def bind(listen: Listen) -> socket.socket:
    """Bind the address; raises ConfigError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(listen.address, listen.port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(MOST)  # from here on, requests wait for the server to start
    except OSError as exc:
        raise ConfigError(
            f"{listen.address}:{listen.port} cannot be bound: {exc.strerror or exc}", "Give --listen another port."
        ) from exc
    return bound
