"""Cost of masking: the batch decoder and the masks of one buffer of inserts, without rules and with each rule.

    python bench/masks.py [CHANGES]

A change has an integer, an e-mail address, a phone number and a note. The times are of one core: decoding the buffer,
then masking one text column by each rule, and two by `hash`.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from auditlake.capture.masking import ChangeMasker
from auditlake.lake.layout import Lake
from auditlake.lake.masks import Masks, settle
from auditlake.pgoutput.batch_decoder import ChangeDecoder
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from auditlake.settings.mask_rules import Masking, parse_rule

ROUNDS = 5
NAME = TableName("public", "people")
COLUMNS = (
    Column("id", 23, -1, key=True, attnum=1),
    *(Column(name, 25, -1, key=False, attnum=attnum) for attnum, name in enumerate(("email", "phone", "note"), 2)),
)
RELATION = Relation(1, NAME, ReplicaIdentity.DEFAULT, COLUMNS)
RULES = {
    "no rule": {},
    "null": {"email": "null"},
    "truncate 4": {"email": "truncate 4"},
    "keep_last 4": {"email": "keep_last 4"},
    "hash": {"email": "hash"},
    "hash of two columns": {"email": "hash", "phone": "hash"},
}


def main() -> None:
    """Measure, and print a line for each."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 400_000
    data, starts, ends = _buffer(count)
    print(f"decoding: {_seconds(lambda: ChangeDecoder().decode(data, starts, ends)):.2f} s")
    changes = ChangeDecoder().decode(data, starts, ends).changes
    numbered = changes.set_column(
        changes.schema.get_field_index("relation"), "relation", pa.array(np.ones(count, np.int64))
    )
    for label, rules in RULES.items():
        with tempfile.TemporaryDirectory() as folder:
            lake = Lake(Path(folder))
            made = tuple((f"public.people.{name}", parse_rule(rule)) for name, rule in rules.items())
            masking = Masking(made, (), b"0123456789abcdef")
            settle(lake, masking)
            masker = ChangeMasker(lake, Masks(lake, masking))
            seconds = _seconds(partial(masker.masked, numbered, {1: RELATION})) if rules else 0.0
        print(f"{label}: {seconds:.2f} s")


def _seconds(run: Callable[[], object]) -> float:
    found = []
    for _ in range(ROUNDS):
        start = time.process_time()
        run()
        found.append(time.process_time() - start)
    return min(found)


def _buffer(count: int) -> tuple[bytes, np.ndarray, np.ndarray]:
    """Build a transaction of inserts in the protocol's form."""
    begin = b"B" + (1000).to_bytes(8) + (0).to_bytes(8) + (7).to_bytes(4)
    columns = b"".join(
        bytes([column.key]) + column.name.encode() + b"\0" + column.type_oid.to_bytes(4) + b"\xff" * 4
        for column in COLUMNS
    )
    described = b"R" + (1).to_bytes(4) + b"public\0people\0d" + len(COLUMNS).to_bytes(2) + columns
    payloads = [begin, described]
    for number in range(count):
        texts = (str(number), f"user{number}@example.org", f"+49170{number:08}", f"note of {number}")
        values = b"".join(b"t" + len(text).to_bytes(4) + text.encode() for text in texts)
        payloads.append(b"I" + (1).to_bytes(4) + b"N" + len(texts).to_bytes(2) + values)
    ends = np.cumsum([len(payload) for payload in payloads])
    return b"".join(payloads), np.concatenate([[0], ends[:-1]]), ends


if __name__ == "__main__":
    main()
