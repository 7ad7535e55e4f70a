"""Endpoints of the JSON API: path, parameters, answer with its ETag, and the page that shows the same answer.

The OpenAPI document is generated from this table, and so are the routes; a test validates answers against it. An error
is answered as a problem with an HTTP status.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, get_origin

from pydantic import ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import TypedDictSchema
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from auditlake.audit.json_output import SUFFIX
from auditlake.errors import AuditlakeError, BadUsage, InvariantBroken, NotAnswerable, WrongSource
from auditlake.messages import report_bug, say
from auditlake.sandbox.failures import failure
from auditlake.serve import commit_answers as commits
from auditlake.serve import lake_answers as moments
from auditlake.serve import models
from auditlake.serve import table_answers as tables
from auditlake.serve.resources import Resources
from auditlake.temporal.grants import Hidden
from auditlake.values.strict_json import decode_json

PREFIX = "/api/v1"

Answer = Callable[[Resources, Any], models.Model]
_BUG = 1
_STATUS: tuple[tuple[type[AuditlakeError], int], ...] = (
    (BadUsage, 400),
    (Hidden, 403),
    (NotAnswerable, 422),
    (WrongSource, 422),  # of a cursor
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One question: `page` is the path of the page that shows its answer, by the template of that name."""

    name: str
    asked: type[models.Model]
    answer: Answer
    model: type[models.Model]
    page: str | None = None

    @property
    def path(self) -> str:
        return f"{PREFIX}/{self.name}"

    @property
    def summary(self) -> str:
        """The first line of the answer's docstring."""
        return (self.answer.__doc__ or "").strip().splitlines()[0]


def endpoints(status: Answer) -> tuple[Endpoint, ...]:
    """Return the endpoints that are asked with GET; `status` keeps samples between its answers."""
    return (
        Endpoint("lake", moments.At, moments.lake_info, models.LakeInfoJson),
        Endpoint("tables", tables.Listed, tables.list_tables, models.TablesJson, "/"),
        Endpoint("rows", tables.OfRows, tables.rows, models.RowsJson, "/rows"),
        Endpoint("facets", tables.OfFacets, tables.facets, models.FacetsJson),
        Endpoint("find", tables.OfFind, tables.find_rows, models.FindsJson),
        Endpoint("row", commits.OfRow, commits.row, models.RowHistoryJson, "/row"),
        Endpoint("neighbour", tables.OfNeighbour, tables.neighbour, models.NeighbourJson),
        Endpoint("log", commits.OfLog, commits.log, models.LogJson, "/log"),
        Endpoint(
            "transaction", commits.OfTransaction, commits.transaction, models.TransactionDetailJson, "/transaction"
        ),
        Endpoint("compare", commits.OfComparison, commits.compare_moments, models.ComparisonJson),
        Endpoint("timeline", moments.ChartPeriod, moments.timeline, models.TimelineJson),
        Endpoint("step", moments.OtherCommit, moments.step, models.CommitJson),
        Endpoint("status", moments.At, status, models.StatusReportJson, "/status"),
    )


def read_parameters(model: type[models.Model], query: QueryParams) -> Any:  # noqa: ANN401 - one of the models
    """Read the parameters of a request; raises BadUsage, which does not repeat the values.

    A form sends an empty text for what is not filled in, which is no value of a parameter that may be left out.
    """
    given: dict[str, object] = {}
    for name in query:
        field = model.model_fields.get(name)
        if field is None:
            raise BadUsage(f"there is no parameter {name!r}", f"The parameters are {', '.join(model.model_fields)}.")
        many = get_origin(field.annotation) is list
        value = query.getlist(name) if many else query[name]
        if value != "" or field.is_required():
            given[name] = value
    return validated(model, given)


def parse_body(model: type[models.Model], body: bytes) -> Any:  # noqa: ANN401 - one of the models
    """Read a JSON request; raises BadUsage, which does not repeat the values."""
    try:
        given = decode_json(body)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise BadUsage("the request is not a JSON object", "See /api/openapi.json.")
    return validated(model, given)


def validated(model: type[models.Model], given: Mapping[str, object]) -> Any:  # noqa: ANN401 - one of the models
    """Return a model with these values; raises BadUsage, which does not repeat them."""
    try:
        return model(**given)
    except ValidationError as exc:
        problems = exc.errors(include_url=False, include_input=False, include_context=False)
        texts = (f"{error['loc'][0]}: {error['msg'][:1].lower()}{error['msg'][1:]}" for error in problems)
        raise BadUsage("; ".join(texts), "See /api/openapi.json.") from None


Posted = tuple[str, str, type[models.Model], type[models.Model]]
"""An endpoint that is asked with POST: name, summary, body, answer."""


def openapi(listed: tuple[Endpoint, ...], posted: Sequence[Posted], version: str) -> dict[str, Any]:
    """Return the OpenAPI document."""
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for endpoint in listed:
        _add_schema(schemas, endpoint.model)
        parameters = [
            _parameter(name, schema, name in endpoint.asked.model_json_schema().get("required", ()))
            for name, schema in endpoint.asked.model_json_schema()["properties"].items()
        ]
        operation = _operation(endpoint.name, endpoint.summary, _json_of(endpoint.model))
        paths[endpoint.path] = {"get": operation | {"parameters": parameters}}
    for name, summary, asked, answered in posted:
        _add_schema(schemas, asked)
        _add_schema(schemas, answered)
        body = {"required": True, "content": _json_of(asked)}
        paths[f"{PREFIX}/{name}"] = {"post": _operation(name, summary, _json_of(answered)) | {"requestBody": body}}
    _add_schema(schemas, models.ProblemJson)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "auditlake",
            "version": version,
            "description": "Every version of every row, as of any moment. Values are PostgreSQL's own text.",
        },
        "security": [{"token": []}, {}],  # a server on this machine asks for none
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _add_schema(schemas: dict[str, Any], model: type[models.Model]) -> None:
    template = "#/components/schemas/{model}"
    schema = model.model_json_schema(ref_template=template, schema_generator=_Schemas, mode="serialization")
    schemas |= schema.pop("$defs", {})
    schemas.setdefault(models.schema_name(model), schema)


class _Schemas(GenerateJsonSchema):
    """Generator that names schemas as the document does."""

    def normalize_name(self, name: str) -> str:
        return super().normalize_name(name.removesuffix(SUFFIX))

    def typed_dict_schema(self, schema: TypedDictSchema) -> JsonSchemaValue:
        found = super().typed_dict_schema(schema)
        return found | {"title": found["title"].removesuffix(SUFFIX)}


def _parameter(name: str, schema: Mapping[str, Any], required: bool) -> dict[str, Any]:  # noqa: FBT001
    described = {key: value for key, value in schema.items() if key not in {"title", "description"}}
    return {
        "name": name,
        "in": "query",
        "required": required,
        "description": schema.get("description", ""),
        "schema": described,
    }


def _json_of(model: type[models.Model]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{models.schema_name(model)}"}}}


def _operation(name: str, summary: str, content: dict[str, Any]) -> dict[str, Any]:
    problems = {
        "400": "The request cannot be understood.",
        "401": "Not signed in.",
        "403": "The user may not see this.",
        "422": "The question has no exact answer.",
        "503": "The lake cannot be read, or the server is busy.",
    }
    responses: dict[str, Any] = {"200": {"description": summary, "content": content}}
    for code, text in problems.items():
        body = {} if code == "401" else {"content": _json_of(models.ProblemJson)}
        responses[code] = {"description": text, **body}
    return {"operationId": name, "summary": summary, "responses": responses}


def problem(exc: Exception) -> Response:
    """Return an error as JSON; a bug is reported on stderr, without its message, which may quote rows."""
    if isinstance(exc, ClientDisconnect):
        return Response(status_code=400)  # nobody reads it
    found, status = described(exc)
    return Response(found.model_dump_json(), status, media_type="application/json")


Handler = Callable[[Request], Awaitable[Response]]


def caught(answer: Handler) -> Handler:
    """Return a handler that answers an error of another as a `problem`."""

    async def respond(request: Request) -> Response:
        try:
            return await answer(request)
        except Exception as exc:  # noqa: BLE001 - reported, and answered as a bug
            return problem(exc)

    return respond


def described(exc: Exception) -> tuple[models.ProblemJson, int]:
    """Return what a page or the API shows of an error, and the HTTP status."""
    exc = failure(exc) or exc
    if isinstance(exc, AuditlakeError) and not isinstance(exc, InvariantBroken):
        status = next((code for kind, code in _STATUS if isinstance(exc, kind)), 503)
        return models.ProblemJson(error=exc.message, hint=exc.hint, code=exc.exit_code), status
    report_bug(exc)
    return models.ProblemJson(
        error="a bug in auditlake", hint="The server's log has where it happened.", code=_BUG
    ), 500


def cut_short(what: str, exc: Exception) -> models.ProblemJson:
    """Report on stderr why an answer ended that had begun, so that no status can tell; return what to show of it."""
    found, _ = described(exc)
    if found.code != _BUG:
        say(f"{what} was cut short: {found.error}")
    return found


def tagged(request: Request, body: bytes, media_type: str) -> Response:
    """Return a body with its ETag, or that the client has it already; a proxy that compresses makes the tag weak."""
    tag = f'"{blake2b(body, digest_size=12).hexdigest()}"'
    headers = {"etag": tag, "cache-control": "private, no-cache"}
    had = request.headers.get("if-none-match", "").split(",")
    if tag in (each.strip().removeprefix("W/") for each in had):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=media_type, headers=headers)
