"""Tests of documents: what is kept of them in memory, and how often their parts are compared."""

from decimal import Decimal

import pytest

from auditlake.query.postgres import documents
from auditlake.query.postgres.documents import canonical, contains, parsed, without_keys
from auditlake.values.jsonb import printed_jsonb, read_document


@pytest.mark.parametrize(("length", "kept"), [(100, True), (10_000, False)])
def test_long_documents_are_not_kept_in_memory(length: int, kept: bool) -> None:  # noqa: FBT001 - a case
    """Thousands of them would fill it, and would stay in a server after the question."""
    text = f'["{"x" * length}"]'
    for function in (parsed, canonical):
        assert (function(text) is function(text)) == kept


def test_an_array_is_searched_for_each_scalar_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with each would be 40 billion comparisons of two arrays of 200,000 numbers."""
    read = list[str]()

    def counted(text: str) -> Decimal:
        read.append(text)
        return Decimal(text)

    monkeypatch.setattr(documents, "Decimal", counted)
    whole, part = list(range(1000)), list(range(999, -1, -1))
    for one, other in ((whole, part), ({"a": [whole]}, {"a": [part]})):
        read.clear()
        assert contains(printed_jsonb(_numbered(one)), printed_jsonb(_numbered(other)))
        assert len(read) == len(whole) + len(part)
    lists = [whole] * 3
    read.clear()
    assert contains(printed_jsonb(_numbered([whole])), printed_jsonb(_numbered(lists)))
    assert len(read) == len(whole) + sum(map(len, lists))


def _numbered(value: object) -> object:
    return read_document(str(value).replace("'", '"'))


@pytest.mark.parametrize(
    ("whole", "part", "found"),
    [
        ('[1.0, true, null, "1"]', "[1]", True),
        ("[true]", "[1]", False),
        ("[1]", "[true]", False),
        ('["1"]', "[1]", False),
        ("[[1, 2], {}]", "[[2.00]]", True),
        ("[[1, 2], {}]", "[2]", False),
        ("[1]", "[[1]]", False),
        ('{"a": [1, {"b": null}]}', '{"a": [{"b": null}, {}]}', True),
        ('{"a": null}', '{"a": false}', False),
        ("[1, 2]", "2", True),
        ("[[2]]", "2", False),
        ("2", "[2]", False),
        ("0", "-0.0", True),
        ('{"a": 1, "b": 2}', '{"a": 1.0}', True),
        ('{"a": {"b": [1, 2]}}', '{"a": {"b": [2]}}', True),
        ('["a", 1]', '"a"', True),
        ('"a"', '["a"]', False),
        ('{"a": true}', '{"a": 1}', False),
        ("[[1, 2]]", "[1]", False),
        ('{"a": "1"}', '{"a": 1}', False),
    ],
)
def test_containment_compares_values_of_one_type(whole: str, part: str, found: bool) -> None:  # noqa: FBT001 - a case
    """Numbers by their values, and arrays only with arrays: as `select '…'::jsonb @> '…'` in PostgreSQL 18."""
    assert contains(whole, part) is found


def test_keys_that_are_removed_are_looked_up() -> None:
    """To search all keys for each member takes the product of both."""

    class Keys(list[str | None]):
        def __contains__(self, _: object) -> bool:
            raise AssertionError("searched from the first to the last")

    assert without_keys('{"a": 1, "b": 2}', Keys(["b", None])) == '{"a": 1}'
    assert without_keys('["a", 1, "b", "1"]', Keys(["b", "1"])) == '["a", 1]'


def test_a_deep_document_is_joined_once() -> None:
    """Not at each of its levels: the time of a long text in it would grow with every one."""
    text = "[" * 600 + '{"a": 1.50, "b": [], "c": {}, "d": [null, "x"]}' + "]" * 600
    assert printed_jsonb(read_document(text)) == text
