"""The engine of a statement: DuckDB if the statement is known to mean the same there, else Spark.

Spark is the reference. A script is answered by one engine: by Spark if one of its statements needs it. `Engines.report`
says on stderr which engine answered, and why it was Spark.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

from auditlake.messages import say
from auditlake.query.embedded.cells import NotEmbedded
from auditlake.query.embedded.engine import NAME, Embedded, EmbeddedRows
from auditlake.query.statement import Answer, LakeState, PreparedQuery, check_names

if TYPE_CHECKING:  # pyspark takes a second to import
    from pyspark.sql import DataFrame, SparkSession

AUTO, SPARK = "auto", "spark"


class Engines:
    """The engines of one process; `start` returns the Spark session, and starts it if it has to."""

    def __init__(self, choice: str, settings: Mapping[str, str], start: "Callable[[], SparkSession]") -> None:
        self._choice = choice
        self._settings = settings
        self._start = start
        self._engine = ""
        self._reason = ""
        self._said = ""

    @cached_property
    def _embedded(self) -> Embedded:
        return Embedded(self._settings)

    @cached_property
    def _session(self) -> "SparkSession":
        from auditlake.query.spark_engine import session_for_statements  # noqa: PLC0415 - as below

        return session_for_statements(self._start())

    def answer(self, state: LakeState, queries: Sequence[PreparedQuery]) -> list[Answer]:
        """Run a script; return an answer for each statement with a result. Raises BadUsage if its engine refuses."""
        if self._choice != SPARK:
            try:
                return self._of_duckdb(state, queries)
            except NotEmbedded as reason:
                if self._choice != AUTO:
                    raise reason.refusal("Leave out --engine, or use spark.") from reason
                self._reason = str(reason)
        return self._of_spark(queries)

    def _of_duckdb(self, state: LakeState, queries: Sequence[PreparedQuery]) -> list[Answer]:
        answers = [self._noted(state, query, self._embedded.answer(state, query)) for query in queries]
        self._engine, self._reason = NAME, ""
        return answers

    def _noted(self, state: LakeState, query: PreparedQuery, rows: EmbeddedRows) -> Answer:
        return Answer(rows, lambda nulls: self._embedded.notes(state, query, rows, nulls))

    def _of_spark(self, queries: Sequence[PreparedQuery]) -> list[Answer]:
        from auditlake.query.spark_engine import plan  # noqa: PLC0415 - pyspark takes a second to import

        for query in queries:
            check_names(query)
        self._engine = SPARK
        answers = []
        for query in queries:
            rows = plan(self._session, query)
            if query.defines is None:
                answers.append(Answer(rows, partial(self._footnotes, query, rows)))
        return answers

    def _footnotes(self, query: PreparedQuery, rows: "DataFrame", nulls: set[int]) -> Iterator[str]:
        from auditlake.query.spark_engine import footnotes  # noqa: PLC0415 - as above

        return footnotes(self._session, query, rows, nulls)

    def report(self) -> None:
        """Report on stderr which engine answered, and why it was Spark; nothing if that is as it was the last time."""
        why = f", because of {self._reason}" if self._reason else ""
        said = f"answered by {self._engine}{why}"
        if said != self._said:
            say(said)
        self._said = said
