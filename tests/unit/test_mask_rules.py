"""Rules of masks: what they do with values, which column they belong to, and that no text of them has the secret."""

import hmac
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest

from auditlake.errors import ConfigError
from auditlake.lake.layout import Lake
from auditlake.lake.masks import CatalogEntries, Masks, settle
from auditlake.lsn import Lsn
from auditlake.pgoutput.ddl_message import without_missing_values
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from auditlake.settings.mask_rules import Masking, parse_rule
from auditlake.values.masks import WITHHELD, ColumnMask, hmac_sha256, secret_fingerprint
from tests.s3_server import chosen_lake

SECRET = b"0123456789abcdef"
TEXT, CHAR, BYTEA, UUID_OID = 25, 1042, 17, 2950
PEOPLE = TableName("public", "people")


@pytest.mark.parametrize("secret", [b"k", b"x" * 64, b"x" * 65, b"x" * 200])
def test_the_hash_is_hmac_sha_256(secret: bytes) -> None:
    """As in the standard library, for keys up to a block of SHA-256, and longer ones."""
    ours = hmac_sha256(secret)
    for message in (b"", b"a", "ä".encode() * 100):
        assert ours(message) == hmac.digest(secret, message, "sha256")


@pytest.mark.parametrize(
    ("rule", "type_oid", "values", "masked"),
    [
        ("null", 23, ["1", None], [None, None]),
        ("keep", TEXT, ["a", None], ["a", None]),
        ("truncate 2", TEXT, ["", "ä", "äöü", None, "a😀b"], ["", "ä", "äö", None, "a😀"]),
        ("keep_last 2", TEXT, ["", "ä", "äöü", None, "a😀b"], ["", "ä", "öü", None, "😀b"]),
        ("truncate 2", CHAR, ["abc  ", "a    "], ["ab   ", "a    "]),
        ("keep_last 2", CHAR, ["abc  ", "a    "], ["bc   ", "a    "]),
    ],
)
def test_values_under_a_rule(rule: str, type_oid: int, values: list[str | None], masked: list[str | None]) -> None:
    """Characters are counted, NULL stays NULL, and char(n) stays padded."""
    mask = ColumnMask(parse_rule(rule), type_oid, SECRET)
    assert mask.texts(pa.array(values, pa.string())).to_pylist() == masked


def test_a_hash_keeps_the_type() -> None:
    """Text in a char(n) equals that in a text; a bytea has the same bytes from copy and stream; a uuid is one."""
    text = hmac.digest(SECRET, b"abc", "sha256").hex()
    rule = parse_rule("hash")
    assert ColumnMask(rule, TEXT, SECRET).text("abc") == ColumnMask(rule, CHAR, SECRET).text("abc  ") == text
    raw = hmac.digest(SECRET, b"\x00\xff", "sha256")
    assert ColumnMask(rule, BYTEA, SECRET).text("\\x00ff") == f"\\x{raw.hex()}"
    assert ColumnMask(rule, BYTEA, SECRET).typed(pa.array([b"\x00\xff", None])).to_pylist() == [raw, None]
    value = "6f9619ff-8b86-d011-b42d-00c04fc964ff"
    masked = ColumnMask(rule, UUID_OID, SECRET).text(value)
    assert masked == str(UUID(bytes=hmac.digest(SECRET, value.encode(), "sha256")[:16]))


def test_the_secret_is_in_no_text() -> None:
    """Neither of the rules, nor of the mask of a column that a worker gets, nor in the fingerprint."""
    rules = Masking((("public.*.*", parse_rule("hash")),), (), SECRET)
    for text in (repr(rules), repr(ColumnMask(parse_rule("hash"), TEXT, SECRET)), secret_fingerprint(SECRET)):
        assert SECRET.decode() not in text
        assert SECRET.hex() not in text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"relations": 5}',
        b'{"relations": ["x"]}',
        b'{"relations": [{"columns": [1]}]}',
        b'{"relations": [{"columns": [{}]}]}',
        b'{"relations": ' + b"[" * 100_000,
        b'{"tag": ' + b"[" * 900 + b"]" * 900 + b"}",
    ],
)
def test_a_message_of_another_form_stays_as_it_is(content: bytes) -> None:
    """Any role may send one with this prefix: nothing is raised, and nothing but missing values changes."""
    found = without_missing_values(content)
    assert found == content or json.loads(found) == json.loads(content)


def test_missing_values_are_removed_from_a_message() -> None:
    """Also beside text that UTF-8 cannot represent."""
    content = b"3 " + b"0" * 64 + b' {"tag": "\\ud800", "relations": [{"oid": 1, "columns": [[1, "a", "{clear}"]]}]}'
    found = without_missing_values(content)
    assert b"clear" not in found
    assert (found[:67], json.loads(found[67:])["tag"]) == (content[:67], "\ud800")


def relation(*columns: tuple[int | None, str], oid: int = 1, name: TableName = PEOPLE) -> Relation:
    """Return a table of text columns, the first of which is its key."""
    made = [Column(each, TEXT, -1, at == 0, attnum=attnum) for at, (attnum, each) in enumerate(columns)]
    return Relation(oid, name, ReplicaIdentity.DEFAULT, tuple(made))


def opened(lake: Lake, *rules: tuple[str, str], strict: tuple[str, ...] = ()) -> Masks:
    """Record rules, and open them as another process does."""
    masking = Masking(tuple((pattern, parse_rule(rule)) for pattern, rule in rules), strict, SECRET)
    settle(lake, masking)
    return Masks(lake, masking)


HASH = ("public.people.email", "hash")


def test_a_rule_follows_its_column(tmp_path: Path) -> None:
    """Under another name, in a renamed table, after a restart, and after it was dropped and added again."""
    lake = chosen_lake(tmp_path)
    assert list(opened(lake, HASH).of(relation((1, "id"), (2, "email"))).columns) == ["email"]
    renamed = relation((1, "id"), (2, "mail"), name=TableName("public", "persons"))
    for shown in (renamed, relation((1, "id"), (7, "mail"))):
        found = opened(lake, HASH).of(shown)
        assert (list(found.columns), found.problems) == (["mail"], ())
    again = relation((1, "id"), (2, "mail"), oid=2, name=TableName("public", "persons"))
    assert list(opened(lake, HASH).of(again).columns) == ["mail"]


def withheld(masks: Masks, shown: Relation) -> list[str]:
    """Return the columns that are withheld; each is a problem, or all of them are one."""
    found = masks.of(shown)
    names = [name for name, mask in found.columns.items() if mask is WITHHELD]
    assert len(found.problems) in ({1, len(names)} if names else {0})
    return names


@pytest.mark.parametrize("names", [("email",), ("letter",), ("note",), ("note", "email")])
def test_of_an_unknown_message_nothing_is_recorded(tmp_path: Path, names: tuple[str, ...]) -> None:
    """Without attribute numbers any column may be the masked one, also under the name of another."""
    lake = chosen_lake(tmp_path)
    opened(lake, HASH).of(relation((1, "id"), (2, "email"), (3, "note")))
    assert withheld(opened(lake, HASH), relation((None, "id"), *((None, name) for name in names))) == ["id", *names]


def test_what_processes_record_at_the_same_time_is_all_in_the_record(tmp_path: Path) -> None:
    """Capture goes on while a resync records the masks of its copies: a suspect of either is withheld."""
    lake, shown = chosen_lake(tmp_path), relation((1, "id"), *((each, f"c{each}") for each in range(10, 50)))
    opened(lake, HASH).of(relation((1, "id"), (2, "email")))
    processes = [opened(lake, HASH) for _ in range(4)]
    with ThreadPoolExecutor(len(processes)) as threads:
        for one in [
            threads.submit(masks.doubt, relation((None, "id"), (None, "email")), [{1}, {number}])
            for at, masks in enumerate(processes)
            for number in range(10 + 10 * at, 20 + 10 * at)
        ]:
            one.result()
    assert withheld(opened(lake, HASH), shown) == [f"c{each}" for each in range(10, 50)]


def test_a_column_that_may_have_had_a_masked_name_is_withheld_until_a_copy(tmp_path: Path) -> None:
    """Whatever its name; a copy takes it if it has a rule, and columns after that are new ones."""
    lake, keep = chosen_lake(tmp_path), ("public.people.letter", "keep")
    masks, unknown = opened(lake, HASH), relation((None, "id"), (None, "email"))
    assert masks.of(relation((1, "id"), (2, "email"))).problems == ()
    assert withheld(masks, unknown) == ["id", "email"]
    masks.doubt(unknown, [{1}, {2, 4, 5}])
    last = relation((1, "id"), (4, "letter"), (5, "email"))
    for _ in range(2):
        assert withheld(opened(lake, HASH), last) == ["letter", "email"]
        assert withheld(opened(lake, HASH), relation((1, "id"), (2, "post"))) == []
        assert [name for name in opened(lake, HASH).of(last, copied=True).problems if "letter" in name]
    ruled = opened(lake, HASH, keep)
    assert withheld(ruled, last) == ["letter", "email"]
    assert not ruled.of(last, copied=True).problems
    assert list(ruled.of(last).columns) == ["email"]
    assert withheld(ruled, relation((1, "id"), (4, "letter"), (5, "email"), (6, "note"))) == []
    assert withheld(ruled, unknown) == ["id", "email"]
    ruled.doubt(unknown, [{1}, {5, 7}])
    assert withheld(ruled, relation((1, "id"), (5, "post"), (7, "late"))) == ["late"]


def test_a_message_is_admitted_if_every_column_that_it_may_have_is_masked_alike(tmp_path: Path) -> None:
    """Else its values are withheld. Another column that may have had a masked name in it is a suspect."""
    masks = opened(chosen_lake(tmp_path), HASH, ("public.people.phone", "keep_last 4"))
    masks.of(relation((1, "id"), (2, "email"), (3, "phone"), (4, "note")))
    assert masks.admit(relation((1, "id"), (5, "late")), [{1}, {4, 5}], named=False) == (1, 5)
    for ways in ({2, 5}, {2, 3}, {3, 5}):
        assert masks.admit(relation((1, "id"), (max(ways), "late")), [{1}, ways], named=False) is None
    assert masks.admit(relation((1, "id"), (3, "late")), [{1}, {2}], named=False) == (1, 2)
    assert masks.admit(relation((1, "id"), (3, "late")), [{1}, {2}], named=True) is None
    assert list(masks.certain(1)) == [1, 2]
    assert withheld(masks, relation((1, "id"), (6, "other"))) == []
    assert masks.admit(relation((1, "id"), (7, "email")), [{1}, {2, 6, 7, 8}], named=False) == (1, 7)
    assert withheld(masks, relation((1, "id"), (6, "other"), (8, "next"))) == ["other", "next"]


def test_entries_that_were_read_before_a_message_tell_its_names(tmp_path: Path) -> None:
    """Those read after it do for later ones; a copy begins anew."""
    lake = chosen_lake(tmp_path)
    opened(lake, HASH).of(relation((1, "id"), (2, "email")))

    def kept(at: int, read_at: int, *xmins: str) -> set[int]:
        now = CatalogEntries(Lsn(read_at), dict(enumerate(xmins, 1)))
        return set(opened(lake, HASH).kept(1, Lsn(at), now))

    assert kept(100, 110, "7", "7") == set()
    assert kept(105, 115, "7", "8") == set()  # of the backlog: the entries of 110 are not those of before
    assert kept(110, 120, "7", "8", "8") == {1}
    assert kept(119, 130, "7", "9") == {1}
    assert kept(120, 140, "7", "8", "8") == {1, 2, 3}
    opened(lake, HASH).of(relation((1, "id"), (2, "email")), copied=True)
    assert kept(150, 160, "7", "8") == set()


def test_a_column_that_lost_a_masked_name_again_stays_masked(tmp_path: Path) -> None:
    """The value that it got under that name is in its rows; until a copy its table is parked."""
    lake = chosen_lake(tmp_path)
    masks, note = opened(lake, HASH), relation((1, "id"), (2, "note"))
    for shown in (note, relation((1, "id"), (2, "email")), note, note):
        found = masks.of(shown)
    assert (list(found.columns), len(found.problems)) == (["note"], 1)
    assert opened(lake, HASH).of(note).problems == found.problems
    assert list(opened(lake, HASH).of(note, copied=True).columns) == ["note"]
    assert opened(lake, HASH).of(note).problems == ()


def test_an_unknown_message_before_the_first_masked_column(tmp_path: Path) -> None:
    """Its names have no rule, and are shown; not the same names once the table has had a masked column."""
    masks, unknown = opened(chosen_lake(tmp_path), HASH), relation((None, "id"), (None, "note"))
    assert withheld(masks, unknown) == []
    assert masks.of(relation((1, "id"), (2, "note"), (3, "email"))).problems == ()
    assert withheld(masks, unknown) == ["id", "note"]
    new = relation((None, "id"), (None, "email"), oid=2)
    assert withheld(masks, new) == ["id", "email"]
    masks.doubt(new, [{1}, {2}])
    assert withheld(masks, relation((1, "id"), (2, "mail"), oid=2)) == ["mail"]


def test_a_copy_that_is_ahead_of_capture_takes_no_new_column_while_a_masked_one_is_gone(tmp_path: Path) -> None:
    """Capture may come to a message in which the new column had the masked name; once it saw that it is gone, not."""
    ahead, keep = relation((1, "id"), (3, "letter")), ("public.people.letter", "keep")
    for number, without in enumerate([(), (relation((1, "id")),)]):
        lake = chosen_lake(tmp_path / str(number))
        for seen in (relation((1, "id"), (2, "email")), *without):
            assert not opened(lake, HASH).of(seen).problems
        rules = Masking(((HASH[0], parse_rule(HASH[1])),), (), SECRET)
        assert not Masks(lake, rules, records=False).of(ahead).problems
        assert len(opened(lake, HASH).of(ahead, copied=True).problems) == (0 if without else 1)
        assert not opened(lake, HASH, keep).of(ahead, copied=True).problems
        assert not opened(lake, HASH, keep).of(relation((1, "id"), (4, "next")), copied=True).problems


def test_a_new_column_with_a_low_number_may_be_a_masked_one(tmp_path: Path) -> None:
    """Columns are numbered in order: an earlier message of a column of the masked name was this one's."""
    lake, keep = chosen_lake(tmp_path), ("public.people.letter", "keep")
    opened(lake, HASH).of(relation((1, "id"), (4, "email")))
    late = relation((1, "id"), (3, "letter"), (4, "email"))
    assert withheld(opened(lake, HASH), late) == ["letter"]
    assert not opened(lake, HASH).of(relation((1, "id"), (4, "email"), (5, "note"))).problems
    assert len(opened(lake, HASH).of(late, copied=True).problems) == 1
    assert not opened(lake, HASH, keep).of(late, copied=True).problems
    assert not opened(lake, HASH, keep).of(late).problems


def test_a_column_recorded_in_the_clear_cannot_become_masked(tmp_path: Path) -> None:
    """Renamed to a masked name it is masked and a problem, again and again, until a copy replaces its rows."""
    lake = chosen_lake(tmp_path)
    opened(lake, HASH).of(relation((1, "id"), (2, "note")))
    renamed = relation((1, "id"), (2, "email"))
    for _ in range(2):
        found = opened(lake, HASH).of(renamed)
        assert (list(found.columns), len(found.problems)) == (["email"], 1)
    running = opened(lake, HASH)
    assert running.of(renamed).problems
    assert not opened(lake, HASH).of(renamed, copied=True).problems
    found = running.of(renamed)
    assert (list(found.columns), found.problems) == (["email"], ())


def test_what_cannot_be_masked_is_withheld(tmp_path: Path) -> None:
    """A column without a rule in a strict table, until there is one; and one whose type its rule does not fit."""
    lake = chosen_lake(tmp_path)
    keep = ("public.people.id", "keep")
    masks = opened(lake, HASH, keep, strict=("public.people",))
    assert not masks.of(relation((1, "id"), (2, "email"))).problems
    wider = relation((1, "id"), (2, "email"), (3, "nick"))
    assert masks.of(wider).columns["nick"] is WITHHELD
    later = opened(lake, HASH, keep, ("public.people.nick", "truncate 1"), strict=("public.people",))
    assert (later.of(wider).columns["nick"].rule, later.of(wider).problems) == (parse_rule("truncate 1"), ())
    number = Column("email", 23, -1, key=False, attnum=2)
    found = later.of(Relation(1, PEOPLE, ReplicaIdentity.DEFAULT, (number,)))
    assert (found.columns["email"], len(found.problems)) == (WITHHELD, 1)
    number_table = Relation(1, PEOPLE, ReplicaIdentity.DEFAULT, (number,))
    unruled = opened(lake, keep, ("public.people.nick", "truncate 1")).of(number_table)
    assert (unruled.columns["email"], len(unruled.problems)) == (WITHHELD, 1)
    fitting = opened(lake, (HASH[0], "null"), keep, ("public.people.nick", "truncate 1")).of(number_table)
    assert (fitting.columns["email"].rule, fitting.problems) == (parse_rule("null"), ())


def test_other_rules_than_the_recorded_ones_are_refused(tmp_path: Path) -> None:
    """A process opens the masks with the rules of the record, or not at all."""
    lake = chosen_lake(tmp_path)
    opened(lake, HASH)
    for other in (Masking(), Masking(((HASH[0], parse_rule("hash")),), (), SECRET + b"x")):
        with pytest.raises(ConfigError, match=r"not those that the lake records"):
            Masks(lake, other)
