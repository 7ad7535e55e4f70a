"""Record a terminal session as an animated SVG: delete an order with its lines and payments, then undo it.

    python scripts/recording.py [docs/images/undo.svg]

The commands run on an embedded server, and the picture shows what they printed, in the order and with the colours of a
terminal. It is one file without scripts; where motion is not wanted (`prefers-reduced-motion`) all of it is visible.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

from auditlake.demo.server import Server
from auditlake.source.connection import connect

_ROOT = Path(__file__).parents[1]
_SCHEMA = """
create table public.orders (order_id int primary key, status text not null);
create table public.order_lines (
    order_id int references public.orders on delete cascade, line_no int, item text, primary key (order_id, line_no));
create table public.payments (
    payment_id int primary key, order_id int references public.orders on delete cascade, amount numeric(10,2));
insert into public.orders values (41, 'placed'), (42, 'paid');
insert into public.order_lines values (41, 1, 'cable tray'), (42, 1, 'standing desk'), (42, 2, 'desk lamp');
insert into public.payments values (7, 42, 400.00), (8, 42, 88.90);
"""
_COUNT = """psql -At -c 'select status, count(distinct line_no), count(distinct payment_id) from orders \
join order_lines using (order_id) join payments using (order_id) group by 1'"""
_COMMANDS = (
    "BEFORE=$(date -u +%FT%T.%6NZ)",
    "psql -c 'delete from orders where order_id = 42'    # a mistake: lines and payments go too",
    "auditlake capture --until-current",
    'auditlake diff "$BEFORE" now --stat',
    'auditlake diff "$BEFORE" now --format sql -R | psql -q    # undo it, in the order of the foreign keys',
    _COUNT,
    "auditlake capture --until-current",
    "auditlake row orders 42",
)
_WIDTH, _LINE, _TOP, _LEFT = 1040, 20, 52, 20
_MOST_CHARACTERS = 122
_TYPING_S, _PAUSE_S, _LINE_S, _END_S = 0.025, 0.7, 0.06, 6.0


def main() -> None:
    """Run the commands and write the picture."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else _ROOT / "docs" / "images" / "undo.svg"
    with tempfile.TemporaryDirectory() as folder, Server() as server:
        dsn = server.dsn(server.create_database("shop"))
        with connect(dsn) as conn:
            conn.execute(_SCHEMA)
        session = list(_run(dsn, server, Path(folder)))
    target.write_text(picture(session))
    sys.stderr.write(f"wrote {target}: {target.stat().st_size:,} bytes\n")


def _run(dsn: str, server: Server, folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each command with the lines that it printed."""
    launcher = folder / "auditlake"
    launcher.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m auditlake "$@"\n')
    launcher.chmod(0o755)
    environment = {
        **os.environ,
        "AUDITLAKE_SOURCE": dsn,
        "AUDITLAKE_LAKE": str(folder / "lake"),
        "PATH": f"{folder}:{server.bin}:{os.environ['PATH']}",
        "PYTHONPATH": str(_ROOT),
        "COLUMNS": str(_MOST_CHARACTERS),
    }
    functions = f"psql() {{ command psql -v ON_ERROR_STOP=1 '{dsn}' \"$@\"; }}"
    end = "\x1e"
    script = "\n".join([functions, "set -eo pipefail", *(f"{each}\nprintf '{end}\\n'" for each in _COMMANDS)])
    subprocess.run([launcher, "bootstrap"], env=environment, check=True, capture_output=True)
    done = subprocess.run(
        ["/bin/bash", "-c", f"exec 2>&1\n{script}"], env=environment, check=True, capture_output=True, text=True
    )
    for command, printed in zip(_COMMANDS, done.stdout.split(f"{end}\n"), strict=False):
        yield command, printed.rstrip().splitlines()


def picture(session: list[tuple[str, list[str]]]) -> str:
    """Return the session as an SVG."""
    parts: list[str] = []
    rules: list[float] = []
    line, at_s = 0, 0.6
    for command, printed in session:
        for place, text in enumerate(_wrapped(command)):
            prompt = '<tspan class="p">$ </tspan>' if place == 0 else "  "
            parts.append(_text(line, len(rules), f'{prompt}<tspan class="c">{escape(text)}</tspan>'))
            rules.append(at_s)
            at_s += len(text) * _TYPING_S
            line += 1
        at_s += _PAUSE_S
        for text in printed:
            parts.append(_text(line, len(rules), _output(text)))
            rules.append(at_s)
            at_s += _LINE_S
            line += 1
        at_s += _PAUSE_S
    height = _TOP + line * _LINE + 14
    whole_s = at_s + _END_S
    shown = "".join(_appearing(number, 100 * at / whole_s, whole_s) for number, at in enumerate(rules))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img"'
        ' aria-label="A terminal: an order is deleted with its lines and payments, and one command undoes it.">'
        "<style>text{font:13.5px ui-monospace,SFMono-Regular,Menlo,Consolas,'Liberation Mono',monospace;"
        "fill:#c6d0d5;white-space:pre}.p{fill:#5cc3c9}.c{fill:#fff}.d{fill:#8a979f}.r{fill:#f28b8f}.g{fill:#6fcf91}"
        f"@media (prefers-reduced-motion:no-preference){{{shown}}}</style>"
        f'<rect width="{_WIDTH}" height="{height}" rx="10" fill="#14181b"/>'
        '<circle cx="22" cy="20" r="6" fill="#f28b8f"/><circle cx="42" cy="20" r="6" fill="#e2b25c"/>'
        '<circle cx="62" cy="20" r="6" fill="#6fcf91"/>' + "".join(parts) + "</svg>\n"
    )


def _appearing(number: int, percent: float, whole_s: float) -> str:
    """Return the rule by which a line appears at a part of the whole time."""
    frames = f"0%,{percent:.2f}%{{opacity:0}}{percent + 0.01:.2f}%,100%{{opacity:1}}"
    return f"@keyframes k{number}{{{frames}}}.l{number}{{animation:k{number} {whole_s:.1f}s step-end infinite}}"


def _text(line: int, number: int, content: str) -> str:
    return f'<text class="l{number}" x="{_LEFT}" y="{_TOP + line * _LINE}" xml:space="preserve">{content}</text>'


def _wrapped(command: str) -> Iterator[str]:
    """Cut a command at spaces into lines that fit."""
    rest = command
    while len(rest) > _MOST_CHARACTERS:
        cut = rest.rfind(" ", 0, _MOST_CHARACTERS)
        yield rest[:cut] + " \\"
        rest = rest[cut + 1 :]
    yield rest


def _output(text: str) -> str:
    kind = "d" if text.startswith("auditlake:") else ""
    shown = escape(text[:_MOST_CHARACTERS])
    if " → " in shown:
        old, _, new = shown.rpartition(" → ")
        head, _, value = old.rpartition(": ")
        return f'{head}: <tspan class="r">{value}</tspan> → <tspan class="g">{new}</tspan>'
    return f'<tspan class="{kind}">{shown}</tspan>' if kind else shown


if __name__ == "__main__":
    main()
