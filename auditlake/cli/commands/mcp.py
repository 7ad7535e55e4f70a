"""Command mcp: the audit questions as tools for a language model."""

import click

from auditlake.cli.options import with_settings
from auditlake.config import Settings
from auditlake.errors import Unsupported
from auditlake.messages import say


@click.command()
@with_settings
@click.option("--rows", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Most rows of an answer.")
def mcp(settings: Settings, *, rows: int) -> None:
    """Serve the audit questions to a language model, read-only, over stdin and stdout (Model Context Protocol).

    Columns in the setting `mask` are never shown. docs/bi.md lists the tools.

    \b
    Example:
      auditlake mcp --lake ./lake --rows 50
    """
    try:
        from auditlake.mcp_server import Limits, make_server
    except ModuleNotFoundError as exc:
        if exc.name is None or exc.name.partition(".")[0] != "mcp":
            raise
        raise Unsupported("mcp is not installed", "Install it: pip install 'auditlake[mcp]'.") from None
    from auditlake.api.lake import Lake

    lake = Lake(settings.lake)
    server = make_server(lake, Limits(rows, settings.mask))
    say(f"answering questions about {settings.lake} on stdin")
    server.run("stdio")


COMMANDS = (mcp,)
