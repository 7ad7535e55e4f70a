"""Mask rules: what replaces the values of a column before anything is written, by patterns of `schema.table.column`.

    hash            HMAC-SHA-256 under the secret: text becomes 64 hexadecimal digits, bytea the 32 bytes, uuid another
                    uuid (the first 128 bits). Equal values stay equal, in all tables, so they can still be joined
    null            NULL
    truncate N      the first N characters
    keep_last N     the last N characters
    keep            the value itself: an exception to a later pattern, or a decision that a strict table requires

The first pattern that matches a column decides. NULL stays NULL under every rule. A rule keeps the type of its column,
so `hash` is for text, varchar, char, bytea and uuid (and domains over them), and `truncate` and `keep_last` are for
text, varchar and char. In a key only `hash` keeps rows apart.

A pattern is compared with the name as PostgreSQL has it, and as messages quote it. The secret is in no text of these
objects. Pure.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase

from auditlake.relation import TableName

BYTEA_OID, TEXT_OID, CHAR_OID, VARCHAR_OID, UUID_OID = 17, 25, 1042, 1043, 2950
_STRINGS = frozenset({TEXT_OID, CHAR_OID, VARCHAR_OID})
_HASHED = _STRINGS | {BYTEA_OID, UUID_OID}
_WITH_LENGTH = re.compile(r"(truncate|keep_last) +([1-9][0-9]{0,8})")
LEAST_SECRET_BYTES = 16


class MaskForm(StrEnum):
    """What a rule does with a value."""

    HASH = "hash"
    NULL = "null"
    TRUNCATE = "truncate"
    KEEP_LAST = "keep_last"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class Rule:
    """A form, and the number of characters that it leaves, if it is one that counts them."""

    form: MaskForm
    length: int = 0

    def __str__(self) -> str:
        return f"{self.form} {self.length}" if self.length else str(self.form)

    @property
    def masks(self) -> bool:
        """Return whether values change."""
        return self.form is not MaskForm.KEEP

    def problem(self, type_oid: int, *, key: bool) -> str | None:
        """Return why the rule cannot be applied to a column of this type; None if it can."""
        if self.form is MaskForm.HASH and type_oid not in _HASHED:
            return "hash is for text, varchar, char, bytea and uuid"
        if self.length and type_oid not in _STRINGS:
            return f"{self.form} is for text, varchar and char"
        if key and self.masks and self.form is not MaskForm.HASH:
            return f"{self.form} would make different keys equal, use hash"
        return None


NULL = Rule(MaskForm.NULL)


def parse_rule(text: str) -> Rule:
    """Parse a rule; raises ValueError."""
    words = " ".join(text.split())
    if found := _WITH_LENGTH.fullmatch(words):
        return Rule(MaskForm(found[1]), int(found[2]))
    if words in {MaskForm.HASH, MaskForm.NULL, MaskForm.KEEP}:
        return Rule(MaskForm(words))
    raise ValueError(f"has the rule {text!r}, need hash, null, truncate N, keep_last N or keep")


def matches_column(pattern: str, table: TableName, column: str) -> bool:
    """Return whether a pattern of `schema.table.column` matches."""
    return any(
        fnmatchcase(f"{spelling}.{column}", pattern) for spelling in (f"{table.schema}.{table.table}", str(table))
    )


def matches_table(pattern: str, table: TableName) -> bool:
    """Return whether a pattern of `schema.table` matches, or is the name itself, whatever characters that has."""
    spellings = (f"{table.schema}.{table.table}", str(table))
    return pattern in spellings or any(fnmatchcase(spelling, pattern) for spelling in spellings)


@dataclass(frozen=True, slots=True)
class Masking:
    """The rules of the settings, in their order, the tables in which every column needs one, and the secret."""

    rules: tuple[tuple[str, Rule], ...] = ()
    strict: tuple[str, ...] = ()
    secret: bytes | None = field(default=None, repr=False)

    def __bool__(self) -> bool:
        return bool(self.rules or self.strict)

    def rule_of(self, table: TableName, column: str) -> Rule | None:
        """Return the rule of a column by one name; None without one."""
        return next((rule for pattern, rule in self.rules if matches_column(pattern, table, column)), None)

    def find(self, tables: Iterable[TableName], columns: Sequence[str]) -> Rule | None:
        """Return the rule of a column with these names, in a table with these: the first that masks, else `keep`."""
        found = [rule for table in tables for column in columns if (rule := self.rule_of(table, column)) is not None]
        return next((rule for rule in found if rule.masks), found[0] if found else None)

    def is_strict(self, tables: Iterable[TableName]) -> bool:
        """Return whether every column of a table with these names needs a rule."""
        return any(matches_table(pattern, table) for table in tables for pattern in self.strict)

    def unmatched(self, columns: Mapping[TableName, Iterable[str]]) -> list[str]:
        """Return the patterns that match none of these columns, or of these tables."""
        named = [(table, column) for table, names in columns.items() for column in names]
        rules = [p for p, _ in self.rules if not any(matches_column(p, *each) for each in named)]
        return [*rules, *(p for p in self.strict if not any(matches_table(p, table) for table in columns))]
