"""The dialects of a statement: how a script is split, when an input is complete, how a statement is prepared."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from auditlake.errors import BadUsage
from auditlake.query import statement
from auditlake.query.compared_columns import Columns
from auditlake.query.lexical import Unfinished, tokens_of
from auditlake.query.statement import Answer, Defined, LakeState, PreparedQuery

SPARK: Literal["spark"] = "spark"
POSTGRES: Literal["postgres"] = "postgres"
Dialect = Literal["spark", "postgres"]
DEFAULT = POSTGRES
"""The dialect in which users of PostgreSQL write their first statement."""
TITLES: dict[Dialect, str] = {POSTGRES: "PostgreSQL", SPARK: "Spark SQL"}


class Answers(Protocol):
    """The engines of a dialect."""

    def answer(self, state: LakeState, queries: Sequence[PreparedQuery]) -> list[Answer]:
        """Run the statements of a script."""

    def report(self) -> None:
        """Report on stderr which engine answered."""


@dataclass(frozen=True, slots=True)
class Language:
    """One dialect."""

    split: Callable[[str], list[str]]
    is_complete: Callable[[str], bool]
    prepare: Callable[[LakeState, str, Defined], PreparedQuery]

    def prepare_all(self, state: LakeState, script: str) -> list[PreparedQuery]:
        """Prepare the statements of a script; raises as `query.statement.prepare_sql` does."""
        queries: list[PreparedQuery] = []
        defined: dict[str, Columns] = {}
        for sql in self.split(script) or [script]:
            query = self.prepare(state, sql, defined)
            defined |= query.defined
            queries.append(query)
        return queries


def _ends(text: str) -> bool:
    try:
        tokens = tokens_of(text)
    except Unfinished:  # a quote is still open
        return False
    except BadUsage:  # which is reported when it is run
        return True
    return not tokens or tokens[-1].text == ";"


SPARK_SQL = Language(statement.split_script, _ends, statement.prepare_statement)


def require_dialect(name: str) -> Dialect:
    """Return a dialect's name; raises BadUsage if there is none of that name."""
    if name not in {SPARK, POSTGRES}:
        raise BadUsage(f"there is no dialect {name}", f"Write {SPARK} or {POSTGRES}.")
    return SPARK if name == SPARK else POSTGRES


def language(name: str) -> Language:
    """Return a dialect by its name in the settings."""
    if name == SPARK:
        return SPARK_SQL
    from auditlake.query.postgres import parser  # noqa: PLC0415 - a statement in the other dialect does without
    from auditlake.query.postgres.statement import prepare  # noqa: PLC0415 - the same

    return Language(parser.split, parser.is_complete, prepare)
