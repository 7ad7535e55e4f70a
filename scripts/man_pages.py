"""Write a man page of auditlake and one of each command, from the same texts as `--help`.

Usage: python scripts/man_pages.py FOLDER; the pages are FOLDER/man1/auditlake.1 and FOLDER/man1/auditlake-COMMAND.1.
"""

import inspect
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import click

from auditlake.cli.main import auditlake

EXIT_CODES = (
    "done",
    "a bug in auditlake",
    "usage, or SQL that cannot be parsed",
    "configuration, or the source is not ready",
    "the source cannot be reached or refuses us",
    "slot or source is not the one the lake records",
    "the lake cannot be used, or another process writes it",
    "the question has no exact answer",
)


def pages(today: datetime) -> Iterator[tuple[str, str]]:
    """Return the name and the roff text of every page."""
    top = click.Context(auditlake, info_name="auditlake", **auditlake.context_settings)
    heading = f'1 {today:%Y-%m-%d} "auditlake {version("auditlake")}" "User commands"'
    names = sorted(auditlake.commands)
    yield "auditlake", _page(top, auditlake, heading, _commands(names))
    for name in names:
        context = click.Context(auditlake.commands[name], info_name=name, parent=top)
        yield f"auditlake-{name}", _page(context, auditlake.commands[name], heading, [])


def _commands(names: list[str]) -> list[str]:
    lines = [".SH COMMANDS"]
    for name in names:
        lines += [
            ".TP",
            f".BR auditlake\\-{_escaped(name)} (1)",
            _text(auditlake.commands[name].get_short_help_str(200)),
        ]
    return lines


def _page(context: click.Context, command: click.Command, heading: str, more: list[str]) -> str:
    title = context.command_path.replace(" ", "-")
    summary, example = _help(command)
    lines = [
        f".TH {_escaped(title.upper())} {heading}",
        ".SH NAME",
        f"{_escaped(title)} \\- {_text(summary.rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {_escaped(context.command_path)}",
        _text(" ".join(command.collect_usage_pieces(context))),
        ".SH DESCRIPTION",
        _text(summary),
        ".SH OPTIONS",
        *_options(context, command),
        *more,
        ".SH EXIT STATUS",
    ]
    for code, meaning in enumerate(EXIT_CODES):
        lines += [".TP", f".B {code}", _text(meaning)]
    lines += [".SH EXAMPLES", ".nf", *map(_text, example), ".fi"]
    if command is not auditlake:
        lines += [".SH SEE ALSO", ".BR auditlake (1)"]
    return "\n".join(lines) + "\n"


def _help(command: click.Command) -> tuple[str, list[str]]:
    """Split a help text into its summary, on one line, and its example."""
    summary, _, example = inspect.cleandoc(command.help or "").replace("\b\n", "").partition("Example:\n")
    return " ".join(summary.split()), [line.removeprefix("  ") for line in example.splitlines()]


def _options(context: click.Context, command: click.Command) -> Iterator[str]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record is not None:
            yield from (".TP", f".B {_escaped(record[0])}", _text(record[1]) or "\\&")


def _text(text: str) -> str:
    """Escape a line; one that begins with a control character of roff is guarded."""
    escaped = _escaped(text)
    return f"\\&{escaped}" if escaped[:1] in {".", "'"} else escaped


def _escaped(text: str) -> str:
    ascii_text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("…", "...")
    # Without preconv, groff reads the bytes of UTF-8 as Latin-1.
    return re.sub(r"[^\x00-\x7f]", lambda match: f"\\[u{ord(match[0]):04X}]", ascii_text)


def main() -> None:
    """Write the pages."""
    folder = Path(sys.argv[1]) / "man1"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages(datetime.now(UTC)):
        (folder / f"{name}.1").write_text(text)


if __name__ == "__main__":
    main()
