"""Contexts without the values of an erasure: however a value is written, and nothing else of a context."""

import json
import random
from urllib.parse import quote, quote_plus, unquote_plus

import pytest

from auditlake.erasure.contexts import REPLACED, Contexts
from tests.random_seeds import random_seeds


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        (r'{"a": "5 Main St\nOslo", "b": 1.50}', '{"a": "[erased]", "b": 1.50}'),
        (r'{"a": "so \"Eve\" it is", "b": [true, null, "x"]}', '{"a": "[erased]", "b": [true, null, "x"]}'),
        (r'{"a": "C:\\Eve", "b": "C:\\Ann"}', r'{"a": "[erased]", "b": "C:\\Ann"}'),
        (r'{"a": "https:\/\/eve.no\/me"}', '{"a": "[erased]"}'),
        (r'{"a": "\u0022Eve\u0022", "b": "\ud83d\ude00"}', '{"a": "[erased]", "b": "😀"}'),
        (r'{"a": "\u0022Eve\u0022", "a": "later"}', '{"a": "[erased]", "a": "later"}'),
        (
            r'{"a": "\"Eve\"", "b": [1234567890.12345678901, 0.10, 1E2, 1e400], "c": NaN}',
            '{"a": "[erased]", "b": [1234567890.12345678901, 0.10, 1E2, 1e400], "c": NaN}',
        ),
        (r'{"user_id 123-45-6789": 1, "123-45-6789": 2}', '{"[erased]": 1, "[erased] 1": 2}'),
        (r'{"\"Eve\"": {"a": "\"Eve\""}}', '{"[erased]": {"a": "[erased]"}}'),
        (r'{"a": "{\"b\": \"\\u0022Eve\\u0022\"}", "c": "{}"}', '{"a": "[erased]", "c": "{}"}'),
        (r'{"a": "\"\\u005c\\u005cu0022Eve\\\\\""}', '{"a": "[erased]"}'),
        (r'{"a": "\\xff2245766522", "b": "\\xff4f7474"}', r'{"a": "[erased]", "b": "\\xff4f7474"}'),
        (r'{"a": "\\xff5c753030323245766522"}', '{"a": "[erased]"}'),
        (r'{"a": "\ud83d", "b": "\"Eve\"", "c": "\ud83d\ude00"}', r'{"a": "\ud83d", "b": "[erased]", "c": "😀"}'),
        ('{"a": "1.23456E4 in a text"}', '{"a": "[erased]"}'),
        ('{"a": 12345.60, "b": 7}', '{"a": "[erased]", "b": 7}'),
        ("[12345.60]", '["[erased]"]'),
        (r'no JSON, but "Eve"', "[erased]"),
        (r"no JSON, but \"Eve\"", "[erased]"),
        (
            '{"a": 12345.6, "b": 1.23456E4}',
            '{"a": "[erased]", "b": "[erased]"}',
        ),
        ('{"a": "paid 12345.600"}', '{"a": "[erased]"}'),
        ('{"a": "123-45-6789", "b": "123-45-678"}', '{"a": "[erased]", "b": "123-45-678"}'),
        ('{"a": "2026-01-02T03:04:05.5Z"}', '{"a": "[erased]"}'),
        ('{"a": "/find?q=%225+Main%20St%0aOslo%22&p=1", "b": "50 % + 1%2"}', '{"a": "[erased]", "b": "50 % + 1%2"}'),
        (
            r'{"a": "%7B%22b%22%3A%22C:%5C%5C%5C%5CEve%22%7D", "b": "%2522eve%2522"}',
            '{"a": "[erased]", "b": "%2522eve%2522"}',
        ),
        ('{"a": "?next=https%253A%252F%252Feve.no%252Fme", "b": "100%25"}', '{"a": "[erased]", "b": "100%25"}'),
        ("[" * 100_000 + r'"\"Eve\""', "[erased]"),
        (r'{"a": "another \n\u0041"}', r'{"a": "another \n\u0041"}'),
        (r"no JSON, and C:\nothing", r"no JSON, and C:\nothing"),
    ],
)
def test_values_are_found_in_a_context_however_they_are_written(text: str, cleaned: str) -> None:
    """With every escape of JSON, as a number with zeros, twice under one name; other texts stay as they are."""
    values = ["5 Main St\nOslo", '"Eve"', r"C:\Eve", "https://eve.no/me", "12345.60", "123-45-6789         "]
    values.append("2026-01-02 03:04:05.5+00")
    contexts = Contexts.of({7}, values)
    assert contexts.cleaned(7, text) == cleaned
    assert contexts.cleaned(7, cleaned) == cleaned
    assert contexts.cleaned(8, text) == text


@pytest.mark.parametrize(
    ("value", "text", "cleaned"),
    [
        (
            '{"n": 1, "mail": "eve@x.org"}',
            '{"app": {"doc": {"mail": "eve@x.org", "n": 1}}, "db": 2}',
            '{"app": {"doc": {"mail": "[erased]", "n": 1}}, "db": 2}',
        ),
        (
            '{"n": 1, "ok": true}',
            '{"app": {"doc": {"ok": true, "n": 1.0}, "n": 1}}',
            '{"app": {"doc": "[erased]", "n": 1}}',
        ),
        ('{"n": 1, "ok": true}', '{"ok": true, "n": 1}', '"[erased]"'),
        ('[1, {"a": [2]}]', '{"app": [[1, {"a": [2e0]}], 3]}', '{"app": ["[erased]", 3]}'),
        ("{1,2,NULL}", '{"app": [[1, 2, null], [1, 2]]}', '{"app": ["[erased]", [1, 2]]}'),
        ('{"tag, 1",{tag2}}', '{"app": ["tag, 1", "tag2", "tag3"]}', '{"app": ["[erased]", "[erased]", "tag3"]}'),
        (
            '(7,"Eve ""E"" Smith",Oslo)',
            '{"app": ["Eve \\"E\\" Smith", "Oslo", "Rome"]}',
            '{"app": ["[erased]", "[erased]", "Rome"]}',
        ),
        ('{"(7,\\"Eve Smith\\")"}', '{"app": "by Eve Smith"}', '{"app": "[erased]"}'),
        ("[2026-01-02,2026-02-03)", '{"app": ["2026-01-02", "2026-02-03"]}', '{"app": ["[erased]", "[erased]"]}'),
        ('"home"=>"Main St", "job"=>NULL', '{"app": "Main St 1"}', '{"app": "[erased]"}'),
        ("a, b", '{"app": ["xa, bx", "a"]}', '{"app": ["[erased]", "a"]}'),
        ('"a", "b"', '{"app": [["a", "b"], "b"], "db": 1}', '{"app": ["[erased]", "b"], "db": 1}'),
        (
            "user",
            '{"app": {"user_id": "bob", "a user": 1, "reason": "of a user"}}',
            '{"app": {"user_id": "bob", "[erased]": 1, "reason": "[erased]"}}',
        ),
        ("erase", '{"app": "erase it", "db": 1}', '{"app": "[erased]", "db": 1}'),
    ],
)
def test_documents_and_the_parts_of_a_value_are_found(value: str, text: str, cleaned: str) -> None:
    """As a whole in any order of its members, and each text in it; what spans several texts takes their list."""
    contexts = Contexts.of({7}, [value])
    assert contexts.cleaned(7, text) == cleaned
    assert contexts.cleaned(7, cleaned) == cleaned


@pytest.mark.parametrize(
    "begun",
    [
        "5 Main St\n",
        "5 Main St\\",
        "5 Ma",
        "\\xff35204d61696e",
        "5 Main St\\u000",
        "5 Main \udcc3",
        "5+Main%20S",
        "5 Main St%0",
    ],
)
def test_the_first_part_of_a_value_leaves_a_content_that_was_cut(begun: str) -> None:
    """Also if a character was cut, or an escape; the same end of a content that is whole stays."""
    contexts = Contexts.of({7}, ["5 Main St\nOslo"])
    is_hexadecimal = begun.startswith("\\x")
    cut = f"\\x{'0' * 65_536}{begun[2:]}" if is_hexadecimal else "x" * 65_536 + begun
    for end, left in (("", "[erased]"), ("3f", cut + "3f")):
        text, cleaned = (json.dumps({"a": each, "b": begun}, ensure_ascii=False) for each in (cut + end, left))
        assert contexts.cleaned(7, text) == cleaned


@pytest.mark.parametrize("depth", [300, 600, 980])
def test_a_context_is_json_whatever_its_depth(depth: int) -> None:
    """As every reader of `transactions` expects."""
    contexts = Contexts.of({7}, ["Eve Smith", "[1,2,3]"])
    for begin, end in (("[", "]"), ('{"a":', "}")):
        context = contexts.cleaned_context(7, f'{{"app": {begin * depth}"Eve Smith"{end * depth}}}')
        assert "Eve" not in context
        assert json.loads(context).keys() == {"app"}


def test_numbers_of_any_exponent_are_read() -> None:
    """In a context, which whoever may connect writes, and in a document of the row."""
    number = "1e99999999999999999999"
    contexts = Contexts.of({7}, [f'{{"a": {number}}}', number])
    for text in (f'{{"app": {{"b": {number}}}}}', f'{{"app": {{"a": {number}}}}}'):
        assert "e9999" not in contexts.cleaned_context(7, text)
    assert Contexts.of({7}, ['{"a": 1}']).cleaned(7, f'{{"a": {number}}}') == f'{{"a": {number}}}'


def test_a_value_leaves_the_prefix_of_a_message() -> None:
    """Except one that is read: a value may be a part of it."""
    contexts = Contexts.of({7}, {"Gertrude", "audit"})
    assert [contexts.cleaned_prefix(7, each) for each in ("of Gertrude", "auditlake:ddl", "auditlake", "x", None)] == [
        "[erased]",
        "auditlake:ddl",
        "auditlake",
        "x",
        None,
    ]
    assert contexts.cleaned_prefix(8, "Gertrude") == "Gertrude"


def test_random_contexts_keep_no_value() -> None:
    """Whatever is inside whatever: the rest is JSON, has no value in any reading, and is not cleaned once more."""
    for seed in random_seeds():
        chance = random.Random(seed)  # noqa: S311 - no secret
        values = [_value(chance) for _ in range(3)]
        contexts = Contexts.of({7}, values[:1])
        text = json.dumps({"app": _node(chance, values)}, ensure_ascii=chance.random() < 0.5)
        cleaned = contexts.cleaned_context(7, text)
        assert json.loads(cleaned).keys() == {"app"}
        assert contexts.cleaned_context(7, cleaned) == cleaned
        assert not any(values[0] in each.replace(REPLACED, "") for each in _texts(json.loads(cleaned)["app"])), text


_PARTS = ("a", "é", '"', "\\", "{", "}", "[", "]", "(", ")", ",", ":", "1", ".", "0", "e", "-", " ", "\n", "😀", "null")


def _value(chance: random.Random) -> str:
    """Return a value of at least four characters: any letters, a number, a document, an array or a row."""
    kinds = (
        lambda: "".join(chance.choices(_PARTS, k=chance.randint(4, 9))),
        lambda: chance.choice(["12345", "-0.50", "1234.50", "1e5000"]),
        lambda: json.dumps({name: chance.choice(["Eve S", 12345, None, [1, "xyzw"]]) for name in "ab"}),
        lambda: "{" + ",".join(chance.choices(["abcd", '"q, r"', "12", "NULL"], k=3)) + "}",
        lambda: "(" + ",".join(chance.choices(["abcd", '"q ""r"""', "12", ""], k=3)) + ")",
    )
    return chance.choice(kinds)()


def _node(chance: random.Random, values: list[str], depth: int = 0) -> object:
    kind = chance.randrange(10 if depth < 4 else 6)
    if kind < 2:
        return chance.choice(values)
    if kind < 6:
        return chance.choice([1, 2.5, "other", None, True, 12345, f"x{chance.choice(values)}y"])
    if kind == 6:
        text = json.dumps(_node(chance, values, depth + 2))
        return chance.choice([text, quote(text), quote_plus(quote(text))])
    inner = [_node(chance, values, depth + 1) for _ in range(chance.randint(0, 3))]
    return inner if kind < 8 else {chance.choice([*values, "k", "actor"]): each for each in inner}


def _texts(content: object) -> list[str]:
    """Return all texts in a content, those in texts of JSON included."""
    if isinstance(content, dict):
        return [each for pair in content.items() for part in pair for each in _texts(part)]
    if isinstance(content, list):
        return [each for part in content for each in _texts(part)]
    if not isinstance(content, str):
        return [json.dumps(content)]
    if (read := unquote_plus(content)) != content:
        return [content, *_texts(read)]
    try:
        inner = json.loads(content)
    except ValueError:
        return [content]
    return [content, *(_texts(inner) if isinstance(inner, str | list | dict) else [])]
