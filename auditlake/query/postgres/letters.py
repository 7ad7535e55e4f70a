"""Upper and lower case of Unicode 16, which PostgreSQL 18 has, by DuckDB's functions, which have Unicode 15. Pure.

Authority: www.unicode.org/Public/16.0.0/ucd/UnicodeData.txt; postgresql.org/docs/18/locale.html, the locale C.UTF-8
"""

_CAPITAL = "".join(map(chr, (0x1C89, 0xA7CB, 0xA7CC, 0xA7DA, 0xA7DC, *range(0x10D50, 0x10D66))))
_SMALL = "".join(map(chr, (0x1C8A, 0x0264, 0xA7CD, 0xA7DB, 0x019B, *range(0x10D70, 0x10D86))))
"""Letters whose other case is new in Unicode 16."""
_TO_SMALL = str.maketrans(_CAPITAL, _SMALL)
_TO_CAPITAL = str.maketrans(_SMALL, _CAPITAL)


def _form(function: str, whole: str, given: str, to: str) -> str:
    """Return a function; `translate` takes ten times as long, so texts of ASCII do without it."""
    return (
        f"case when strlen({{0}}) = length({{0}}) then {function}({{0}}) else translate({whole}, '{given}', '{to}') end"
    )


LOWER = _form("lower", "lower({0})", _CAPITAL, _SMALL)
UPPER = _form("upper", "replace(replace(upper(replace({0}, 'ẞ', chr(0))), 'ẞ', 'ß'), chr(0), 'ẞ')", _SMALL, _CAPITAL)
"""DuckDB's makes a capital of ß, which PostgreSQL does not."""


def small(character: str) -> str:
    """Return a character in lower case, which is one character."""
    return character.translate(_TO_SMALL).lower()[0]


def capital(character: str) -> str:
    """Return a character in upper case; itself if that is more than one character.

    Greek letters with an iota below become one character or two, as one asks for a title or for capitals.
    """
    given = character.translate(_TO_CAPITAL)
    return next((found for found in (given.upper(), given.title()) if len(found) == 1), character)
