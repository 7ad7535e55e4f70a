"""Places of a lake: a path on this machine, or a key of an object store.

`Place` is `pathlib.Path` or `Remote`, which has the part of Path's interface that a lake needs, so that reading is the
same code for both. Only this package distinguishes them. The differences between a disk and a store (put-if-absent,
replace, durable writes, Parquet) are in `files`. An object is complete and durable once it exists; folders are only
common beginnings of keys.

`str(place)` is the location as deltalake, Spark and DuckDB expect it. `Remote` has no `__fspath__`: given to a function
for local files it must fail, never name a missing file.

Only s3:// is supported. Every failure of a store is raised as OSError with the store's own message, which contains no
credentials.

Authority: docs.aws.amazon.com/AmazonS3/latest/API, ListObjectsV2
"""

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Literal
from urllib.parse import urlsplit

from auditlake.store import objects
from auditlake.store.session import Session

SCHEMES = ("s3",)
_NOT_IN_URLS = re.compile(r"[%\\\[\]|^?#*{}\x00-\x20\x7f-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class ObjectStat:
    """Size and time of modification of an object, named as in `os.stat_result`."""

    st_size: int
    st_mtime: float

    @property
    def st_mtime_ns(self) -> int:
        return int(self.st_mtime * 1_000_000_000)


@dataclass(frozen=True, slots=True, order=True)
class Remote:
    """An object or a folder of objects: `bucket` is a URL such as s3://name, `key` has no slash at either end."""

    bucket: str
    key: str
    session: Session = field(default_factory=Session, compare=False, repr=False)
    """That of the place from which this one was made: places of one lake share it."""

    def __str__(self) -> str:
        return f"{self.bucket}/{self.key}"

    def __truediv__(self, part: str) -> "Remote":
        return self._at(f"{self.key}/{part}") if part else self

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    @property
    def stem(self) -> str:
        return PurePosixPath(self.key).stem

    @property
    def parent(self) -> "Remote":
        return self._at(self.key.rpartition("/")[0])

    def _at(self, key: str) -> "Remote":
        return Remote(self.bucket, key, self.session)

    def with_name(self, name: str) -> "Remote":
        return self.parent / name

    def as_uri(self) -> str:
        return str(self)

    def exists(self) -> bool:
        """Return whether there is such an object, or an object in such a folder."""
        return objects.head(self.bucket, self.key) is not None or self.is_dir()

    def is_dir(self) -> bool:
        return next(iter(objects.list_keys(self.bucket, f"{self.key}/", at_most=1)), None) is not None

    def stat(self) -> ObjectStat:
        found = objects.head(self.bucket, self.key)
        if found is None:
            raise objects.absent(self.bucket, self.key)
        return ObjectStat(found.size_bytes, found.modified_s)

    def iterdir(self) -> Iterator["Remote"]:
        for name in objects.children(self.bucket, f"{self.key}/"):
            yield self / name

    def glob(self, pattern: str) -> Iterator["Remote"]:
        """Yield what matches a pattern of one or more segments; each folder is listed once."""
        first, _, rest = pattern.partition("/")
        for child in self.iterdir():
            if fnmatchcase(child.name, first):
                yield from child.glob(rest) if rest else (child,)

    def read_bytes(self) -> bytes:
        return objects.read_object(self.session, self.bucket, self.key)

    def read_text(self, encoding: str = "utf-8") -> str:
        return self.read_bytes().decode(encoding)

    def open(self, mode: Literal["rb"] = "rb") -> io.BufferedReader:  # noqa: ARG002 - as Path has it
        return io.BufferedReader(objects.ObjectReader(self.session, self.bucket, self.key))

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Delete the object. A store does not say whether it existed."""
        if not missing_ok and objects.head(self.bucket, self.key) is None:
            raise objects.absent(self.bucket, self.key)
        objects.delete(self.bucket, [self.key])


Place = Path | Remote
_ON_DISKS = Session()
"""Of all files on this machine: a `Path` has no room for the session of its lake."""


def session_of(place: Place) -> Session:
    """Return the session that caches what was read of a file or table; a lake has its own."""
    return place.session if isinstance(place, Remote) else _ON_DISKS


def begun_session(root: Place) -> Session:
    """Return the session of a lake's folder: in a store that of the place, on a disk a new one."""
    return root.session if isinstance(root, Remote) else Session()


def begun_again(root: Place) -> Place:
    """Return a lake's folder with another session, if it is in a store."""
    return Remote(root.bucket, root.key) if isinstance(root, Remote) else root


def by_requests(place: Place) -> bool:
    """Return whether each look at a place is a request to a store: then few are made, or many at once."""
    return isinstance(place, Remote)


def parse_url(text: str) -> Remote:
    """Parse the URL of a folder in a store; raises ValueError, also for characters that some readers refuse."""
    parts = urlsplit(text)
    key = parts.path.strip("/")
    if "@" in parts.netloc or ":" in parts.netloc:
        raise ValueError(
            "has credentials or a port in its URL, need s3://bucket/folder: credentials come from AWS's own"
        )
    if not parts.netloc or not key or "//" in key:
        raise ValueError(f"is {text!r}, need a bucket and a folder in it: {parts.scheme}://bucket/folder")
    if found := _NOT_IN_URLS.search(text):
        raise ValueError(f"is {text!r}, need a URL without {found[0]!r}: Delta's readers take it for a different path")
    return Remote(f"{parts.scheme}://{parts.netloc}", key)
