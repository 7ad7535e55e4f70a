"""Commands serve and mcp: the page with its JSON API, and the audit questions as tools for a language model."""

from __future__ import annotations  # settings are imported when a command runs

import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from auditlake.cli.options import (
    FILE,
    Seconds,
    Stop,
    existing_lake_of,
    exported_metrics,
    notified_manager,
    with_metrics,
    with_settings,
    with_zone,
)
from auditlake.counters import Beat
from auditlake.errors import BadUsage, ConfigError, Unsupported
from auditlake.extras import MCP
from auditlake.messages import say

if TYPE_CHECKING:  # pydantic takes half of the time of --help
    from auditlake.config import Settings
    from auditlake.serve.grants import PageUser

_TOKEN = "AUDITLAKE_SERVE_TOKEN"  # noqa: S105 - the name of the variable


@click.command()
@with_settings
@with_zone
@click.option("--listen", default="127.0.0.1:8640", show_default=True, metavar="ADDRESS:PORT", help="Where to listen.")
@with_metrics
@click.option("--token-file", type=FILE, help=f"Require the token in this file [${_TOKEN}].")
@click.option("--behind-proxy", metavar="HEADER", help="Trust a reverse proxy that names the user in this header.")
@click.option(
    "--proxy-address",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="Address or network of that proxy; repeatable  [default: this machine]",
)
@click.option("--users", "users_file", type=FILE, help="TOML file of users: the tables that each may see, and tokens.")
@click.option("--access-log", type=FILE, help="Append who looked at what to this file.")
@click.option("--host-name", "names", multiple=True, metavar="NAME", help="One more name that the server is known by.")
@click.option("--timeout", "timeout_s", type=Seconds(min=0.1), default=30.0, show_default=True, metavar="S")
@click.option("--export-rows", type=click.IntRange(min=1), default=1_000_000, show_default=True, metavar="N")
def serve(  # noqa: PLR0913 - the options of a command
    settings: Settings,
    *,
    listen: str,
    token_file: Path | None,
    behind_proxy: str | None,
    proxies: tuple[str, ...],
    users_file: Path | None,
    access_log: Path | None,
    names: tuple[str, ...],
    timeout_s: float,
    export_rows: int,
) -> None:
    """Serve the lake as a web page: every table as of any commit, histories, comparisons, SQL.

    \b
    Example:
      auditlake serve --lake ./lake
      auditlake serve --listen 0.0.0.0:8640 --token-file token --host-name audit.example.com
    """
    from auditlake.serve.access import Access, networks
    from auditlake.serve.access_log import AccessLog
    from auditlake.serve.resources import Limits, Resources
    from auditlake.serve.server import Listen, parse_listen
    from auditlake.serve.server import serve as run

    if proxies and behind_proxy is None:
        raise BadUsage("--proxy-address needs --behind-proxy", "Name the header in which the proxy names the user.")
    lake = existing_lake_of(settings)  # refused here, not by every page
    address, port = parse_listen(listen)
    source = None if settings.source is None else settings.source.get_secret_value()
    limits = Limits(timeout_s=timeout_s, export_rows=export_rows)
    resources = Resources(lake, settings.zone, limits, source, settings.dialect)
    users = None if users_file is None else _users(users_file)
    looked = None if access_log is None else AccessLog(access_log)
    access = Access(token=_token(token_file), proxy_header=behind_proxy, proxies=networks(proxies), users=users)
    stop = Stop()
    with notified_manager(stop, Beat.SERVE), exported_metrics(settings, Beat.SERVE):
        started = lambda url: say(f"serving {settings.lake} at {url}; Ctrl+C ends it")  # noqa: E731 - of this command
        run(resources, Listen(address, port, names, access, looked), settings.spark, started, stop)


def _token(file: Path | None) -> str | None:
    """Return the token, None if there is none; raises ConfigError if the file cannot be read, or is empty."""
    if file is None:
        return os.environ.get(_TOKEN) or None
    from auditlake.store.given_files import read_given_text

    hint = "Write the token into it, on one line."
    token = read_given_text(file, lambda why: ConfigError(f"token file {file} cannot be read: {why}", hint)).strip()
    if not token:
        raise ConfigError(f"token file {file} is empty", hint)
    return token


def _users(file: Path) -> dict[str, PageUser]:
    """Read the users of a file; raises ConfigError, which shows none of its content: it may have tokens."""
    from auditlake.serve.grants import parse_users
    from auditlake.store.given_files import read_given_text

    hint = "docs/serve.md has an example."
    text = read_given_text(file, lambda why: ConfigError(f"users file {file} cannot be read: {why}", hint))
    try:
        return parse_users(tomllib.loads(text), file)
    except (tomllib.TOMLDecodeError, RecursionError):
        raise ConfigError(f"users file {file} is not TOML", hint) from None  # which may quote a token


@click.command()
@with_settings
@click.option("--rows", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Most rows of an answer.")
def mcp(settings: Settings, *, rows: int) -> None:
    """Serve the audit questions to a language model, read-only, over stdin and stdout (Model Context Protocol).

    Columns in the setting `mask.mcp` are never shown. docs/bi.md lists the tools.

    \b
    Example:
      auditlake mcp --lake ./lake --rows 50
    """
    from auditlake.api.lake import Lake

    try:
        from auditlake.mcp_server import AnswerLimits, make_server
        from auditlake.mcp_server import serve_stdio as run
    except ModuleNotFoundError as exc:
        if exc.name is None or exc.name.partition(".")[0] != "mcp":
            raise
        raise Unsupported("mcp is not installed", f"Install it: {MCP.command}.") from None

    lake = Lake(settings.lake)
    server = make_server(lake, AnswerLimits(rows, settings.mask.mcp), settings.dialect)
    say(f"answering questions about {settings.lake} on stdin")
    run(server)


COMMANDS = (serve, mcp)
