"""The SQL of PostgreSQL's own tests: files of the regression suite, and statements of the subscription suite.

The regression suite is SQL for psql. The subscription suite is Perl; what it sends to its publishers is taken from the
calls of `safe_psql`, whose arguments are strings, variables that were assigned strings, or both concatenated.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

_CALL = re.compile(r"\$node_(?:publisher|pub|pub_sub|A|twoways)->safe_psql\(\s*'postgres',\s*")
_SUB = re.compile(r"(?ms)^sub (\w+)\s*\{(.*?)^\}")
_ASSIGNED = re.compile(r"\$(\w+)\s*=\s*(?=[\"']|qq?\b)")
_QUOTED = re.compile(r"(qq|q)\s*([({\[|/])|([\"'])")
_CLOSING = {"(": ")", "{": "}", "[": "]"}
_VARIABLE = re.compile(r"(?<!\\)\$(\w+)")
_ESCAPED = re.compile(r"\\([$@\"\\])")
_LEFT_OUT = re.compile(r"(?is)\b(create|alter|drop)\s+(publication|subscription|system)\b[^;]*(;|$)")

_OPENING = re.compile(r"--|'|\$[a-z_]*\$", re.IGNORECASE)
_COPIES_IN = re.compile(r"(?i)copy\b.*\bfrom\s+stdin\b")
_SENDS = re.compile(r"\\(g\w*|crosstabview|watch|parse|bind\w*|sendpipeline)\b")
_BEGINS = re.compile(r"(?i)(begin|start\s+transaction)\b")
_ENDS = re.compile(r"(?i)(commit|end|abort|prepare\s+transaction|rollback)\b(?!\s+(work\s+)?(to|prepared)\b)")
_CREATES = re.compile(r"(?i)create\s+(unlogged\s+)?table\b")
_MAKES_MORE = re.compile(r"(?i)(create|comment|grant|alter\s+table\s+\S+\s+(attach|replica))\b")


def scheduled(suite: Path) -> list[Path]:
    """Return the SQL files of the regression suite in the order of its schedule."""
    lines = (suite / "parallel_schedule").read_text().splitlines()
    names = [name for line in lines if line.startswith("test:") for name in line.split()[1:]]
    return [path for name in names if (path := suite / "sql" / f"{name}.sql").exists()]


def sent_to_publishers(suite: Path, folder: Path) -> Iterator[Path]:
    """Write what each test of the subscription suite sends to its publishers as a file of SQL, in a schema of its own.

    Statements about publications are left out, because the lake has its own, and settings of the server: a commit would
    wait for a synchronous subscriber.
    """
    for test in sorted((suite / "t").glob("*.pl")):
        schema = f"s{test.stem[:3]}"
        path = folder / f"{test.stem}.sql"
        kept = [_LEFT_OUT.sub("", sent).strip().rstrip(";") for sent in statements(test.read_text())]
        lines = [f"create schema {schema}", f"set search_path = {schema}, public", *filter(None, kept)]
        path.write_text("".join(f"{line};\n" for line in lines))
        yield path


def statements(perl: str) -> Iterator[str]:
    """Return what a test sends to its publishers; not what depends on values of its run."""
    assigned: dict[str, str | None] = {}
    perl = _inlined(perl)
    for found in sorted([*_ASSIGNED.finditer(perl), *_CALL.finditer(perl)], key=lambda match: match.start()):
        text = _concatenated(perl, found.end(), assigned)
        if found.re is _ASSIGNED:
            assigned[found[1]] = text
        elif text is not None:
            yield text


def _inlined(perl: str) -> str:
    """Put the bodies of functions where they are called; they are defined before the tables that they need exist."""
    text = _SUB.sub("", perl)
    for name, body in _SUB.findall(perl):
        text = re.compile(rf"(?ms)^\s*{name}\(.*?\);").sub(body.replace("\\", r"\\"), text)
    return text


def _concatenated(perl: str, at: int, assigned: Mapping[str, str | None]) -> str | None:
    """Return the strings and variables that begin at a place, joined by dots; None if one is unknown."""
    parts: list[str | None] = []
    while True:
        if quoted := _QUOTED.match(perl, at):
            text, at = _string(perl, quoted)
            parts.append(_interpolated(text, assigned) if quoted[1] == "qq" or quoted[3] == '"' else text)
        elif variable := _VARIABLE.match(perl, at):
            parts.append(assigned.get(variable[1]))
            at = variable.end()
        else:
            return None
        following = re.compile(r"\s*\.\s*").match(perl, at)
        if following is None:
            return None if None in parts else "".join(part or "" for part in parts)
        at = following.end()


def _string(perl: str, quoted: re.Match[str]) -> tuple[str, int]:
    """Return the text of a string and the place behind it; brackets that delimit it may be nested in it."""
    opening = quoted[2] or quoted[3]
    closing, depth, at = _CLOSING.get(opening, opening), 1, quoted.end()
    while depth:
        if perl[at] == "\\":
            at += 1
        elif perl[at] == closing:
            depth -= 1
        elif perl[at] == opening:
            depth += 1
        at += 1
    return perl[quoted.end() : at - 1], at


def _interpolated(text: str, assigned: Mapping[str, str | None]) -> str | None:
    """Replace variables and escapes; None if a variable is unknown."""
    if any(assigned.get(name) is None for name in _VARIABLE.findall(text)):
        return None
    replaced = _VARIABLE.sub(lambda found: assigned[found[1]] or "", text)
    return _ESCAPED.sub(r"\1", replaced)


def with_pauses(text: str, pause: str, limit: int) -> str:
    """Insert a line wherever tables were created and committed, before the next statement that is not of that kind.

    `limit` is the number of pauses, of which the first ones are taken.
    """
    lines, place, pending = [], _Place(), False
    for line in text.splitlines(keepends=True):
        begins = place.between_statements and line.strip() and not line.lstrip().startswith(("--", "\\"))
        if begins and pending and limit and not place.in_transaction and not _MAKES_MORE.match(line.lstrip()):
            lines.append(f"{pause}\n")
            pending, limit = False, limit - 1
        pending = pending or bool(begins and _CREATES.match(line.lstrip()))
        place.advance(line)
        lines.append(line)
    return "".join(lines)


class _Place:
    """Whether a place in a file is inside a statement, a quoted text, rows of COPY or a transaction."""

    def __init__(self) -> None:
        self.in_transaction = False
        self._in_statement = self._copies = False
        self._quote: str | None = None

    @property
    def between_statements(self) -> bool:
        """Whether a statement may begin here."""
        return not (self._in_statement or self._quote or self._copies)

    def advance(self, line: str) -> None:
        """Go behind a line."""
        bare = line.strip()
        if self._copies:
            self._copies = bare != "\\."
            return
        if self.between_statements:
            if not bare or bare.startswith(("--", "\\")):
                return
            self.in_transaction = bool(_BEGINS.match(bare)) or (self.in_transaction and not _ENDS.match(bare))
        code = self._unquoted(line)
        self._copies = self._quote is None and bool(_COPIES_IN.match(bare)) and code.endswith(";")
        self._in_statement = not (code.endswith(";") or bool(_SENDS.search(code)))

    def _unquoted(self, line: str) -> str:
        """Return the line without comment and quoted texts, and remember an open quote."""
        rest, outside = line, ""
        while rest:
            if self._quote:
                _, found, rest = rest.partition(self._quote)
                self._quote = None if found else self._quote
                continue
            opening = _OPENING.search(rest)
            outside += rest[: opening.start()] if opening else rest
            if opening is None or opening[0] == "--":
                break
            self._quote, rest = opening[0], rest[opening.end() :]
        return outside.strip()
