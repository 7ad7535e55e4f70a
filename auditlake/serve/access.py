"""Access to the page: who may ask, and the headers that keep a browser from doing more than showing the page.

1. The Host header must be one that the server is known under. A page of another site that makes a name resolve to this
   address (DNS rebinding) is refused by it.
2. Without a token only the machine itself is served: `require_safe` refuses any other address to bind to, unless a
   token or a header of a trusted reverse proxy authenticates. The token comes as `Authorization: Bearer`, or from the
   sign-in form, after which a cookie proves knowledge of it until `_SESSION_S` later. Comparisons take constant time.
3. A POST must come from this page: its Origin is the Host of the request.
4. Every response has a Content-Security-Policy without inline scripts, styles and frames, and without other sites.

The token is never logged, nor put into a page or a URL.
"""

import hmac
import ipaddress
import time
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from auditlake.errors import ConfigError

COOKIE = "auditlake_session"
_HTTP_PORT = 80
_SESSION_S = 12 * 3600
_SHORTEST_TOKEN = 20
_DIGITS = 12
_OPEN_PATHS = ("/sign-in", "/static/")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


@dataclass(frozen=True, slots=True)
class Access:
    """Who may ask: the Host headers served; the token, or the header in which a reverse proxy names the user."""

    hosts: frozenset[str]
    token: str | None = None
    proxy_header: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether every request that reaches the server is served."""
        return self.token is None and self.proxy_header is None

    def knows(self, headers: Headers) -> bool:
        """Return whether the request is authenticated."""
        if self.is_open:
            return True
        if self.proxy_header is not None and headers.get(self.proxy_header):
            return True
        if self.token is None:
            return False
        scheme, _, given = headers.get("authorization", "").partition(" ")
        return (scheme.lower() == "bearer" and self.is_token(given)) or self._is_session(headers.get("cookie", ""))

    def is_token(self, given: str) -> bool:
        """Return whether this is the token."""
        return self.token is not None and hmac.compare_digest(given.strip().encode(), self.token.encode())

    def session(self) -> str:
        """Return the value of a new cookie."""
        until = f"{int(time.time()) + _SESSION_S:d}"
        return f"{until}.{self._signature(until)}"

    def _signature(self, until: str) -> str:
        return hmac.new((self.token or "").encode(), f"auditlake session {until}".encode(), sha256).hexdigest()

    def _is_session(self, cookies: str) -> bool:
        try:
            kept = SimpleCookie(cookies).get(COOKIE)
        except CookieError:
            return False
        until, _, signature = (kept.value if kept else "").partition(".")
        if not (until.isascii() and until.isdigit() and len(until) <= _DIGITS) or int(until) < time.time():
            return False
        return hmac.compare_digest(signature.encode(), self._signature(until).encode())


def require_safe(address: str, token: str | None, proxy_header: str | None) -> None:
    """Check that an address beyond this machine is served only with authentication.

    Raises ConfigError.
    """
    if token is not None and len(token) < _SHORTEST_TOKEN:
        raise ConfigError(
            f"the token has {len(token)} characters, need at least {_SHORTEST_TOKEN}",
            "Make one: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'.",
        )
    if not is_loopback(address) and token is None and proxy_header is None:
        raise ConfigError(
            f"{address} can be reached from other machines, need a token or a reverse proxy that authenticates",
            "Set AUDITLAKE_SERVE_TOKEN, or give --token-file FILE, or --behind-proxy HEADER.",
        )


def is_loopback(address: str) -> bool:
    """Return whether an address is one of this machine only."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def hosts_of(address: str, port: int, names: Iterable[str]) -> frozenset[str]:
    """Return the Host headers under which the server is known."""
    shown = f"[{address}]" if ":" in address else address
    own = {"localhost", "127.0.0.1", "[::1]"} if is_loopback(address) else set()
    found = {f"{name}:{port:d}" for name in {*own, shown}}
    if port == _HTTP_PORT:  # a browser leaves it out
        found |= {*own, shown}
    # A name may be given with a port, for a proxy on another one; without it, any usual port.
    return frozenset(host.lower() for host in (*found, *names, *(f"{name}:{port:d}" for name in names)))


class Guard:
    """ASGI middleware: refuses what may not ask, and adds the headers."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refused = self._refusal(scope)
        await (refused or self._app)(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        headers, path = Headers(scope=scope), str(scope["path"])
        host = headers.get("host", "").lower()
        if host not in self._access.hosts:
            return PlainTextResponse("This server is not known under that name. See --host-name.\n", 421)
        if scope["method"] not in {"GET", "HEAD"} and not self._is_same_origin(headers, host):
            return PlainTextResponse("The request comes from another site.\n", 403)
        if path.startswith(_OPEN_PATHS) or self._access.knows(headers):
            return None
        if path.startswith("/api/") or self._access.token is None:
            return PlainTextResponse("Not signed in.\n", 401, {"WWW-Authenticate": "Bearer"})
        wanted = path + (f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else "")
        return RedirectResponse(f"/sign-in?{urlencode({'next': wanted})}", 303)

    def _is_same_origin(self, headers: Headers, host: str) -> bool:
        origin = headers.get("origin")
        if origin is None:  # a program, not a page: only a browser has a cookie to abuse
            return headers.get("sec-fetch-site") in {None, "same-origin"} and "cookie" not in headers
        try:
            return urlsplit(origin).netloc.lower() == host
        except ValueError:  # brackets without an IPv6 address
            return False
