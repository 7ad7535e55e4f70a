"""Pages: the answers of the endpoints as HTML, each below the timeline of commits.

A page is a template with the block `main`. With `_fragment=1` only that block is returned, with the moment in the
header `X-Moment`; the script of the page asks for it when the slider moves. Every link of a page keeps its moment. A
template sees the answer as `answer`; autoescape is on, and values of rows go through `formatting`.
"""

import json
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context as JinjaContext
from markupsafe import Markup
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from auditlake.audit.filters import OPERATIONS
from auditlake.audit.json_output import EventJson, GapJson, changed_json
from auditlake.audit.row_key import InOrder
from auditlake.errors import AuditlakeError, BadUsage, NotAnswerable
from auditlake.lake.history import RESYNC
from auditlake.lake.manifest import require_manifest
from auditlake.ledger.prove import ProofTarget
from auditlake.lsn import Lsn
from auditlake.query.languages import TITLES
from auditlake.relation import Column, TableName
from auditlake.serve import examples, models
from auditlake.serve.access import user_of
from auditlake.serve.commit_answers import OfComparison, OfLog, OfRow, OfTransaction, compare_moments, log
from auditlake.serve.endpoints import PREFIX, Endpoint, Handler, described, problem, read_parameters, tagged, validated
from auditlake.serve.evidence import PARAMETER, PATHS, evidence, unfolded, unlinked
from auditlake.serve.formatting import (
    SHORT,
    bars_path,
    bytes_text,
    has_line,
    is_cut,
    line_path,
    time_html,
    unknown_path,
    value_html,
    visible_html,
)
from auditlake.serve.lake_answers import ChartPeriod, moment, timeline
from auditlake.serve.nearest import Nearest, nearest_moments
from auditlake.serve.resources import Resources
from auditlake.serve.table_answers import (
    Listed,
    OfFacets,
    OfFind,
    OfNeighbour,
    facets,
    find_rows,
    list_tables,
    neighbour,
)

_NAVIGATION = (
    ("/", "Tables"),
    ("/log", "Transactions"),
    ("/compare", "Compare"),
    ("/find", "Find"),
    ("/sql", "SQL"),
    ("/status", "Status"),
)
_BARS = 240
_OK = 200
_TABLES_OF_SCHEMA = 100
_FORM = ("fc", "fo", "fv")
_VALUES = frozenset({"key", "value"})
"""Parameters that have values of rows, of which an empty text is one; other empty ones a form has sent."""
_WHOLE: "Context" = {"url": unlinked, "evidence_url": "#", "cut": None}
"""What a page has in a file that is kept."""

Context = dict[str, Any]
Shown = Callable[["Pages", Request], Context]
"""What a template shows, of the pages as one user sees them."""


class Pages:
    """The pages of one server."""

    def __init__(self, resources: Resources, listed: tuple[Endpoint, ...], *, signs_in: bool) -> None:
        self._resources = resources
        self._listed = {endpoint.page: endpoint for endpoint in listed if endpoint.page is not None}
        self._signs_in = signs_in
        self._environment = _environment()

    def routes(self) -> list[Route]:
        """Return the routes of all pages."""
        own: dict[str, Shown] = {"/compare": Pages._compare, "/find": Pages._find, "/sql": Pages._sql}
        paths = [*self._listed, *own]
        pages = [Route(path, self._page(path, own.get(path) or self._endpoint(path))) for path in paths]
        return [*pages, Route("/row/{way}", self._page("/row", Pages._neighbour))]

    def _seen_by(self, request: Request) -> "Pages":
        """Return the pages as the user of the request sees them."""
        found = copy(self)
        found._resources = self._resources.seen_by(request)  # noqa: SLF001 - of this class
        return found

    def _page(self, path: str, context: "Shown") -> Handler:
        async def page(request: Request) -> Response:
            if moved := _filter_added(request):
                return RedirectResponse(moved, 303)
            return await self._seen_by(request)._answer(path, request, context)  # noqa: SLF001 - of this class

        return page

    async def _answer(self, path: str, request: Request, context: "Shown") -> Response:
        def answered() -> Response:
            found = context(self, request)
            if "redirected" in found:
                return RedirectResponse(found["redirected"], 303)
            return self._rendered(request, self._with_moment(path, request, found), _OK)

        try:
            return await self._resources.run(answered, request.is_disconnected)
        except ClientDisconnect as exc:
            return problem(exc)
        except Exception as exc:  # noqa: BLE001 - shown as a page, and reported if it is a bug
            return await self._failed(path, request, exc)

    async def _failed(self, path: str, request: Request, exc: Exception) -> Response:
        found, status = described(exc)

        def refused(name: str) -> Context:
            asked = request.query_params.get(name) or None
            return _refusal(found, "Not answered") | {"refused": asked, "moment_name": name}

        def answered() -> Response:
            page = refused(self._refused(path, request))
            if isinstance(exc, NotAnswerable):
                page["moments"] = self._around(request, page["refused"])
            return self._rendered(request, self._with_moment(path, request, page), status)

        try:
            return await self._resources.run(answered)
        except Exception:  # noqa: BLE001 - the lake cannot be read, so there is no moment; `exc` is reported
            page = refused("at") | {"at": None, "path": path, "query": _query(request), "url": _links(None)}
            return self._rendered(request, page, status)

    def _refused(self, path: str, request: Request) -> str:
        """Return the parameter with the moment that is refused: of a comparison the first one that is not known."""
        if path != "/compare":
            return "at"
        given = request.query_params
        reader = self._resources.reader()
        for name in ("before", "after"):
            try:
                reader.with_clock(datetime.now(self._resources.zone)).moment(given.get(name) or None)
            except AuditlakeError:
                return name
        return "before"

    def _around(self, request: Request, asked: str | None) -> Nearest:
        return nearest_moments(self._resources.reader(), request.query_params.get("table") or None, asked)

    def _with_moment(self, path: str, request: Request, context: Context) -> Context:
        """Add what every page shows: the moment, the timeline, the links."""
        answer = context["answer"]
        asked = request.query_params.get("at") or None
        at = getattr(answer, "at", None) or getattr(answer, "after", None)
        if at is None:
            at = self._moment(None if context["template"] == "problem.html" else asked)
        tables, query = request.query_params.getlist("table"), _query(request)
        shown, go = self._timeline(tables), _Go.of(path, query)
        return context | {
            "at": at,
            "path": path,
            "query": query,
            "url": _links(None if at.is_now else at.lsn),
            "database": require_manifest(self._resources.lake).database,
            "timeline": shown,
            "cut": [],
            "api_url": _api_url(path, query, at.lsn),
            "evidence_url": _moved(path, [*query, (PARAMETER, "1")], at.lsn),
            "go": go,
            "now_url": f"{go.path}?{urlencode(go.query)}",
            "bars": bars_path(shown),
            "unknown": unknown_path(shown),
            "of_table": next(iter(tables), ""),
            "signs_in": self._signs_in,
            "user": user_of(request).name,
            "sees_all": self._resources.grant.is_whole,
        }

    def _timeline(self, tables: list[str]) -> models.TimelineJson:
        """Return the timeline, with the gaps of the page's one table, or of all tables."""
        table = tables[0] if len(tables) == 1 and tables[0] else None
        try:
            return timeline(self._resources, validated(ChartPeriod, {"bars": _BARS, "table": table}))
        except BadUsage:  # no such table; the page reports that
            return timeline(self._resources, ChartPeriod(bars=_BARS))

    def _moment(self, asked: str | None) -> models.MomentJson:
        return moment(self._resources, self._resources.reader(asked), asked)[1]

    def _rendered(self, request: Request, context: Context, status: int) -> Response:
        template = self._environment.get_template(context["template"])
        if PARAMETER in request.query_params and context["path"] in PATHS and status == _OK:
            return self._evidence(request, context)
        if "_fragment" in request.query_params and context["at"] is not None:
            body = "".join(template.blocks["main"](template.new_context(context)))
            headers = {"x-moment": json.dumps(context["at"].model_dump())}
            return HTMLResponse(body, status, headers)
        body = template.render(context)
        if status != _OK:
            return HTMLResponse(body, status)
        return tagged(request, body.encode(), "text/html; charset=utf-8")

    def _evidence(self, request: Request, context: Context) -> Response:
        """Return the page as a file that is kept."""
        target = self._target(context["answer"], context["asked"])
        found = evidence(self._resources.lake, context["path"], _query(request), context["at"], target)
        template = self._environment.get_template(context["template"])
        body = unfolded("".join(template.blocks["main"](template.new_context(context | _WHOLE))))
        html = self._environment.get_template("evidence.html").render(context | {"evidence": found, "body": body})
        return HTMLResponse(html, headers={"content-disposition": f'attachment; filename="{found.name}"'})

    def _target(self, answer: models.Model, asked: models.Model) -> ProofTarget | str:
        """Return what the ledger proves of an answer, or why nothing."""
        if not self._resources.grant.is_whole:
            return "left out: it names changes of tables that you may not see"
        match answer, asked:
            case models.TransactionDetailJson(), _:
                return ProofTarget(str(answer.transaction["lsn"]), ())
            case models.RowHistoryJson(), OfRow():
                reader = self._resources.reader()
                now, then = (
                    reader.keyed_table(asked.table, lsn) for lsn in (reader.moment(None), Lsn.parse(answer.at.lsn))
                )
                if now.name != then.name:
                    return "none: the table is another one now"
                if now.key != then.key:
                    return "none: the key of the table is another one now"
                return ProofTarget(asked.table, InOrder(tuple(asked.key)))
            case _:
                return "none: of rows and transactions alone"

    def _endpoint(self, path: str) -> "Shown":
        endpoint = self._listed[path]
        name = path.strip("/") or "tables"
        more: dict[str, Callable[[Pages, Request, Any], Context]] = {
            "tables": Pages._more_of_tables,
            "rows": Pages._more_of_rows,
            "log": Pages._more_of_log,
        }

        def context(pages: Pages, request: Request) -> Context:
            query = QueryParams(
                [(k, v) for k, v in request.query_params.multi_items() if k not in {"_fragment", "facet", PARAMETER}]
            )
            asked = read_parameters(endpoint.asked, query)
            answer = endpoint.answer(pages._resources, asked)
            found: Context = {"template": f"{name}.html", "answer": answer, "asked": asked}
            if isinstance(answer, models.RowHistoryJson):
                found["entries"] = _in_order(answer)
            return found | (more[name](pages, request, asked) if name in more else {"title": _title(name, asked)})

        return context

    def _more_of_tables(self, _: Request, asked: Listed) -> Context:
        return {"title": "Tables", "log": log(self._resources, OfLog(at=asked.at, limit=8)), "filtered": False}

    def _more_of_rows(self, request: Request, asked: Any) -> Context:  # noqa: ANN401 - OfRows
        column = request.query_params.get("facet")
        shown = None
        if column:
            wanted = {"table": asked.table, "at": asked.at, "column": column, "where": asked.where}
            shown = facets(self._resources, validated(OfFacets, wanted))
        return {"title": asked.table, "facets": shown, "names": self._names(asked.at)}

    def _names(self, at: str | None) -> list[str]:
        """Return the names of the tables at a moment."""
        reader = self._resources.reader(at)
        lsn = reader.moment(at)
        return sorted(map(str, reader.known.tables_at(lsn)))

    def _more_of_log(self, _: Request, asked: OfLog) -> Context:
        begins = str(self._resources.reader().known.horizon)
        return {"title": "Transactions", "names": self._names(asked.at), "begins": begins}

    def _compare(self, request: Request) -> Context:
        given = request.query_params
        at = given.get("after") or given.get("at") or None
        page: Context = {
            "template": "compare.html",
            "title": "Compare",
            "names": self._names(at),
            "before": "",
            "after": at,
        }
        if not given.get("before"):
            return page | {"answer": None, "begin": str(self._resources.reader().known.horizon)}
        names = [name for name in given.getlist("table") if name]
        asked: OfComparison = validated(OfComparison, {"before": given["before"], "after": at, "table": names})
        return page | {"answer": compare_moments(self._resources, asked), "asked": asked, "before": asked.before}

    def _neighbour(self, request: Request) -> Context:
        """Lead to the row before or after another."""
        query = QueryParams([*request.query_params.multi_items(), ("way", request.path_params["way"])])
        asked: OfNeighbour = read_parameters(OfNeighbour, query)
        found = neighbour(self._resources, asked)
        if found.key is None:
            raise NotAnswerable(f"{found.table} has no {asked.way} row at this moment", "This is the last one.")
        return {"redirected": _links(asked.at)("/row", table=asked.table, key=found.key)}

    def _find(self, request: Request) -> Context:
        given = QueryParams([(k, v) for k, v in request.query_params.multi_items() if k != "_fragment"])
        page: Context = {
            "template": "find.html",
            "title": "Find",
            "names": self._names(given.get("at") or None),
            "asked": None,
            "answer": None,
        }
        if not given.get("table") or "value" not in given:
            at, names = given.get("at") or None, [given["table"]] if given.get("table") else page["names"]
            return page | {"table": given.get("table"), "examples": list(examples.values(self._resources, names, at))}
        asked = read_parameters(OfFind, given)
        return page | {"asked": asked, "answer": (answer := find_rows(self._resources, asked)), "table": answer.table}

    def _sql(self, request: Request) -> Context:
        asked = request.query_params
        at = asked.get("at") or None
        tables = list_tables(self._resources, validated(Listed, {"at": at, "limit": 1}))
        schema, begin, more = self._schema(at)
        questions = list(examples.statements(schema, begin, with_logs=self._resources.grant.is_whole))
        page: Context = {"template": "sql.html", "title": "SQL", "answer": tables, "schema": schema}
        page["examples"] = questions
        dialect = {"dialects": TITLES.items(), "dialect": asked.get("dialect") or self._resources.dialect}
        return page | dialect | {"more_tables": more, "sql": asked.get("sql", "")}

    def _schema(self, at: str | None) -> tuple[dict[TableName, tuple[Column, ...]], Lsn, int]:
        """Return tables with their columns at a moment, since when all are known, and how many more there are."""
        reader = self._resources.reader(at)
        lsn = reader.moment(at)
        tables = sorted((name, each) for name, each in reader.known.tables_at(lsn).items() if each.horizon <= lsn)
        shown = tables[:_TABLES_OF_SCHEMA]
        begin = Lsn(max((table.horizon for _, table in shown), default=0))
        return {name: reader.columns_at(table, lsn) for name, table in shown}, begin, len(tables) - len(shown)

    def sql_answer(self, answer: models.AnswerJson) -> str:
        """Return the answer of a statement as JSON, its rows in it as HTML."""
        html = self._environment.get_template("sql_answer.html").render(answer=answer, cut=[])
        summary = answer.model_dump(include={"at", "engine", "seconds", "more"})
        return json.dumps({**summary, "rows": len(answer.rows), "html": html})

    def sign_in(self, wanted: str, *, failed: bool) -> Response:
        """Return the sign-in form."""
        body = self._environment.get_template("sign_in.html").render(next=wanted, failed=failed)
        return HTMLResponse(body, 401 if failed else 200)

    async def not_found(self, request: Request, _: Exception) -> Response:
        """Return the page for a path that is none."""
        missing = models.ProblemJson(error="there is no such page", hint=None, code=2)
        if request.url.path.startswith("/api/"):
            return Response(missing.model_dump_json(), 404, media_type="application/json")
        body = self._environment.get_template("problem.html")
        nowhere: Context = {"at": None, "path": "", "query": "", "url": _links(None)}
        context = _refusal(missing, "Not found") | nowhere
        return HTMLResponse(body.render(context), 404)


@cache
def _environment() -> Environment:
    """Return the templates; they are the same for every server."""
    made = Environment(
        loader=PackageLoader("auditlake.serve"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "value": _value,
        "visible": visible_html,
        "time": time_html,
        "number": lambda number: f"{number:,}",
        "bytes": bytes_text,
        "line": line_path,
        "changed": changed_json,
        "lsn_before": lambda text: Lsn.parse(text) - 1,
        "lsn_after": lambda text: str(Lsn(Lsn.parse(text) + 1)),
    }
    made.tests["drawn"] = has_line
    made.globals |= {"navigation": _NAVIGATION, "static": _static_urls(), "moved": _moved, "operations": OPERATIONS}
    return made


@pass_context
def _value(context: JinjaContext, text: str | None, most: int = SHORT) -> Markup:
    """Return a value as HTML: whole in evidence; else `cut` of the page records if it is not."""
    cut: list[bool] | None = context.get("cut")
    if cut is None:
        return value_html(text, most, None)
    if is_cut(text):
        cut.append(True)
    return value_html(text, most)


def _title(name: str, asked: models.Model) -> str:
    """Return the title of a page of its own: what was asked for."""
    match asked:
        case OfRow():
            return f"{asked.table} {', '.join(asked.key)}"
        case OfTransaction():
            return f"Transaction {asked.transaction}"
        case _:
            return name.capitalize()


def _in_order(answer: models.RowHistoryJson) -> list[EventJson | GapJson]:
    """Return the events of a row and what is unknown between them, newest first; a gap is before what ended it."""
    ends = [(Lsn.parse(each["to_lsn"] or each["lsn"]), 1, each) for each in answer.gaps]
    placed: list[tuple[Lsn, int, EventJson | GapJson]] = [
        *ends,
        *((Lsn.parse(str(each["lsn"])), 2 if each["op"] == RESYNC else 0, each) for each in answer.events),
    ]
    return [each for _, _, each in sorted(placed, key=lambda entry: entry[:2], reverse=True)]


def _filter_added(request: Request) -> str | None:
    """Return the URL with the filter that a form has added, None if it has added none."""
    query = request.query_params
    if not query.get("fc") or not query.get("fo"):
        return None
    kept = [(k, v) for k, v in query.multi_items() if k not in {*_FORM, "offset"} and v]
    kept.append(("where", f"{query['fc']}:{query['fo']}:{query.get('fv', '')}"))
    return f"{request.url.path}?{urlencode(kept)}"


def _query(request: Request) -> list[tuple[str, str]]:
    """Return the parameters of a page, without those of the moment and the fragment."""
    given, others = request.query_params.multi_items(), {"at", "_fragment", PARAMETER}
    return [(k, v) for k, v in given if k not in others and (v or k in _VALUES)]


@dataclass(frozen=True, slots=True)
class _Go:
    """The page that shows another moment, which is its parameter `name`, instead of a page."""

    path: str
    query: list[tuple[str, str]]
    name: str = "at"

    @classmethod
    def of(cls, path: str, query: list[tuple[str, str]]) -> "_Go":
        """Return a page itself; a transaction has one moment only, so it leads to the list of them."""
        if path == "/transaction":
            return cls("/log", [])
        if path == "/compare":
            return cls(path, [(name, given) for name, given in query if name != "after"], "after")
        return cls(path, query)


def _refusal(problem: models.ProblemJson, title: str) -> Context:
    page: Context = {"template": "problem.html", "problem": problem, "title": title, "answer": None}
    return page | {"refused": None, "moments": Nearest(None, None), "moment_name": "at"}


def _moved(path: str, query: list[tuple[str, str]], lsn: Lsn | str, name: str = "at") -> str:
    """Return the link to a page as of another moment, which is its parameter `name`."""
    return f"{path}?{urlencode([*((k, v) for k, v in query if k != name), (name, str(lsn))])}"


def _api_url(path: str, query: list[tuple[str, str]], lsn: str) -> str:
    """Return the link to the answer of a page as JSON."""
    name = "after" if path == "/compare" else "at"
    return _moved(f"{PREFIX}{path}", [(k, v) for k, v in query if k not in {name, "facet"}], lsn, name)


def _links(lsn: str | None) -> Callable[..., str]:
    """Return a function that makes links, each with the page's moment."""

    def url(path: str, **parameters: object) -> str:
        pairs: list[tuple[str, str]] = []
        for name, value in parameters.items():
            many = value if isinstance(value, list | tuple) else [value]
            given = [str(each) for each in many if each is not None and each is not False]
            pairs += [(name, text) for text in given if text or name in _VALUES]
        if lsn is not None and "at" not in parameters:
            pairs.append(("at", lsn))
        return f"{path}?{urlencode(pairs)}" if pairs else path

    return url


def _static_urls() -> dict[str, str]:
    """Return the URL of each static file, with the hash of its content."""
    folder = files("auditlake.serve") / "static"
    return {
        file.name: f"/static/{file.name}?v={blake2b(file.read_bytes(), digest_size=6).hexdigest()}"
        for file in folder.iterdir()
    }
