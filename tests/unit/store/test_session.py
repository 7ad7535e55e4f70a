"""Sessions: what a process keeps of a lake is bounded, shared by its places, and not sent to another process."""

import copy
import pickle
from pathlib import Path

from auditlake.lake.layout import Lake
from auditlake.store.session import Kept, Session


def test_what_is_kept_is_bounded_and_what_was_used_last_stays() -> None:
    """A value that is too large drops none of the others, but the one that it replaces."""
    kept = Kept(10, 6)
    kept.put("a", "A", 4)
    kept.put("b", "B", 4)
    assert kept.find("a") == "A"
    kept.put("c", "C", 4)
    assert [kept.find(name) for name in "abc"] == ["A", None, "C"]
    kept.put("c", "larger", 7)
    assert [kept.find(name) for name in "ac"] == ["A", None]
    kept.put("a", "AA", 6)
    kept.put("d", "D", 4)
    assert [kept.find(name) for name in "ad"] == ["AA", "D"]


def test_a_value_is_made_once_even_if_it_is_none() -> None:
    """None is an answer, too."""
    kept, made = Kept(10), list[str]()
    for _ in range(2):
        assert kept.get("key", lambda: made.append("again"), lambda _: 1) is None
    assert made == ["again"]


def test_places_of_one_lake_in_a_store_share_its_session() -> None:
    """Another object for the same lake has another session, and equals it nevertheless."""
    lake, other = Lake.at("s3://bucket/lake"), Lake.at("s3://bucket/lake")
    table = lake.root / "changes"
    assert [getattr(place, "session", None) for place in (table, table.parent, table.with_name("added"))] == [
        lake.session
    ] * 3
    assert lake.session is not other.session
    assert (lake, hash(lake), table) == (other, hash(other), other.root / "changes")


def test_a_lake_on_a_disk_has_a_session_of_its_own(tmp_path: Path) -> None:
    """As long as it is passed on."""
    lake = Lake(tmp_path)
    lake.session.part(dict)["seen"] = True
    assert lake.session.part(dict) == {"seen": True}
    assert Lake(tmp_path).session.part(dict) == {}
    lake.session.forget()
    assert lake.session.part(dict) == {}


def test_a_session_is_not_sent_to_another_process() -> None:
    """Nor copied: what it keeps may be large, and belongs to threads of this process."""
    session = Session()
    session.part(list).append(1)
    for other in (pickle.loads(pickle.dumps(session)), copy.copy(session)):  # noqa: S301 - our own
        assert other.part(list) == []
    lake = pickle.loads(pickle.dumps(Lake.at("s3://bucket/lake")))  # noqa: S301 - our own
    assert lake.session is lake.root.session
