"""Logical messages, names and values of strangers: decoded, recorded, and read back by every command and the page."""

import json
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from auditlake.capture.change_log import CaptureLog, CommitEnd, TableMessages
from auditlake.feed.request import FeedRequest
from auditlake.feed.webhook import messages as requests_of
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.pgoutput.attribution import PREFIXES
from auditlake.pgoutput.batch_decoder import ChangeDecoder
from auditlake.pgoutput.ddl_message import FORM, PREFIX, parse_ddl_message
from auditlake.pgoutput.decoder import Begin, Commit, Insert, LogicalMessage, Message
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from auditlake.serve.live import event
from auditlake.source.heartbeat import PREFIX as HEARTBEAT
from tests.attacks import NOT_STRICT
from tests.command import run_here
from tests.page import Page
from tests.small_lake import write_lake_with_manifest
from tests.unit.pgoutput.encode import encode
from tests.unit.pgoutput.framing import frame

_AT = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
_LSN = 0x1000
_SEAL = f"{FORM} {'0' * 64} "
_CLAIM = {
    "tag": "ALTER TABLE",
    "session_user": "postgres",
    "relations": [
        {
            "oid": 1, "schema": "public", "name": "t", "kind": "r", "persistence": "p", "identity": "d", "file": 9,
            "partition": False, "parents": [2], "columns": [[1, "id", 23, -1, "nk", ["s", "b"], "{1}"]],
        }
    ],
    "dropped": [["table column", 1, 1, ["public", "t", "c"]], ["table", 2, 0, ["public", "t"]]],
    "rewritten": [[1, 4]],
    "types": [{"oid": 5, "array": 6, "kind": "e", "labels": ["a"]}],
}  # fmt: skip

_texts = st.text(max_size=8) | st.sampled_from(
    ["\ud83d", "\0", "\x1b]0;x\a", "<b>", "\u202e", "{{1}}", "${a}", "/*", "'"]
)
_scalars = st.none() | st.booleans() | st.integers() | st.floats() | _texts | st.just(10**400)
_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_texts | st.sampled_from([*_CLAIM, "actor"]), inner),
    max_leaves=8,
)
_contexts = st.dictionaries(st.sampled_from(["actor", "user_id", "reason", "session_user", "x"]), _values, min_size=1)


def _replaced(claim: object, path: Sequence[int], value: object) -> object:
    """Return a claim with the value at a path of positions replaced."""
    if not path or not isinstance(claim, dict | list) or not claim:
        return value
    if isinstance(claim, list):
        place = path[0] % len(claim)
        return [_replaced(each, path[1:], value) if at == place else each for at, each in enumerate(claim)]
    name = list(claim)[path[0] % len(claim)]
    return {**claim, name: _replaced(claim[name], path[1:], value)}


_claims = st.builds(_replaced, st.just(_CLAIM), st.lists(st.integers(0, 9), max_size=5), _values)
_contents = st.one_of(
    st.binary(max_size=20),
    st.sampled_from([text.encode() for text in NOT_STRICT]),
    st.builds(lambda value: json.dumps(value).encode(), _values | _contexts),
    st.builds(lambda seal, claim: f"{seal}{json.dumps(claim)}".encode(), st.sampled_from(["", _SEAL]), _claims),
)
_prefixes = st.sampled_from([*sorted(PREFIXES), PREFIX, HEARTBEAT, "auditlake:", "", "\0x41", "ä"])
_names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=6)


@given(_claims, st.sampled_from(["", _SEAL]))
def test_a_claim_is_parsed_or_is_none(claim: object, seal: str) -> None:
    """Whatever one of its members is."""
    parse_ddl_message(f"{seal}{json.dumps(claim)}".encode())


_sent = st.lists(st.tuples(st.booleans(), _prefixes, _contents), max_size=6)
_transactions = st.lists(st.tuples(_sent, _names, _names, st.none() | _names, _sent), min_size=1, max_size=3)


@settings(max_examples=10, phases=[Phase.reuse, Phase.generate], suppress_health_check=[HealthCheck.too_slow])
@given(_transactions, st.booleans())
def test_no_content_ends_a_reader(
    transactions: list[tuple[list[tuple[bool, str, bytes]], str, str, str | None, list[tuple[bool, str, bytes]]]],
    proved: bool,  # noqa: FBT001 - a strategy
) -> None:
    """Also if a message has the seal of the trigger, which an attacker does not know."""
    with TemporaryDirectory() as folder:
        lake = write_lake_with_manifest(Path(folder) / "lake")
        log = CaptureLog(lake)
        decoder = ChangeDecoder(lambda sent: [proved] * len(sent))
        for number, (before, table, column, value, after) in enumerate(transactions, 1):
            _capture(log, decoder, Lsn(_LSN + number * 0x100), (before, after), (table, column, value))
        _read(lake, [Lsn(_LSN + number * 0x100) for number in range(1, len(transactions) + 1)])


def _capture(
    log: CaptureLog,
    decoder: ChangeDecoder,
    lsn: Lsn,
    sent: tuple[list[tuple[bool, str, bytes]], list[tuple[bool, str, bytes]]],
    row: tuple[str, str, str | None],
) -> None:
    """Capture a transaction: messages, a row of a table of that name, more messages."""
    table, column, value = row
    relation = Relation(
        int(lsn), TableName("public", table), ReplicaIdentity.DEFAULT, (Column(column, 25, -1, key=True),)
    )
    inside: list[list[Message]] = [
        [
            LogicalMessage(True, lsn, prefix.replace("\0", ""), content)
            for transactional, prefix, content in each
            if transactional
        ]
        for each in sent
    ]
    outside = [
        LogicalMessage(False, lsn, prefix.replace("\0", ""), content)
        for transactional, prefix, content in (*sent[0], *sent[1])
        if not transactional
    ]
    stream = [*outside, Begin(lsn, _AT, 7), *inside[0], relation, Insert(relation.oid, (value,)), *inside[1]]
    stream.append(Commit(lsn, Lsn(lsn + 1), _AT))
    decoded = decoder.decode(*frame([encode(each) for each in stream]))
    messages = TableMessages(decoded.entries, lambda _: None)
    log.append(decoded.changes, decoded.transactions, CommitEnd(lsn, Lsn(lsn + 1)), messages)


def _read(lake: Lake, lsns: Sequence[Lsn]) -> None:
    """Ask everything that shows contexts and messages, and require an answer that can be written and parsed."""
    for arguments in (
        ["log"],
        ["log", "--json"],
        ["log", "--changes", "--since", "beginning", "--json"],
        *(["show", str(lsn)] for lsn in lsns),
        *(["show", str(lsn), "--json"] for lsn in lsns),
    ):
        done = run_here([*arguments, "--lake", lake.root])
        assert done.code == 0, (arguments, done.stderr)
        if "--json" in arguments:
            assert [json.loads(line) for line in done.stdout.split("\n") if line]
        else:
            assert "\x1b" not in done.stdout
    feed = FeedRequest("beginning", None, ()).open(lake, _AT, threading.Event())
    taken = feed.take(0)
    assert {each.lsn for each in taken} >= set(lsns)
    for each in requests_of(taken):
        json.loads(each.body)
    assert all(event(each).encode().count(b"\n\n") == 1 for each in taken)
    page = Page(lake)
    page.json("log")
    for lsn in lsns:
        page.json("transaction", transaction=str(lsn))
        assert page.get("/transaction", transaction=str(lsn)).status_code == 200
    assert page.get("/log").status_code == 200
