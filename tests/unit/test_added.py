"""What is decided of an added column from two looks, and what is never decided."""

import pytest

from auditlake.added import Existing, Found, Look, Part, decide
from auditlake.lsn import Lsn
from auditlake.postgres.added import only_element

_LOOK = Look(1, Lsn(100), 3, {10: 7, 11: 8})
_SAME = {10: Part(7, None), 11: Part(8, None)}


@pytest.mark.parametrize(
    ("found", "value"),
    [
        (Found(4, 0, _SAME), None),
        (Found(5, 3, _SAME), None),
        (Found(4, 0, {10: Part(7, "x"), 11: Part(9, "x")}), "x"),
        (Found(4, 0, {10: Part(7, ""), 12: Part(9, None)}), ""),
        (Found(4, 0, {12: Part(9, None)}), None),
    ],
)
def test_what_is_known(found: Found, value: str | None) -> None:
    """Same files and no missing value: NULL. A missing value: that. Partitions that are new or gone do not count."""
    assert decide(_LOOK, found, Lsn(101)) == Existing(value)


@pytest.mark.parametrize(
    ("look", "found", "seen", "problem"),
    [
        (_LOOK, None, 101, "does not have it any more"),
        (None, Found(4, 0, _SAME), 101, "not looked at"),
        (_LOOK, Found(4, 0, _SAME), 100, "not looked at"),
        (_LOOK, Found(3, 0, _SAME), 101, "had it before"),
        (_LOOK, Found(5, 4, _SAME), 101, "dropped meanwhile"),
        (_LOOK, Found(4, 5, _SAME), 101, "dropped meanwhile"),
        (_LOOK, Found(4, 0, {10: Part(9, None), 11: Part(9, None)}), 101, "written anew"),
        (_LOOK, Found(4, 0, {10: Part(7, None), 11: Part(9, None)}), 101, "different"),
        (_LOOK, Found(4, 0, {10: Part(7, "x"), 11: Part(8, None)}), 101, "different"),
    ],
)
def test_what_is_not_known(look: Look | None, found: Found | None, seen: int, problem: str) -> None:
    """Each way in which the catalog of now may not be that of then."""
    answer = decide(look, found, Lsn(seen))
    assert answer.value is None
    assert problem in (answer.problem or "")


@pytest.mark.parametrize(
    ("text", "element"),
    [
        ("{5}", "5"),
        ('{""}', ""),
        ('{"NULL"}', "NULL"),
        (r'{"a\"b\\,{d}"}', 'a"b\\,{d}'),
        ("{(1,1),(0,0)}", "(1,1),(0,0)"),
    ],
)
def test_the_only_element(text: str, element: str) -> None:
    """Quoted or plain, as array_out writes it."""
    assert only_element(text) == element
