"""Tests of column names in a history: unchanged, or escaped reversibly."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from auditlake.lake.column_names import as_stored
from auditlake.lake.history import RESERVED
from auditlake.relation import Column

_NAMES = st.lists(
    st.text(st.sampled_from("aAbBéÉßẞsSkK~5f7_` ,;{}()\n\t=.'\"🐘"), min_size=1, max_size=8)
    | st.sampled_from([*RESERVED, "_PART", "~5fpart", "İ", "i̇"]),
    unique=True,
)


def _stored(*names: str) -> list[str]:
    return [column.stored for column in as_stored([Column(name, 25, -1, key=False) for name in names])]


def test_only_names_that_delta_does_not_support_are_escaped() -> None:
    """The examples of the module's docstring; every character except the backtick stays."""
    assert _stored("Name", "name", "Other") == ["~4eame", "name", "Other"]
    assert _stored("_part", "_From_Lsn", "part", "~5fpart") == ["~5fpart", "~5fFrom_Lsn", "part", "~7e5fpart"]
    assert _stored("a`b") == ["a~60b"]
    assert _stored("filePath", "_metadata") == ["~66ilePath", "~5fmetadata"]
    plain = [" ,;{}()\n\t=", 'a."b"', "100%", "🐘", "select", "~", "x" * 63, "ünï", "~zz"]
    assert _stored(*plain) == plain


@given(_NAMES)
@example(["NAME", "Name", "name", "~4eame"])
def test_stored_names_are_distinct_and_reversible(names: list[str]) -> None:
    """No two are equal to Delta, none is reserved, and unescaping restores the source's name."""
    stored = _stored(*names)
    folded = {name.casefold() for name in stored} | {name.lower() for name in stored}
    assert len({name.casefold() for name in stored}) == len({name.lower() for name in stored}) == len(names)
    assert not folded & RESERVED
    assert [_unescaped(name) for name in stored] == names


def _unescaped(name: str) -> str:
    return re.sub("(?:~[0-9a-f]{2})+", lambda m: bytes.fromhex(m[0].replace("~", "")).decode(), name)
