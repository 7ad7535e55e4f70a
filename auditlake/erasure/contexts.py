r"""Find values of PostgreSQL's text in contexts and other messages, and take them out.

Contexts are texts of applications, so a value is looked for in every form in which one writes it:

    notation       a `char(n)` without its trailing blanks, a number in any notation, a time with T, or without offset
    escapes        those of JSON, also several times: a context that is no strict JSON is recorded as a string of JSON,
                   which escapes its escapes once more, and JSON can be a text in JSON; those of a URL, also of a form's
                   fields, where a blank is a plus sign
    hexadecimal    content that is no text is recorded as `\x…` (`pgoutput.attribution`)
    parts          the texts in a document, an array, a row, a range or an hstore, and a whole document in another order
    cut            a long content is recorded up to a length, which may leave the first part of a value at its end

A text with a value becomes `[erased]`, as does a name of a member, unless it is one that is read (`actor`); so does a
text with more escapes of escapes than `_MOST_LEVELS`, which nobody writes. Values of fewer than four characters are not
looked for: they are everywhere. All else of a content stays, every digit included.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from secrets import token_hex
from typing import Any
from urllib.parse import unquote

from auditlake.pgoutput.attribution import PREFIXES, READ_MEMBERS
from auditlake.pgoutput.ddl_message import PREFIX as DDL_PREFIX
from auditlake.values.exact_text import array_elements

REPLACED = "[erased]"
"""Written in place of a text in a context."""
_LEAST_TEXT = 4
_CUT_LENGTH = 65_536
"""Content may be cut from this length on."""
_MOST_LEVELS = 16
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,4})?")
_TIME = re.compile("([0-9]{4,}-[0-9]{2}-[0-9]{2}) ([0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.][0-9]+)?)(?:[+-][0-9:]+)?")
_MOST_DIGITS = 400
_READ = PREFIXES | {DDL_PREFIX}
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", **{each: each for each in '"\\/'}}
_ESCAPE = re.compile(r"\\(?:u(?P<hex>[0-9A-Fa-f]{4})|(?P<one>[bfnrt\"\\/]))")
_CUT_CHARACTER = re.compile(r"(?:\\(?:u[0-9A-Fa-f]{0,3})?|%[0-9A-Fa-f]?|[\udc80-\udcff\ufffd]+)\Z")
_HEXADECIMAL = re.compile(rf"\\x((?:[0-9a-f]{{2}}){{{_LEAST_TEXT},}})")
_PART = re.compile(r'"((?:[^"\\]|\\.|"")*)"|([^\s,{}()\[\]"=>][^,{}()\[\]"]*)', re.DOTALL)
_QUOTED = re.compile(r'\\(.)|"(")', re.DOTALL)
_BRACKETS = ("{}", "()", "[]", "[)", "(]")
_MARK = token_hex(16)
"""In a content that was read, of what JSON cannot say to Python; no content knows it."""
_MARKED = re.compile(rf'"{_MARK}([^"]*)"|{_MARK}[0-9]+')
_IN_PLACE = re.compile(rf'{re.escape(REPLACED)}|"(?:{"|".join(sorted(READ_MEMBERS))})": ')
"""What may be in a text that was cleaned."""
_LONE_SURROGATE = re.compile("[\ud800-\udc7f\udd00-\udfff]")


def _written_forms(text: str) -> Iterator[str]:
    """Yield the forms in which an application writes a value of PostgreSQL's text: also several times the same.

    A `char(n)` without its trailing blanks, a number without zeros at its end, a time with T and without its offset.
    """
    bare = text.rstrip(" ")
    yield from (text, bare)
    if _NUMBER.fullmatch(bare):
        yield _plain(bare)
    if found := _TIME.fullmatch(bare):
        yield from (f"{found[1]} {found[2]}", f"{found[1]}T{found[2]}")


def _parts(text: str) -> Iterator[str]:
    """Yield a value of PostgreSQL's text, and the texts in it."""
    yield text
    content = _document(text)
    if content is not None:
        for leaf in _leaves(content):
            yield from _parts(leaf)
    elif text[:1] + text[-1:] in _BRACKETS or '"=>' in text:
        for quoted, plain in _PART.findall(text[text[:1] != '"' :]):
            yield from _parts(_QUOTED.sub(r"\1\2", quoted)) if quoted else (plain,)


def _document(text: str) -> dict[str, Any] | list[Any] | None:
    """Return a text that is an object or a list of JSON, its numbers as texts; an array of PostgreSQL as a list."""
    if text[:1] not in ("{", "["):
        return None
    try:
        content = json.loads(text, parse_int=_plain, parse_float=_plain)
    except (ValueError, RecursionError):
        elements = array_elements(text) if text.endswith("}") else None
        return elements and [each and (_plain(each) if _NUMBER.fullmatch(each) else each) for each in elements]
    return content if isinstance(content, dict | list) else None


def _leaves(content: object) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict | list):
        for each in content.values() if isinstance(content, dict) else content:
            yield from _leaves(each)


def _canonical(content: object) -> str:
    """Return JSON with sorted members and plain numbers, which are as texts."""
    return json.dumps(json.loads(_json_text(content), parse_int=_plain, parse_float=_plain), sort_keys=True)


def _plain(number: str) -> str:
    """Return a number without an exponent and without zeros at its end; as it is if it has hundreds of digits."""
    if not _NUMBER.fullmatch(number):  # an exponent that Decimal may not have
        return number
    read = Decimal(number)
    return number if abs(read.adjusted()) > _MOST_DIGITS else format(read.normalize(_EXACT), "f")


@dataclass(frozen=True, slots=True)
class _Sought:
    """The values that are looked for, in all their notations, by start and length; documents and arrays as a whole.

    A row may have had a million values, and as many contexts, from whoever may write it: the time to look is that of
    the text, for each length that values with one start have.
    """

    values: Mapping[str, Mapping[int, Container[str]]] = field(default_factory=dict)
    ordered: Sequence[str] = ()
    longest: int = 0
    documents: frozenset[str] = frozenset()

    @classmethod
    def of(cls, values: Iterable[str]) -> "_Sought":
        every = {value for value in values if len(value) >= _LEAST_TEXT}
        parts = {part for value in every for part in _parts(value)}
        forms = sorted({form for part in parts for form in _written_forms(part) if len(form) >= _LEAST_TEXT})
        found = dict[str, dict[int, set[str]]]()
        for form in forms:
            found.setdefault(form[:_LEAST_TEXT], {}).setdefault(len(form), set()).add(form)
        whole = (content for content in map(_document, every) if content is not None)
        return cls(found, forms, max(map(len, forms), default=0), frozenset(map(_canonical, whole)))

    def is_in(self, text: str) -> bool:
        """Return whether a text has a value, or its last part may be the first one of a value."""
        return self._is_in(text, is_cut=len(text) >= _CUT_LENGTH)

    def _is_in(self, text: str, *, is_cut: bool) -> bool:
        for level, readings in enumerate(_readings(text)):
            if level == _MOST_LEVELS or any(self._is_read(each, is_cut=is_cut) for each in readings):
                return True
        return False

    def _is_read(self, text: str, *, is_cut: bool) -> bool:
        """Return whether a text has a value as it is, or in the digits of a content that is no text."""
        if self._has(text) or (is_cut and self._is_begun(text)):
            return True
        return any(self._is_in(_decoded(digits), is_cut=is_cut) for digits in _HEXADECIMAL.findall(text))

    def _has(self, text: str) -> bool:
        text = "\n".join((text, *map(_plain, _NUMBER.findall(text))))
        places = ((at, self.values.get(text[at : at + _LEAST_TEXT])) for at in range(len(text) - _LEAST_TEXT + 1))
        return any(
            text[at : at + length] in values for at, lengths in places if lengths for length, values in lengths.items()
        )

    def _is_begun(self, text: str) -> bool:
        end = _CUT_CHARACTER.sub("", text)[-self.longest :]
        starts = (at for at in range(len(end) - _LEAST_TEXT + 1) if end[at : at + _LEAST_TEXT] in self.values)
        return any(self._begins(end[at:]) for at in starts)

    def _begins(self, text: str) -> bool:
        place = bisect_left(self.ordered, text)
        return place < len(self.ordered) and self.ordered[place].startswith(text)


def _readings(text: str) -> Iterator[set[str]]:
    """Yield a text as it is, then with its escapes of JSON and of URLs read again and again, until it has none."""
    yield {text}
    before = None
    while text != before:
        read = _unescaped(text)
        before, text = text, unquote(read)
        if found := {read, text, unquote(read.replace("+", " "))} - {before}:
            yield found


def _unescaped(text: str) -> str:
    """Return a text with its escapes of JSON read, whatever form it has."""
    read = _ESCAPE.sub(lambda match: chr(int(match["hex"], 16)) if match["hex"] else _ESCAPES[match["one"]], text)
    return read.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _decoded(digits: str) -> str:
    return bytes.fromhex(digits).decode(errors="ignore")


@dataclass(slots=True)
class _Cleaning:
    """One JSON text, read without the values; `found`: it had some."""

    sought: _Sought
    found: bool = False

    def read(self, text: str) -> object:
        """Return the content. Raises ValueError if it is no JSON, RecursionError if it is nested too deep."""
        number = self._number
        content = self._of(json.loads(text, object_pairs_hook=self._members, parse_int=number, parse_float=number))
        if not self._has_some(content):
            return content
        self.found = True
        if isinstance(content, dict):
            return {name: self._without(value) for name, value in content.items()}
        return self._without(content)

    def _has_some(self, content: object) -> bool:
        """Return whether a value is in the text of several parts of the content together."""
        return self.sought.is_in(_IN_PLACE.sub("", _json_text(content)))

    def _without(self, content: object) -> object:
        """Replace the innermost lists and objects whose text has a value."""
        if isinstance(content, list):
            content = [self._without(each) for each in content]
        elif isinstance(content, dict):
            content = {name: self._without(value) for name, value in content.items()}
        return REPLACED if self._has_some(content) else content

    def _members(self, pairs: Sequence[tuple[str, object]]) -> object:
        """Clean an object; members with one name are told apart by a mark."""
        found = dict[str, object]()
        for name, value in pairs:
            cleaned = name if name in READ_MEMBERS else self._text(name)
            if cleaned in found:
                cleaned += f" {len(found)}" if cleaned != name else f"{_MARK}{len(found)}"
            found[cleaned] = self._of(value)
        return self._whole(found)

    def _whole(self, content: object) -> object:
        if not self.sought.documents or _canonical(content) not in self.sought.documents:
            return content
        self.found = True
        return REPLACED

    def _number(self, text: str) -> str:
        """Keep a number with its digits, as a marked text."""
        return f"{_MARK}{text}" if self._text(text) == text else REPLACED

    def _of(self, content: object) -> object:
        if isinstance(content, list):
            return self._whole([self._of(each) for each in content])
        if isinstance(content, dict) or (isinstance(content, str) and content.startswith(_MARK)):
            return content  # cleaned when it was read
        text = content if isinstance(content, str) else json.dumps(content)
        return content if self._text(text) == text else REPLACED

    def _text(self, text: str) -> str:
        if not self.sought.is_in(text):
            return text
        self.found = True
        return REPLACED


@dataclass(frozen=True, slots=True)
class Contexts:
    """The values that messages of these commits must not contain, as contexts, which are JSON, or in their prefix."""

    lsns: frozenset[int] = frozenset()
    sought: _Sought = field(default_factory=_Sought)

    @classmethod
    def of(cls, lsns: Iterable[int], values: Iterable[str]) -> "Contexts":
        """Look for values of PostgreSQL's text in these commits, in every form that an application writes."""
        return cls(frozenset(lsns), _Sought.of(values))

    def cleaned(self, lsn: int, text: str) -> str:
        """Return a context, or another message, of a commit without the values; unchanged if it has none."""
        if lsn not in self.lsns or not self.sought.ordered:
            return text
        cleaning = _Cleaning(self.sought)
        try:
            content = cleaning.read(text)
        except (ValueError, RecursionError):
            return REPLACED if self.sought.is_in(text) else text
        return _json_text(content) if cleaning.found else text

    def cleaned_context(self, lsn: int, text: str) -> str:
        """Return a context of `transactions`, as `cleaned`: always JSON."""
        cleaned = self.cleaned(lsn, text)
        return json.dumps({"app": REPLACED}) if cleaned == REPLACED else cleaned

    def cleaned_prefix(self, lsn: int, prefix: str | None) -> str | None:
        """Return the prefix of a message, without the values; one of those that are read stays."""
        if prefix is None or lsn not in self.lsns or prefix in _READ or not self.sought.is_in(prefix):
            return prefix
        return REPLACED


def _json_text(content: object) -> str:
    """Format JSON with every digit and character as it is, except those that no encoding has."""
    text = _LONE_SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(content, ensure_ascii=False))
    return _MARKED.sub(lambda found: found[1] or "", text)
