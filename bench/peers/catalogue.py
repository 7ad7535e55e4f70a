"""Contenders and jobs as the page names them: what each leaves out, and why a job comes out as it does.

`OURS` are those of auditlake. A floor keeps nothing: it shows what the server alone costs.
"""

from dataclasses import dataclass
from typing import Literal

OURS = (
    "auditlake",
    "auditlake-follow",
    "auditlake-capture",
    "auditlake-sql",
    "auditlake-durable",
    "auditlake-feed",
    "auditlake-spark",
)


@dataclass(frozen=True)
class Peer:
    """A contender in words; `lacks` completes "does not have"."""

    label: str
    lacks: str
    floor: bool = False


_NO_HISTORY = "history, as of"
_DEBEZIUM = "as of; exactly once (it delivers again after a crash)"
_TRIGGERS = "as of for whole tables; every change (not those under `session_replication_role = replica`)"
PEERS = {
    "auditlake": Peer("**auditlake**", "–"),
    "auditlake-capture": Peer(
        "**auditlake capture**", "the changes folded into versions: questions do that when asked"
    ),
    "auditlake-follow": Peer("**auditlake follow**", "–"),
    "auditlake-durable": Peer("**auditlake**, durable", "–"),
    "auditlake-sql": Peer("**auditlake**, in the answer of a question", "–"),
    "auditlake-feed": Peer("**auditlake**, at a subscriber of `changes`", "–"),
    "nothing": Peer("neither a reader nor a trigger", "anything", floor=True),
    "copy": Peer("`COPY` (binary) to nothing", "anything: the rows are thrown away", floor=True),
    "recvlogical": Peer("`pg_recvlogical` to nothing", "anything: the changes are thrown away", floor=True),
    "subscription": Peer("PostgreSQL's subscription", f"{_NO_HISTORY}: the target has the current rows"),
    "supabase-etl": Peer("supabase/etl to nothing", "anything: the rows are only counted", floor=True),
    "duckdb": Peer(
        "DuckDB's postgres scanner → Parquet",
        f"{_NO_HISTORY}, later changes; NaN and Infinity become 0, wide `numeric` a double",
    ),
    "adbc": Peer(
        "ADBC → delta-rs", f"{_NO_HISTORY}, later changes; an infinite time becomes 290279 BC, intervals fail"
    ),
    "spark-jdbc": Peer("Spark JDBC → Delta", f"{_NO_HISTORY}, later changes, one snapshot for all connections"),
    "dlt": Peer(
        "dlt `sql_database` → Delta",
        f"{_NO_HISTORY}, one snapshot; an infinite time becomes the year 262142, NaN fails",
    ),
    "dlt-replication": Peer("dlt `pg_replication` → Delta", "as of, columns of deleted rows, TRUNCATE"),
    "debezium": Peer("Debezium, events thrown away", "anything: the events are only counted", floor=True),
    "debezium-delta": Peer("Debezium → Delta", _DEBEZIUM),
    "supa-audit": Peer("supa_audit", _TRIGGERS),
    "audit-trigger": Peer("2ndQuadrant's audit trigger", _TRIGGERS),
    "temporal-tables": Peer(
        "temporal_tables (PL/pgSQL)", "commit order (its time is that of the begin), TRUNCATE, schema changes"
    ),
    "parquet": Peer("plain Parquet files of that state", "every other state"),
    "delta": Peer("plain Delta tables of that state", "every other state"),
    "auditlake-spark": Peer("**auditlake** in Spark", "–"),
}


@dataclass(frozen=True)
class Figure:
    """A column of a table; `digits` after the decimal point."""

    field: str
    label: str
    digits: int = 1


Better = Literal["lower", "higher"]


@dataclass(frozen=True)
class Kind:
    """What is measured of each contender; the first figure decides."""

    figures: tuple[Figure, ...]
    unit: str
    better: Better = "lower"


KINDS = {
    "race": Kind(
        (
            Figure("wall_s", "wall, s", 2),
            Figure("client_cpu_s", "client, CPU-s"),
            Figure("server_cpu_s", "server, CPU-s"),
            Figure("peak_mb", "client, peak MB", 0),
            Figure("result_mb", "written, MB"),
        ),
        "s",
    ),
    "latency": Kind(
        (
            Figure("p99_ms", "p99, ms", 0),
            Figure("p50_ms", "p50, ms", 0),
            Figure("worst_ms", "worst, ms", 0),
            Figure("client_cpu_s", "client, CPU-s"),
            Figure("server_cpu_s", "server, CPU-s"),
        ),
        "ms",
    ),
    "throughput": Kind(
        (
            Figure("tps", "transactions/s", 0),
            Figure("server_us", "server, CPU-µs/transaction", 0),
            Figure("client_us", "contender, CPU-µs/transaction", 0),
            Figure("wal_bytes", "WAL, bytes/transaction", 0),
            Figure("latency_ms", "mean latency, ms", 2),
            Figure("behind_s", "behind, s"),
        ),
        "transactions/s",
        "higher",
    ),
}


@dataclass(frozen=True)
class Job:
    """A job in words: its title, and a sentence that explains the order of the results."""

    title: str
    kind: str
    why: str
    grows: str | None = None


_COPY = (
    "`COPY` keeps nothing. DuckDB and ADBC begin within a fraction of a second, and write neither the exact text of "
    "odd values nor the columns of a version. auditlake first imports its libraries in two processes, checks the "
    "source and makes a slot, which decides small copies. Spark, dlt and Debezium turn rows into objects of their own "
    "languages. supabase/etl is done when each of its tables has caught up with a stream that is idle here."
)
_STREAM = (
    "`pg_recvlogical` and a subscription are C, and start at once or run already; auditlake's start-up, 0.7 s of CPU, "
    "is included. It decodes columns in bulk, while Debezium and dlt make an object of each change."
)
_COMMITS = f"{_STREAM} auditlake also keeps a row of each transaction, in few large files instead of one per commit."
_ONE_KEY = (
    f"{_STREAM} A subscription leaves one row, auditlake every version that the key ever had, each with the end of its "
    "predecessor; both the fold and the file grow with their number."
)
_LARGE = (
    f"{_STREAM} A transaction of more than 96 MB is captured, folded and written in parts, because memory is bounded, "
    "and becomes visible in one commit."
)
_TABLES = (
    f"{_COPY} Each table becomes a Delta table with a log and records of its own, 10 to 15 ms of CPU in auditlake, "
    "where a plain Parquet file has none of these."
)
_LATENCY = (
    "A subscription applies each commit as it arrives. auditlake collects commits for a file, which then has to be "
    "written; a question sees a commit as soon as it is durable."
)
_VERSIONS = (
    "The moment is in the middle of the history, and a plain copy has only the rows of that state. auditlake opens the "
    "files whose statistics admit a version of that moment, not all; Spark's start is in its figures."
)
JOBS = {
    "lineitem": Job("First copy of TPC-H's lineitem", "race", _COPY),
    "tpch": Job("First copy of all eight tables of TPC-H", "race", _COPY),
    "small-tables": Job("First copy of many small tables", "race", _TABLES),
    "tpcb": Job("TPC-B waiting in a slot, history with a key", "race", _STREAM),
    "tpcb-standard": Job("TPC-B in its standard schema: a table without a key", "race", _STREAM),
    "insert": Job("One transaction of many rows", "race", _LARGE),
    "commits": Job("Many transactions of one row", "race", _COMMITS),
    "one-key": Job("One key changed again and again", "race", _ONE_KEY),
    "growth-rows": Job(
        "The size of one transaction",
        "race",
        "auditlake writes a large transaction in parts, and the others but dlt work row by row, so only dlt's memory "
        "has to grow with it. Above 96 MB auditlake folds in parts, too.",
        "rows in one transaction",
    ),
    "growth-tables": Job(
        "The number of tables in a first copy",
        "race",
        "Each table becomes a Delta table with a log and records of its own, which costs auditlake more than one file.",
        "tables of 100 rows",
    ),
    "growth-open": Job(
        "A small batch in a table of many rows",
        "race",
        "A subscription finds a row by an index. auditlake finds the files by the keys in the log, reads the key's "
        "columns in them, and marks the rows in deletion vectors; it rewrites no file.",
        "rows of the table",
    ),
    "growth-closed": Job(
        "A question about a past state: the number of versions", "race", _VERSIONS, "versions of each row"
    ),
    "growth-months": Job(
        "A question about a past state: the number of months", "race", _VERSIONS, "months of closed versions"
    ),
    "latency-100": Job("From a commit to where it is seen, 100 transactions/s", "latency", _LATENCY),
    "latency-500": Job("From a commit to where it is seen, 500 transactions/s", "latency", _LATENCY),
    "latency-most": Job("From a commit to where it is seen, one client at full speed", "latency", _LATENCY),
    "source": Job(
        "What it costs the source: pgbench at full speed",
        "throughput",
        "Triggers do their work inside the transaction. Readers of the log do it beside the transaction, but here on "
        "the same two cores, and one that falls behind takes less of them: *behind* is how long it needed afterwards.",
    ),
    "as-of": Job(
        "TPC-H's 22 queries as of a moment in the past",
        "race",
        "A plain copy has only the rows of that one state; auditlake finds them among all versions. Spark's start is "
        "in its figures, and so are auditlake's checks that a statement has the same answer in both engines. Answers "
        "are compared by four digits; Spark rounds averages of decimals to six places, which changes the fourth digit "
        "of an average of 0.0478046 in query 1.",
    ),
}
