"""Scenario of the mutations of ledger, holds, retention and erasure: one sealed lake, without a server and a JVM."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from shutil import copytree, rmtree
from unittest.mock import patch

from auditlake.erasure.retention import expire
from auditlake.errors import LakeUnusable
from auditlake.lake.erasures import Erasure, record_end, require_erased_log
from auditlake.lake.layout import Lake
from auditlake.ledger.blocks import read_blocks, read_entries
from auditlake.ledger.verification import VerifiedDigest
from auditlake.settings.retention_rules import RetentionPeriods
from tests.command import run_here
from tests.erasure_lake import (
    OF_ONE,
    OF_TWO,
    ONE,
    OTHERS,
    PEOPLE,
    TWO,
    columns_gone,
    found_in,
    require_sound,
    states,
    without,
    write_lake,
)
from tests.expiry import AT_ONCE
from tests.ledger_lake import compared, edit_adds, edit_rows, sealed, where
from tests.read_lake import history_of

_REFUSED = 3


def run_erased(root: Path) -> None:
    """Seal, erase columns, hold, erase a row, and tamper; assert what each step must leave."""
    lake = write_lake(root)
    digest, keys = sealed(lake), [block.key for block in read_blocks(lake)]
    before = states(lake)
    copytree(lake.root / "changes", root.with_name(f"{root.name}-kept"))
    with patch("auditlake.erasure.forget.record_end", partial(_end, [key for key in keys if key])):
        _forget(lake, *OF_ONE)
    assert found_in(lake, ONE) == {}, "values of columns are left"
    assert set().union(*found_in(lake, OTHERS).values()) == set(OTHERS), "values of others are gone"
    _hold(lake)
    _forget(lake, *OF_TWO)
    assert found_in(lake, TWO) == {}, "values of a row are left"
    expected = without(without(before, columns_gone), lambda row: None if row["id"] == "2" else row)
    assert states(lake) == expected, "other answers have changed"
    assert compared(lake, digest, sealed(lake)).failure() is None, "a digest does not fit"
    _require_secrets(lake)
    require_sound(lake)
    _tamper(lake, digest)
    _put_back(lake, root.with_name(f"{root.name}-kept"))


def _put_back(lake: Lake, kept: Path) -> None:
    """Require that changes from before the erasures are not taken for those of now."""
    rmtree(lake.root / "changes")
    copytree(kept, lake.root / "changes")
    try:
        require_erased_log(lake)
    except LakeUnusable:
        return
    raise AssertionError("changes with erased values are not found")


def _end(keys: Sequence[bytes], lake: Lake, erasure: Erasure) -> None:
    """Record the end of an erasure, if no file has the key of a block with erased values."""
    files = [file.read_bytes() for file in lake.root.rglob("*") if file.is_file()]
    forms = [form for key in keys for form in (key, key.hex().encode())]
    assert not any(form in content for form in forms for content in files), "the key of a block is left"
    record_end(lake, erasure)


def _command(lake: Lake, *arguments: str) -> int:
    return run_here([*arguments, "--lake", lake.root]).code


def _forget(lake: Lake, *arguments: str) -> None:
    done = run_here(["forget", *arguments, "--lake", lake.root])
    assert done.code == 0, "an erasure is refused"


def _hold(lake: Lake) -> None:
    """Require that a hold refuses an erasure, and lets nothing expire."""
    assert _command(lake, "hold", "add", "case-1", "--table", "people", "--reason", "court") == 0
    assert _command(lake, "forget", *OF_TWO) == _REFUSED, "a held row is erased"
    expire(lake, RetentionPeriods((("public.people", AT_ONCE),)), "tests", lambda _: None)
    assert not history_of(lake, PEOPLE).has_expired, "held versions have expired"
    assert _command(lake, "hold", "release", "case-1", "--reason", "settled") == 0


def _require_secrets(lake: Lake) -> None:
    """Require that no entry that was erased has a secret, and every other one has its own."""
    records = [json.loads(file.read_text()) for file in sorted(lake.erasures.glob("[0-9]*[0-9].json"))]
    erased = {number for each in records for number in each["entries"]}
    assert erased, "no entry is recorded as erased"
    without_key = {block.number for block in read_blocks(lake) if block.key is None}
    for row in read_entries(lake, "kind in ('change', 'transaction')").to_pylist():
        if row["block"] in without_key:
            assert (row["secret"] is None) == (row["number"] in erased), "a secret is left, or lost"


def _tamper(lake: Lake, digest: VerifiedDigest) -> None:
    """Require that rows that are changed or hidden are found."""
    edit_adds(lake.transactions, _narrowed)
    assert [each.kind for each in compared(lake, digest).mismatches][:1] == ["bounds"], "hidden rows are not found"
    edit_rows(lake.changes, where("lsn", 0x600, lambda texts: [*texts[:-1], "forged"], "new"))
    kinds = {(each.kind, each.lsn) for each in compared(lake, digest).mismatches}
    assert ("changed change", 0x600) in kinds, "a forged value is not found"


def _narrowed(add: dict[str, object]) -> dict[str, object]:
    stats = json.loads(str(add["stats"]))
    stats["minValues"]["lsn"] = stats["maxValues"]["lsn"]
    return add | {"stats": json.dumps(stats)}
