"""Access to the page: names of the server, token, session, reverse proxy, other sites, headers."""

import re
from pathlib import Path

import pytest
from starlette.datastructures import Headers

from auditlake.errors import ConfigError
from auditlake.lake.layout import Lake
from auditlake.serve.access import COOKIE, Access, hosts_of, require_safe
from auditlake.serve.grants import PageUser
from auditlake.serve.server import parse_listen
from auditlake.temporal.grants import WHOLE
from tests.page import HOST, Page, write_lake

TOKEN = "a-token-of-more-than-twenty-characters"
_HOSTS = frozenset({HOST})


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The small lake."""
    return write_lake(tmp_path_factory.mktemp("access") / "lake")


def test_another_host_name_is_refused(lake: Lake) -> None:
    """A name that another site has made resolve to this address is not served, on any path."""
    page = Page(lake)
    for path in ("/", "/api/v1/lake", "/static/app.js"):
        assert page.ask("GET", path, headers={"host": "attacker.example:8640"}).status_code == 421
    assert page.get("/api/v1/lake").status_code == 200


def test_a_token_is_required_everywhere_but_to_sign_in(lake: Lake) -> None:
    """Without it: 401 for programs, the form for people; a wrong one is no better."""
    page = Page(lake, Access(_HOSTS, TOKEN))
    assert page.get("/api/v1/lake").status_code == 401
    assert page.get("/rows", table="orders").headers["location"] == "/sign-in?next=%2Frows%3Ftable%3Dorders"
    for wrong in ("", TOKEN[:-1], TOKEN + "x"):
        headers = {"authorization": f"Bearer {wrong}"}
        assert page.ask("GET", "/api/v1/lake", headers=headers).status_code == 401
    assert page.ask("GET", "/api/v1/lake", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert page.get("/static/app.css").status_code == 200


def test_signing_in_gives_a_session(lake: Lake) -> None:
    """The cookie proves knowledge of the token without containing it; forged and expired ones do not."""
    page = Page(lake, Access(_HOSTS, TOKEN))
    form = {"token": TOKEN, "next": "/log"}
    signed = page.ask("POST", "/sign-in", data=form, headers={"origin": f"http://{HOST}"})
    assert (signed.status_code, signed.headers["location"]) == (303, "/log")
    cookie = signed.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert TOKEN not in cookie
    value = re.findall(rf"{COOKIE}=([^;]+)", cookie)[0]
    until, signature = value.split(".")
    for kept, status in (
        (value, 303),
        (f"{int(until) + 1}.{signature}", 401),
        (f"1.{signature}", 401),
        (f"{until}.", 401),
        ("x", 401),
    ):
        found = page.ask("GET", "/api/v1/lake", headers={"cookie": f"{COOKIE}={kept}"}).status_code
        assert found == (200 if status == 303 else 401), kept
    other = Access(_HOSTS, TOKEN + "2")
    assert Page(lake, other).ask("GET", "/api/v1/lake", headers={"cookie": f"{COOKIE}={value}"}).status_code == 401


@pytest.mark.parametrize("cookie", ["9" * 5_000 + ".a", "9" * 12 + ".a", ".", "a.b", "\xb2.a", '"'])
def test_a_cookie_that_is_none_of_ours_is_no_session(cookie: str) -> None:
    """Whatever it is: it does not end in an error."""
    access = Access(_HOSTS, TOKEN)
    assert access.user(Headers({"cookie": f"{COOKIE}={cookie}"}), None) is None


@pytest.mark.parametrize("other", ['seen={"id": 1}', "a b=c", "\xe9=1", "a", 'a="', "path=/", "a[0]=1", "=", "a=b;;"])
def test_cookies_of_other_programs_on_this_machine_end_no_session(other: str) -> None:
    """A browser sends those of every port: some are no cookies by the standard."""
    access = Access(_HOSTS, TOKEN)
    for cookies in (f"{other}; {COOKIE}={access.session(TOKEN)}", f"{COOKIE}={access.session(TOKEN)}; {other}"):
        assert access.user(Headers({"cookie": cookies}), None) is not None


def test_sign_in_leads_to_this_server_only(lake: Lake) -> None:
    """`next` is a path of this server, or the first page."""
    page = Page(lake, Access(_HOSTS, TOKEN))
    for wanted in ("//attacker.example", "https://attacker.example", "/\\attacker.example", "/\nx"):
        form = {"token": TOKEN, "next": wanted}
        signed = page.ask("POST", "/sign-in", data=form, headers={"origin": f"http://{HOST}"})
        assert signed.headers["location"] == "/"
    wrong = page.ask("POST", "/sign-in", data={"token": "wrong"}, headers={"origin": f"http://{HOST}"})
    assert wrong.status_code == 401
    assert "set-cookie" not in wrong.headers


def test_a_reverse_proxy_names_the_user(lake: Lake) -> None:
    """Its header authenticates; requests without it are refused."""
    page = Page(lake, Access(_HOSTS, None, "X-Forwarded-User"))
    assert page.get("/api/v1/lake").status_code == 401
    assert page.ask("GET", "/api/v1/lake", headers={"x-forwarded-user": "ann"}).status_code == 200


def test_a_post_must_come_from_this_page(lake: Lake) -> None:
    """Another origin is refused; so is a browser's request without one."""
    page = Page(lake)
    for headers in (
        {"origin": "https://attacker.example"},
        {"origin": "null"},
        {"origin": "http://["},
        {"origin": f"http://attacker.example#{HOST}"},
        {"sec-fetch-site": "cross-site"},
        {"cookie": "a=b"},
    ):
        asked = page.ask("POST", "/api/v1/complete", json={"sql": "sel"}, headers=headers)
        assert asked.status_code == 403, headers
    own = {"origin": f"http://{HOST}"}
    assert page.ask("POST", "/api/v1/complete", json={"sql": "sel"}, headers=own).status_code == 200
    for method in ("POST", "PUT", "DELETE"):
        assert page.ask(method, "/api/v1/rows").status_code == 405


def test_a_reverse_proxy_may_send_any_name_of_the_server(lake: Lake) -> None:
    """By default nginx sends the address of the server as Host, and the browser the name that it knows as Origin."""
    page = Page(lake, Access(frozenset({HOST, "audit.example.com"})))
    for origin, status in (("https://audit.example.com", 200), ("https://other.example.com", 403)):
        asked = page.ask("POST", "/api/v1/complete", json={"sql": "sel"}, headers={"origin": origin})
        assert asked.status_code == status, origin


def test_a_page_of_another_site_leads_here_and_loads_nothing(lake: Lake) -> None:
    """It would learn how long an answer takes, which depends on rows; another port of this machine is another site."""
    page = Page(lake)
    for site in ("cross-site", "same-site"):
        led = {"sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
        assert page.ask("GET", "/rows?table=orders", headers=led).status_code == 200
        for kind in ("empty", "image", "script", "iframe"):
            loaded = {"sec-fetch-site": site, "sec-fetch-dest": kind}
            assert page.ask("GET", "/api/v1/rows?table=orders", headers=loaded).status_code == 403, kind
    for site in ("same-origin", "none"):
        asked = page.ask(
            "GET", "/api/v1/rows?table=orders", headers={"sec-fetch-site": site, "sec-fetch-dest": "empty"}
        )
        assert asked.status_code == 200


@pytest.mark.parametrize("path", ["/", "/api/v1/lake", "/static/app.js", "/nothing", "/sign-in", "/api/v1/rows"])
def test_every_response_has_the_headers(lake: Lake, path: str) -> None:
    """No inline script or style, no frame, no other site, no sniffing, no referrer."""
    headers = Page(lake).get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


def test_pages_have_nothing_that_the_policy_forbids(lake: Lake) -> None:
    """No inline script, style or handler, and no address of another site."""
    page = Page(lake)
    for path in (
        "/",
        "/rows?table=orders",
        "/row?table=orders&key=1",
        "/log",
        "/compare?before=0/200",
        "/sql",
        "/status",
    ):
        html = page.ask("GET", path).text
        assert re.findall(r"<script(?![^>]*\bsrc=)", html) == [], path
        assert re.findall(r"""\s(?:style|on\w+)\s*=\s*["']""", html) == [], path
        assert re.findall(r"""(?:href|src|action)="(?:https?:)?//""", html) == [], path


def test_static_files_do_not_leave_their_folder(lake: Lake) -> None:
    """Only the files of the page, by name."""
    for path in ("/static/..%2fapp.py", "/static/%2e%2e/app.py", "/static/app.py", "/static/"):
        assert Page(lake).ask("GET", path).status_code == 404


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.168.1.5", "example.com"])  # noqa: S104 - refused here
def test_other_addresses_need_authentication(address: str) -> None:
    """A token or a reverse proxy; the machine itself needs neither. A short token is refused."""
    with pytest.raises(ConfigError, match="need a token"):
        require_safe(address, Access(_HOSTS))
    require_safe(address, Access(_HOSTS, TOKEN))
    require_safe(address, Access(_HOSTS, None, "X-Forwarded-User"))
    for header in ("", "X User", "X-User:"):
        with pytest.raises(ConfigError, match="need the name of a header"):
            require_safe(address, Access(_HOSTS, None, header))
    require_safe("127.0.0.1", Access(_HOSTS))
    require_safe("::1", Access(_HOSTS))
    with pytest.raises(ConfigError, match="need at least 20"):
        require_safe("127.0.0.1", Access(_HOSTS, "short"))


@pytest.mark.parametrize("character", ["\u00e9", "\udcff", " ", "\t", "\x00"])
def test_a_token_that_no_header_can_have_is_refused(character: str) -> None:
    """Else nobody could use it, or each request would end in an error."""
    for access in (
        Access(_HOSTS, TOKEN + character),
        Access(_HOSTS, users={"bob": PageUser(character + TOKEN, WHOLE)}),
    ):
        with pytest.raises(ConfigError, match=r"the token( of bob)? has a space or a character that is not ASCII"):
            require_safe("127.0.0.1", access)


def test_the_server_is_known_by_its_names() -> None:
    """The address bound, localhost if that is this machine, and the names given."""
    assert hosts_of("127.0.0.1", 80, ()) == {
        "127.0.0.1:80",
        "localhost:80",
        "[::1]:80",
        "127.0.0.1",
        "localhost",
        "[::1]",
    }
    assert "audit.example.com" in hosts_of("10.0.0.1", 8640, ("audit.example.com",))
    assert "localhost:8640" not in hosts_of("10.0.0.1", 8640, ())


def test_listen_is_an_address_and_a_port() -> None:
    """IPv6 in brackets; a port alone is on this machine."""
    assert parse_listen("[::1]:8640") == ("::1", 8640)
    assert parse_listen("8640") == ("127.0.0.1", 8640)
    for wrong in ("localhost", "1:2:x", "127.0.0.1:99999"):
        with pytest.raises(ConfigError):
            parse_listen(wrong)


def test_the_token_is_nowhere(lake: Lake, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Not in a page, a header or a message."""
    page = Page(lake, Access(_HOSTS, TOKEN))
    headers = {"authorization": f"Bearer {TOKEN}"}
    for path in ("/", "/status", "/api/v1/status", "/api/openapi.json", "/sign-in", "/rows?table=nope", "/nothing"):
        response = page.ask("GET", path, headers=headers)
        assert TOKEN not in response.text + str(response.headers), path
    assert TOKEN not in "".join(capfd.readouterr())
    assert not list(tmp_path.iterdir())
