"""Access to the page: who may ask, and the headers that keep a browser from doing more than showing the page.

1. The Host header must be one that the server is known under. A page of another site that makes a name resolve to this
   address (DNS rebinding) is refused by it.
2. Without a token only the machine itself is served: `require_safe` refuses any other address to bind to, unless
   tokens or a header of a reverse proxy authenticate. A token comes as `Authorization: Bearer`, or from the sign-in
   form, after which a cookie proves knowledge of it until `_SESSION_S` later. Comparisons take constant time. The
   header counts only in requests from the proxy's addresses, and only if it is there once.
3. A user who is not in the list of users, if there is one, is refused; one who is sees the tables of its grant.
4. A POST must come from this page: its Origin is a name of the server, whichever Host a reverse proxy sends. Pages of
   other sites may link to this one; requests that they make themselves are refused: the time that an answer takes
   depends on rows, and many delay others.
5. Every response has a Content-Security-Policy without inline scripts, styles and frames, and without other sites.

The token is never logged, nor put into a page or a URL.
"""

import hmac
import ipaddress
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request, cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from auditlake.errors import ConfigError
from auditlake.messages import say
from auditlake.serve.access_log import AccessLog
from auditlake.serve.grants import PageUser, User
from auditlake.temporal.grants import WHOLE, Grant

COOKIE = "auditlake_session"
_USER = "auditlake.user"
"""Key of the scope of a request under which its user is."""
_NOT_RECORDED = "The server cannot record this request, so it does not answer.\n"
_HTTP_PORT = 80
_SESSION_S = 12 * 3600
_SHORTEST_TOKEN = 20
_TOKEN = re.compile(r"[!-~]*")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
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


Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_THIS_MACHINE = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))


@dataclass(frozen=True, slots=True)
class Access:
    """Who may ask: the Host headers served, and how a request is authenticated.

    That is one token, the tokens of `users`, or the header in which a reverse proxy at one of `proxies` names the user.
    Without `users`, everyone who is authenticated sees every table.
    """

    hosts: frozenset[str] = frozenset()
    token: str | None = None
    proxy_header: str | None = None
    proxies: tuple[Network, ...] = _THIS_MACHINE
    users: Mapping[str, PageUser] | None = None

    @property
    def is_open(self) -> bool:
        """Whether every request that reaches the server is served."""
        return self.proxy_header is None and not self.signs_in

    @property
    def signs_in(self) -> bool:
        """Whether there is a token to sign in with."""
        return bool(self.tokens)

    @property
    def tokens(self) -> dict[str, User]:
        """The user of each token."""
        found = {} if self.token is None else {self.token: User(None, WHOLE)}
        users = (self.users or {}).items()
        return found | {each.token: User(name, each.grant) for name, each in users if each.token is not None}

    def user(self, headers: Headers, address: str | None) -> User | None:
        """Return who asks; None if the request is not authenticated. A user who is not listed sees nothing."""
        if self.is_open:
            return User(None, WHOLE)
        if (name := self._named(headers, address)) is not None:
            return User(name, self._grant(name))
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self.user_of_token(given)
        return self._user_of_session(headers.get("cookie", ""))

    def _named(self, headers: Headers, address: str | None) -> str | None:
        """Return the user whom the reverse proxy names."""
        names = [] if self.proxy_header is None else headers.getlist(self.proxy_header)
        return names[0] if len(names) == 1 and names[0] and self._is_proxy(address) else None

    def _is_proxy(self, address: str | None) -> bool:
        try:
            found = ipaddress.ip_address(address or "")
        except ValueError:  # a socket without an address
            return False
        mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
        return any((mapped or found) in network for network in self.proxies)

    def _grant(self, name: str) -> Grant:
        if self.users is None:
            return WHOLE
        return self.users[name].grant if name in self.users else Grant(())

    def user_of_token(self, given: str) -> User | None:
        """Return the user with this token."""
        found = [u for token, u in self.tokens.items() if hmac.compare_digest(given.strip().encode(), token.encode())]
        return found[0] if found else None

    def session(self, given: str) -> str | None:
        """Return the value of a new cookie for a token; None if it is none."""
        if self.user_of_token(given) is None:
            return None
        until = f"{int(time.time()) + _SESSION_S:d}"
        return f"{until}.{_signature(given.strip(), until)}"

    def _user_of_session(self, cookies: str) -> User | None:
        until, _, signature = cookie_parser(cookies).get(COOKIE, "").partition(".")
        if not (until.isascii() and until.isdigit() and len(until) <= _DIGITS) or int(until) < time.time():
            return None
        given = signature.encode()
        found = [u for t, u in self.tokens.items() if hmac.compare_digest(given, _signature(t, until).encode())]
        return found[0] if found else None


def _signature(token: str, until: str) -> str:
    return hmac.new(token.encode(), f"auditlake session {until}".encode(), sha256).hexdigest()


def networks(addresses: Sequence[str]) -> tuple[Network, ...]:
    """Parse addresses or networks of reverse proxies, by default this machine's; raises ConfigError."""
    try:
        return tuple(map(ipaddress.ip_network, addresses)) or _THIS_MACHINE
    except ValueError as exc:
        raise ConfigError(f"--proxy-address: {exc}", "For example 10.0.0.7, 10.0.0.0/24, ::1.") from exc


def require_safe(address: str, access: Access) -> None:
    """Require authentication of other machines, and users who can be told apart; raises ConfigError."""
    for token, user in access.tokens.items():
        whose = f"the token{f' of {user.name}' if user.name else ''} has"
        hint = "Make one: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'."
        if len(token) < _SHORTEST_TOKEN:
            raise ConfigError(f"{whose} {len(token)} characters, need at least {_SHORTEST_TOKEN}", hint)
        if not _TOKEN.fullmatch(token):
            raise ConfigError(f"{whose} a space or a character that is not ASCII, which no header can have", hint)
    if access.proxy_header is not None and not _HEADER.fullmatch(access.proxy_header):
        raise ConfigError(
            f"--behind-proxy is {access.proxy_header!r}, need the name of a header", "For example X-User."
        )
    _require_users_apart(access)
    if not is_loopback(address) and access.is_open:
        raise ConfigError(
            f"{address} can be reached from other machines, need a token or a reverse proxy that authenticates",
            "Set AUDITLAKE_SERVE_TOKEN, or give --token-file FILE, --users FILE, or --behind-proxy HEADER.",
        )


def _require_users_apart(access: Access) -> None:
    if access.users is None:
        return
    given = [each.token for each in access.users.values() if each.token is not None]
    if access.token is not None:
        raise ConfigError("there is a token besides those of --users, of nobody", "Give each user a token of its own.")
    if len(given) != len(set(given)):
        raise ConfigError("two users have the same token", "Give each user a token of its own.")
    if access.is_open:
        raise ConfigError("no user has a token, and no proxy names users", "Add tokens, or give --behind-proxy HEADER.")


def user_of(request: Request) -> User:
    """Return the user of a request that the guard has let in."""
    found: User = request.scope[_USER]
    return found


def client_of(request: Request) -> str | None:
    """Return by what clients are told apart: the name of the user, else the address."""
    return user_of(request).name or (request.client.host if request.client else None)


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
    """ASGI middleware: refuses what may not ask, adds the headers, and records who asked for what."""

    def __init__(self, app: ASGIApp, access: Access, access_log: AccessLog | None = None) -> None:
        self._app = app
        self._access = access
        self._access_log = access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refused, is_ended = self._refusal(scope), False

        async def guarded(message: Message) -> None:
            nonlocal is_ended
            if is_ended:
                return
            if message["type"] == "http.response.start":
                if not self._is_recorded(scope, message["status"]):
                    is_ended = True
                    await PlainTextResponse(_NOT_RECORDED, 503, _HEADERS)(scope, receive, send)
                    return
                _add_headers(message)
            await send(message)

        await (refused or self._app)(scope, receive, guarded)

    def _is_recorded(self, scope: Scope, status: int) -> bool:
        """Record a request; return False if that fails."""
        try:
            if self._access_log is not None:
                self._access_log.record(scope, scope.get(_USER), status)
        except OSError as exc:
            say(f"the access log cannot be written, so nothing is answered: {exc.strerror}")
            return False
        return True

    def _refusal(self, scope: Scope) -> Response | None:
        headers, path = Headers(scope=scope), str(scope["path"])
        host = headers.get("host", "").lower()
        if host not in self._access.hosts:
            return PlainTextResponse("This server is not known under that name. See --host-name.\n", 421)
        reads = scope["method"] in {"GET", "HEAD"}
        if not (_is_led_here(headers) if reads else self._is_same_origin(headers)):
            return PlainTextResponse("The request comes from another site.\n", 403)
        client = scope.get("client")
        user = self._access.user(headers, client[0] if client else None)
        if user is not None:
            scope[_USER] = user
        if path.startswith(_OPEN_PATHS) or (user is not None and user.grant.patterns):
            return None
        if user is not None:
            return PlainTextResponse("This user may see nothing here. Ask who runs this server.\n", 403)
        if path.startswith("/api/") or not self._access.signs_in:
            return PlainTextResponse(self._not_signed_in(headers), 401, {"WWW-Authenticate": "Bearer"})
        wanted = path + (f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else "")
        return RedirectResponse(f"/sign-in?{urlencode({'next': wanted})}", 303)

    def _not_signed_in(self, headers: Headers) -> str:
        header = self._access.proxy_header
        if header is None or header not in headers:
            return "Not signed in.\n"
        return f"Not signed in. {header} counts once, and from the addresses of --proxy-address.\n"

    def _is_same_origin(self, headers: Headers) -> bool:
        origin = headers.get("origin")
        if origin is None:  # a program, not a page: only a browser has a cookie to abuse
            return headers.get("sec-fetch-site") in {None, "same-origin"} and "cookie" not in headers
        try:
            return urlsplit(origin).netloc.lower() in self._access.hosts
        except ValueError:  # brackets without an IPv6 address
            return False


def _is_led_here(headers: Headers) -> bool:
    """Return whether a GET opens a page, or comes from a page of this site or from a program, not from another site."""
    return headers.get("sec-fetch-site") in {None, "same-origin", "none"} or headers.get("sec-fetch-dest") == "document"


def _add_headers(message: Message) -> None:
    headers = MutableHeaders(scope=message)
    for name, value in _HEADERS.items():
        headers[name] = value
    headers.setdefault("cache-control", "no-store")
