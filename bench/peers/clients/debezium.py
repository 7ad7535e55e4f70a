"""Run Debezium's embedded engine on a slot until it has delivered a number of row events.

    debezium.py --dsn HOST,PORT,DATABASE,USER,PASSWORD --slot S --publication P --mode copy|stream --events N
                --work FOLDER [--delta FOLDER] [--arrivals FILE COLUMN]

Without --delta the events are counted and thrown away, without being turned into Python objects. With it every event is
appended to a Delta table of its source table: the row's columns as text, with the operation, the LSN and the order of
arrival. With --arrivals the machine's monotonic time at which each event arrived is written, by its key in a column.
"""

import argparse
import json
import threading
import time
from collections import defaultdict
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake
from pydbzengine import BasePythonChangeHandler, ChangeEvent, DebeziumEngine

_POLL_MS = 10  # the default, 500 ms, would decide the latency


class Handler(BasePythonChangeHandler):
    """Counts events, and keeps what is asked for."""

    def __init__(self, expected: int, delta: Path | None, column: str | None) -> None:
        self.arrived: dict[str, float] = {}
        self.done = threading.Event()
        self._left = expected
        self._delta = delta
        self._column = column
        self._order = 0

    def handleJsonBatch(self, records: list[ChangeEvent]) -> None:  # noqa: N802 - its name is Java's
        now = time.monotonic()
        if self._column:
            for record in records:
                self.arrived[str(json.loads(str(record.value()))["after"][self._column])] = now
        if self._delta:
            self._append(records, self._delta)
        self._left -= len(records)
        if self._left <= 0:
            self.done.set()

    def _append(self, records: list[ChangeEvent], delta: Path) -> None:
        rows = defaultdict[str, list[dict[str, str | int | None]]](list)
        for record in records:
            event = json.loads(str(record.value()))
            source, row = event["source"], event["after"] or event["before"]
            self._order += 1
            values = {name: None if value is None else str(value) for name, value in row.items()}
            position = {"_op": event["op"], "_lsn": source["lsn"] or 0, "_order": self._order}
            rows[source["table"]].append(values | position)
        for table, found in rows.items():
            fields = [(name, pa.int64() if name in {"_lsn", "_order"} else pa.string()) for name in found[0]]
            write_deltalake(delta / table, pa.Table.from_pylist(found, schema=pa.schema(fields)), mode="append")


def _properties(arguments: argparse.Namespace) -> dict[str, str]:
    host, port, database, user, password = arguments.dsn.split(",")
    return {
        "name": "peer",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": f"{arguments.work}/offsets.dat",
        "offset.flush.interval.ms": "1000",
        "database.hostname": host,
        "database.port": port,
        "database.user": user,
        "database.password": password,
        "database.dbname": database,
        "topic.prefix": "peer",
        "plugin.name": "pgoutput",
        "slot.name": arguments.slot,
        "publication.name": arguments.publication,
        "publication.autocreate.mode": "disabled",
        "snapshot.mode": "initial" if arguments.mode == "copy" else "no_data",
        "poll.interval.ms": str(_POLL_MS),
        "max.batch.size": "20480",
        "max.queue.size": "81920",
        "snapshot.fetch.size": "10240",
        "decimal.handling.mode": "string",
        "tombstones.on.delete": "false",
        "value.converter.schemas.enable": "false",
        "key.converter.schemas.enable": "false",
    }


def main() -> None:
    """Run the engine in a thread, and close it when the last event has arrived, so that its position is kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("dsn", "slot", "publication", "mode", "work"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--events", type=int, required=True)
    parser.add_argument("--delta", type=Path)
    parser.add_argument("--arrivals", nargs=2, metavar=("FILE", "COLUMN"), default=(None, None))
    arguments = parser.parse_args()
    Path(arguments.work).mkdir(parents=True, exist_ok=True)
    file, column = arguments.arrivals
    handler = Handler(arguments.events, arguments.delta, column)
    engine = DebeziumEngine(_properties(arguments), handler)
    thread = threading.Thread(target=engine.run, daemon=True)
    thread.start()
    while not handler.done.wait(0.01):
        if not thread.is_alive():
            raise SystemExit("the engine ended before all events had arrived")
    engine.close()
    thread.join()
    if file:
        Path(file).write_text(json.dumps(handler.arrived))


if __name__ == "__main__":
    main()
