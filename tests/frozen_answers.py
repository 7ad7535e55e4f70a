"""Answers that are public: JSON of the commands, the page's API, MCP and the Python API, frozen in tests/data/answers.

Every question is asked of `tests.answered_lake`. What depends on the clock or the machine is replaced. A change of a
frozen answer breaks programs that read it: `python -m tests.frozen_answers` writes the files, and the difference is to
be justified in review.
"""

import json
import re
import shlex
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import auditlake
from auditlake.api.results import Exportable
from auditlake.audit.json_output import Fields
from auditlake.lake.layout import Lake
from auditlake.mcp_server import AnswerLimits, Tools
from tests.answered_lake import write_lake
from tests.command import run_here
from tests.page import Page

FOLDER = Path(__file__).parent / "data" / "answers"

COMMANDS = {
    "log": "log --json -n 0",
    "log_of_a_key": "log --json --table orders --key 1",
    "log_of_a_column": "log --json --table orders --column price",
    "log_of_an_actor": "log --json --actor ANN --reason fun",
    "log_changes": "log --json --changes --allow-gaps",
    "show": "show 0/410 --json",
    "show_delete_and_insert": "show 0/200 --json",
    "show_without_key": "show 0/420 --json",
    "row": "row orders 1 --json",
    "row_full": "row orders 1 --json --full",
    "row_moved": "row orders 40 --json",
    "row_deleted": "row orders 3 --json --full",
    "row_with_gap": "row hostile 2 --json",
    "blame": "blame orders 40 --json",
    "blame_deleted": "blame orders 3 --json",
    "blame_with_gap": "blame hostile 2 --json",
    "deleted": "deleted orders --json",
    "deleted_by_truncate": "deleted customers --json",
    "diff": "diff 0/180 --json",
    "diff_reverse": "diff 0/180 now orders --json -R",
    "diff_stat": "diff 0/180 --json --stat",
    "status": "status --json",
    "sql": "sql --format json --engine duckdb 'select * from orders order by id'",
    "sql_values": "sql --dialect spark --format json --engine duckdb 'select * from hostile where id < 5 order by id'",
    "sql_csv": "sql --dialect spark --format csv --engine duckdb"
    " 'select id, text, amount, day from hostile where id < 5 order by id'",
}
ENDPOINTS: dict[str, dict[str, Any]] = {
    "lake": {},
    "tables": {},
    "rows": {"table": "orders", "at": "0/250", "where": ["price:ge:3", "note:notnull:"], "sort": "-price"},
    "rows_of_values": {"table": "hostile", "sort": "amount", "limit": 4},
    "rows_without_key": {"table": "visits", "sort": "page"},
    "facets": {"table": "orders", "column": "note"},
    "find": {"table": "orders", "value": "b"},
    "row": {"table": "orders", "key": ["40"], "versus": "0/300"},
    "row_deleted": {"table": "orders", "key": ["3"]},
    "row_of_a_column": {"table": "orders", "key": ["1"], "column": "price"},
    "row_with_gap": {"table": "hostile", "key": ["2"]},
    "neighbour": {"table": "orders", "key": ["1"]},
    "log": {},
    "log_of_an_actor": {"actor": "ann"},
    "transaction": {"transaction": "0/410", "table": "orders", "key": ["40"]},
    "transaction_without_key": {"transaction": "0/420"},
    "compare": {"before": "0/180"},
    "compare_back": {"before": "now", "after": "0/250", "table": ["orders"]},
    "timeline": {"bars": 4},
    "step": {"by": -1},
    "status": {},
}
TOOLS: dict[str, Callable[[Tools], Fields]] = {
    "tables": lambda tools: tools.tables(),
    "log": lambda tools: tools.log(since="0/300"),
    "row": lambda tools: tools.row("orders", 40),
    "row_with_gap": lambda tools: tools.row("hostile", 2),
    "blame": lambda tools: tools.blame("orders", {"id": 40}),
    "blame_deleted": lambda tools: tools.blame("orders", 3),
    "blame_with_gap": lambda tools: tools.blame("hostile", 2),
    "deleted": lambda tools: tools.deleted("orders"),
    "diff": lambda tools: tools.diff("0/180"),
    "rows": lambda tools: tools.rows("orders", where=[("price", ">", "1")], order_by=["-price"]),
    "rows_of_values": lambda tools: tools.rows("hostile", columns=["id", "amount", "day"], order_by=["day"]),
    "sql": lambda tools: tools.sql("select id, amount, day from hostile order by id", dialect="spark"),
    "status": lambda tools: tools.status(),
}
PYTHON: dict[str, Callable[[auditlake.Lake], Exportable]] = {
    "log": lambda lake: lake.log(),
    "row": lambda lake: lake.row("orders", 40),
    "row_with_gap": lambda lake: lake.row("hostile", 2),
    "blame": lambda lake: lake.blame("orders", 3),
    "blame_with_gap": lambda lake: lake.blame("hostile", 2),
    "deleted": lambda lake: lake.deleted("orders"),
    "diff": lambda lake: lake.diff("0/180"),
    "tables": lambda lake: lake.tables(),
    "rows": lambda lake: lake.as_of("0/250").table("orders", where=[("note", "<>", "b")], order_by=["-id"]),
}

_CLOCK = {"current_age_s", "version", "bytes", "code", "verdict"}
"""Members that depend on the clock, the release, or the compression of a file."""
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e]")


def _visible(text: str) -> str:
    """Escape what an editor does not show."""
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def commands(lake: Lake) -> str:
    """Return the commands with their output."""
    parts = []
    for name, line in COMMANDS.items():
        command, *rest = shlex.split(line)
        done = run_here([command, "--lake", lake.root, *rest])
        told = [_stable_line(each) for each in done.stdout.splitlines()]
        parts.append("\n".join([f"# {name}: exit {done.code}", f"$ auditlake {line}", *told, ""]))
    return "\n".join(parts)


def _stable_line(line: str) -> str:
    try:
        found = json.loads(line)
    except ValueError:
        return line
    return json.dumps(_stable(found), ensure_ascii=False) if isinstance(found, dict) and _CLOCK & set(found) else line


def _stable(found: Any) -> Any:
    """Replace what depends on the clock."""
    match found:
        case dict():
            return {k: "…" if k in _CLOCK else _stable(v) for k, v in found.items()}
        case list():
            return [_stable(each) for each in found]
        case _:
            return found


def endpoints(lake: Lake) -> str:
    """Return the answers of the page's API."""
    page = Page(lake)
    found = {name: _stable(page.json(name.split("_")[0], **asked)) for name, asked in ENDPOINTS.items()}
    for chart in found["status"]["charts"]:
        if chart["unit"] != "since the beginning":
            chart["times_us"] = chart["values"] = "…"
    return _written(found)


def document(lake: Lake) -> str:
    """Return the OpenAPI document, without its descriptions: a schema, and a path, on each line."""
    found = _undescribed(Page(lake).get("/api/openapi.json").json())
    schemas = found["components"]["schemas"]
    return "\n".join(f"{name}: {json.dumps(each)}" for name, each in (*schemas.items(), *found["paths"].items())) + "\n"


def _undescribed(found: Any) -> Any:
    match found:
        case dict():
            return {
                k: _undescribed(v)
                for k, v in found.items()
                if k not in {"description", "summary", "title"} or not isinstance(v, str)
            }
        case list():
            return [_undescribed(each) for each in found]
        case _:
            return found


def exports(lake: Lake) -> str:
    """Return exports of the page, as CSV and JSON lines."""
    page = Page(lake)
    parts = []
    for form in ("csv", "json"):
        response = page.get("/api/v1/export", table="hostile", format=form, sort="-id")
        parts += [f"# {response.headers['content-type']}", response.text]
    return "\n".join(parts)


def tools(lake: Lake) -> str:
    """Return the answers of the tools."""
    served = Tools(auditlake.Lake(lake.root), AnswerLimits(100))
    return _written({name: _stable(ask(served)) for name, ask in TOOLS.items()})


_MEMBERS = {
    "Commit": "lsn time xid actor reason db_user",
    "RowEvent": "commit op key key_before before after changed",
    "BlamedColumn": "column value commit gap deleted",
    "DeletedRow": "commit op key row",
    "RowDifference": "table kind key before after changed",
}


def _record(each: object) -> str:
    """Return the documented members of a record."""
    kind = type(each).__name__
    if kind not in _MEMBERS:
        return repr(each)
    return f"{kind}({', '.join(f'{name}={_record(getattr(each, name))}' for name in _MEMBERS[kind].split())})"


def python(lake: Lake) -> str:
    """Return the results of the Python API: their records, and their Arrow tables."""
    api = auditlake.Lake(lake.root)
    parts = []
    for name, ask in PYTHON.items():
        found = ask(api)
        records = [_record(each) for each in found]  # type: ignore[attr-defined] # all of them can be iterated
        table = found.to_arrow()
        rows = [repr(each) for each in table.to_pylist()]
        parts.append("\n".join([f"# {name}", *records, str(table.schema), *rows, ""]))
    return "\n".join(parts)


def _written(found: dict[str, Any]) -> str:
    """Write answers, one member of each on a line."""
    parts = []
    for name, answer in found.items():
        members = [f"  {json.dumps(member)}: {_value(value)}" for member, value in answer.items()]
        parts.append(f"{json.dumps(name)}: {{\n" + ",\n".join(members) + "\n}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _value(value: Any) -> str:
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f"    {json.dumps(each, ensure_ascii=False)}" for each in value) + "\n  ]"
    return json.dumps(value, ensure_ascii=False)


FILES: dict[str, Callable[[Lake], str]] = {
    "commands.txt": commands,
    "page.json": endpoints,
    "openapi.txt": document,
    "export.txt": exports,
    "mcp.json": tools,
    "python.txt": python,
}


def answers(name: str, lake: Lake) -> str:
    """Return the text of a file, asked of a lake."""
    return _visible(FILES[name](lake))


def main() -> None:
    """Write the files."""
    with tempfile.TemporaryDirectory() as folder:
        lake = write_lake(Path(folder) / "lake")
        for name in FILES:
            (FOLDER / name).write_text(answers(name, lake))


if __name__ == "__main__":
    main()
