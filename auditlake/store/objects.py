"""Objects of an object store: get, put on a condition, list, delete; through obstore.

Credentials come from AWS's standard sources: AWS_ACCESS_KEY_ID and its companions, web identity, container and instance
role; a profile (AWS_PROFILE, or the files in ~/.aws) needs boto3. AWS_ENDPOINT_URL names another store of the same
protocol. Nothing here takes a credential as an argument, so none can reach a log, an error or a plan.

A request that was lost is repeated for a minute: by obstore, or by `_repeated` if obstore does not know that this is
harmless. The repetition of a conditional put may then be refused because the first one took effect; `create`
and `put_if_match` compare the content, which the caller makes unique.

Authority: developmentseed.org/obstore; docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-requests.html
"""

import errno
import io
import os
import re
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from auditlake.counters import Counter, count
from auditlake.errors import ConfigError, LakeUnusable
from auditlake.extras import S3
from auditlake.invisible import INVISIBLE, escaped
from auditlake.store.failures import code_or_kind
from auditlake.store.session import Kept, Session

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

_Reply = TypeVar("_Reply")

S3_FILE_SYSTEM = "spark.hadoop.fs.s3.impl"
"""Spark's setting for the file system of s3://."""
_RETRY_S = 60
_NO_BUCKET = "NoSuchBucket"
_RETRIES = 40
"""Pauses between them are random and hardly grow: 40 take at least seven seconds, ten may be over after 1.5."""
_PAUSE_S = 0.2
_NOT_SEEN = re.compile(f"[\x00-\x1f{INVISIBLE}]")
_INVALID_PATH = re.compile(r'[Pp]ath "(.*?)"(?: contained|: )')
_LOST = re.compile(r"\bkind: (?:Interrupted|Timeout)\b")
"""In an error of obstore: a connection that ended, or no reply in time. The request may have taken effect."""
_PAGE = 1000
_TAIL_BYTES = 256 << 10
"""A first read of the end of an object: most log entries, footers and small data files are complete in it."""
_NEVER_CHANGES = re.compile(r"(c000[^/\s]*\.parquet|/deletion_vector_\S+\.bin)$")
"""Data files and deletion vectors: their names are used once. Log entries are not: a table may be created again."""
_CACHED_BYTES, _CACHE_BYTES = 4 << 20, 64 << 20
_SIZES = 100_000
_BUFFER_BYTES = 64 << 10
_PART_BYTES = 8 << 20
"""A larger object is written in parts."""


@dataclass(frozen=True, slots=True)
class Head:
    """The metadata of an object."""

    size_bytes: int
    modified_s: float


@dataclass(frozen=True, slots=True)
class Got:
    """An object's content with its ETag."""

    content: bytes
    etag: str


class _Contents:
    """What a session keeps of objects: those that never change, their ends and sizes, and others by their ETag."""

    def __init__(self) -> None:
        self.whole = Kept(_CACHE_BYTES, _CACHED_BYTES)
        self.ends = Kept(_CACHE_BYTES, _CACHED_BYTES)
        self.listed = Kept(_CACHE_BYTES, _CACHED_BYTES)
        self.sizes = Kept(_SIZES)

    def keep(self, bucket: str, key: str, content: bytes, size_bytes: int) -> None:
        """Keep the content of an object, or its end, if it never changes."""
        if _NEVER_CHANGES.search(key):
            self.sizes.put((bucket, key), size_bytes, 1)
            held = self.whole if len(content) == size_bytes else self.ends
            held.put((bucket, key), content, len(content))


def endpoint() -> str | None:
    """Return the URL of a store other than AWS's."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None


def options() -> dict[str, str]:
    """Return what deltalake needs beyond the environment; no credentials."""
    return {**endpoint_options(), "max_retries": str(_RETRIES), "retry_timeout": f"{_RETRY_S}s"}


def endpoint_options() -> dict[str, str]:
    """Return the storage options that name a store other than AWS's, as deltalake and polars take them."""
    url = endpoint()
    if url is None:
        return {}
    return {"AWS_ENDPOINT_URL": url, **({"AWS_ALLOW_HTTP": "true"} if url.startswith("http://") else {})}


@lru_cache(maxsize=16)
def _store(bucket: str, checksum: str | None = None) -> "ObjectStore":
    from obstore.store import from_url  # noqa: PLC0415 - local lakes do not need it

    access = _access()
    algorithm = {} if checksum is None else {"checksum_algorithm": checksum}
    return from_url(bucket, **{**access, "config": {**access["config"], **algorithm}})


def _access() -> dict[str, Any]:
    url = endpoint()
    return {
        "config": {"endpoint": url} if url else {},
        "client_options": {"allow_http": bool(url and url.startswith("http://"))},
        "retry_config": {"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_RETRY_S)},
        **_profile(),
    }


def _profile() -> dict[str, Any]:
    """Return the provider of a profile's credentials, if the environment has no others."""
    files = (os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"), "~/.aws/config")
    by_profile = "AWS_PROFILE" in os.environ or any(Path(file).expanduser().exists() for file in files)
    if not by_profile or "AWS_ACCESS_KEY_ID" in os.environ or "AWS_WEB_IDENTITY_TOKEN_FILE" in os.environ:
        return {}
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider  # noqa: PLC0415 - as above
    except ImportError:
        raise ConfigError(
            "credentials are in a profile of AWS, and boto3, which reads profiles, is not installed",
            f"{S3.command}, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
        ) from None
    provider = Boto3CredentialProvider()
    return {"credential_provider": provider, **({"region": provider.config["region"]} if provider.config else {})}


@contextmanager
def _os_errors(bucket: str, key: str, operation: str) -> Iterator[None]:
    """Count a request, and raise a failure of the store as OSError."""
    from obstore import exceptions  # noqa: PLC0415 - as above

    count(Counter.STORE_REQUESTS, operation)
    where = f"{bucket}/{key}"
    try:
        yield
    except (exceptions.NotFoundError, FileNotFoundError) as exc:
        if _NO_BUCKET in str(exc):
            raise LakeUnusable(
                f"bucket {bucket} does not exist",
                "Create it, or correct the setting lake, AWS_REGION or AWS_ENDPOINT_URL.",
            ) from None
        raise absent(bucket, key) from None
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
        raise FileExistsError(errno.EEXIST, "The object exists, or has changed", where) from None
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as exc:
        raise PermissionError(errno.EACCES, f"The store refuses access ({code_or_kind(exc)})", where) from None
    except exceptions.InvalidPathError as exc:
        raise LakeUnusable(
            f"{bucket} has an object below {key} whose key cannot be read: {_key_in(exc)}",
            "Delete it with another tool; nothing here writes such keys.",
        ) from None
    except exceptions.BaseError as exc:
        raise OSError(errno.EIO, f"The store failed: {code_or_kind(exc)}", where) from None


def _key_in(exc: Exception) -> str:
    found = _INVALID_PATH.search(str(exc))
    return _NOT_SEEN.sub(escaped, found[1]) if found else "unknown"


def _repeated(request: Callable[[], _Reply]) -> _Reply:
    """Make a request that may be made twice, and repeat it while it is lost."""
    from obstore import exceptions  # noqa: PLC0415 - as above

    ends_s = time.monotonic() + _RETRY_S
    while True:
        try:
            return request()
        except exceptions.GenericError as exc:
            if time.monotonic() > ends_s or not _LOST.search(str(exc)):
                raise
        count(Counter.RETRIES, "store")
        time.sleep(_PAUSE_S)


def absent(bucket: str, key: str) -> FileNotFoundError:
    """Return the error for an object that does not exist."""
    return FileNotFoundError(errno.ENOENT, "No such object", f"{bucket}/{key}")


def head(bucket: str, key: str) -> Head | None:
    """Return what the store knows of an object; None if it does not exist."""
    try:
        with _os_errors(bucket, key, "head"):
            found = _store(bucket).head(key)
    except FileNotFoundError:
        return None
    return Head(found["size"], found["last_modified"].timestamp())


def current_version(bucket: str, key: str) -> str | None:
    """Return the id of an object's current version; None if its bucket keeps no versions. Raises FileNotFoundError."""
    with _os_errors(bucket, key, "head"):
        return _store(bucket).head(key)["version"]


def get(bucket: str, key: str) -> Got:
    """Read an object, and its ETag, from the store."""
    with _os_errors(bucket, key, "get"):
        result = _store(bucket).get(key)
        etag = result.meta["e_tag"] or ""
        return Got(bytes(result.bytes()), etag)


def read_object(session: Session, bucket: str, key: str) -> bytes:
    """Read an object; a session reads one that never changes once."""
    kept = session.part(_Contents)
    content: bytes | None = kept.whole.find((bucket, key))
    if content is None:
        content = get(bucket, key).content
        kept.keep(bucket, key, content, len(content))
    return content


def get_listed(session: Session, bucket: str, key: str, etag: str | None) -> bytes:
    """Read an object that a listing showed with this ETag; a session reads the same one once."""
    listed = session.part(_Contents).listed
    if etag is not None and (held := listed.find((bucket, key, etag))) is not None:
        return bytes(held)
    got = get(bucket, key)
    if got.etag:
        listed.put((bucket, key, got.etag), got.content, len(got.content))
    return got.content


def get_range(bucket: str, key: str, start: int, end: int) -> bytes:
    """Read the bytes from `start` to before `end`."""
    with _os_errors(bucket, key, "get"):
        return bytes(_store(bucket).get_range(key, start=start, end=end))


def _get_tail(session: Session, bucket: str, key: str) -> tuple[int, bytes]:
    """Read the size of an object, and its end; of one that never changes once, because engines open it repeatedly."""
    kept = session.part(_Contents)
    known, held = kept.sizes.find((bucket, key)), kept.ends.find((bucket, key))
    if known is not None and held is not None:
        return known, held
    with _os_errors(bucket, key, "get"):
        result = _store(bucket).get(key, options={"range": {"suffix": _TAIL_BYTES}})
        size_bytes, content = result.meta["size"], bytes(result.bytes())
    kept.keep(bucket, key, content, size_bytes)
    return size_bytes, content


def size(session: Session, bucket: str, key: str) -> int:
    """Return the size of an object; raises FileNotFoundError."""
    sizes = session.part(_Contents).sizes
    known: int | None = sizes.find((bucket, key))
    if known is not None:
        return known
    found = head(bucket, key)
    if found is None:
        raise absent(bucket, key)
    if _NEVER_CHANGES.search(key):
        sizes.put((bucket, key), found.size_bytes, 1)
    return found.size_bytes


def put(bucket: str, key: str, content: bytes) -> None:
    """Write an object, replacing any other."""
    _put(bucket, key, content, "overwrite")


def create(bucket: str, key: str, content: bytes, checksum: str | None = None) -> str:
    """Write an object unless there is one; return its ETag.

    `checksum` names the algorithm of one that is sent along, which a bucket with Object Lock requires: SHA256.

    Raises FileExistsError if there is one with other content.
    """
    while True:
        try:
            return _put(bucket, key, content, "create", checksum)
        except FileExistsError:
            try:
                recorded = get(bucket, key)
            except FileNotFoundError:  # a put at the same time has not succeeded yet, or the object was deleted
                continue
            if recorded.content != content:
                raise
            return recorded.etag


def put_if_match(bucket: str, key: str, content: bytes, etag: str) -> str:
    """Replace the object that has this ETag; return the new one.

    Raises FileExistsError if the object has changed, FileNotFoundError if it was deleted.
    """
    try:
        return _put(bucket, key, content, {"e_tag": etag})
    except FileExistsError:
        now = get(bucket, key)
        if now.content != content:
            raise
        return now.etag


def _put(bucket: str, key: str, content: bytes, mode: Any, checksum: str | None = None) -> str:  # noqa: ANN401 - obstore's own union
    store = _store(bucket, checksum)
    with _os_errors(bucket, key, "put"):
        put = _repeated(lambda: store.put(key, content, mode=mode, use_multipart=False))
        return put["e_tag"] or ""


def delete(bucket: str, keys_to_delete: Sequence[str]) -> None:
    """Delete objects, also those that do not exist."""
    if keys_to_delete:
        with _os_errors(bucket, keys_to_delete[0], "delete"):
            _repeated(lambda: _store(bucket).delete(list(keys_to_delete)))
            count(Counter.STORE_REQUESTS, "delete", (len(keys_to_delete) - 1) // _PAGE)  # one for each page


def list_keys(bucket: str, prefix: str, *, at_most: int | None = None) -> Iterator[str]:
    """Yield the keys below a prefix in order, a page at a time."""
    found = _listed(bucket, prefix, None, min(_PAGE, at_most or _PAGE))
    for meta in islice(found, at_most):
        yield meta["path"]


def etags(bucket: str, prefix: str, *, after: str = "") -> Iterator[tuple[str, str | None]]:
    """Yield the keys below a prefix in order, those greater than `prefix + after`, with their ETags."""
    for meta in _listed(bucket, prefix, f"{prefix}{after}" if after else None, _PAGE):
        yield meta["path"], meta["e_tag"]


def written_keys(bucket: str, prefix: str) -> Iterator[tuple[str, float]]:
    """Yield the keys below a prefix in order, with the time when each was written, in seconds since 1970.

    An empty object whose name has no dot marks a folder, as tools that show buckets as folders make them: a key that
    ends in a slash, which obstore does not show. No file of a lake is empty.
    """
    for meta in _listed(bucket, prefix, None, _PAGE):
        if meta["size"] or "." in meta["path"].rpartition("/")[2]:
            yield meta["path"], meta["last_modified"].timestamp()


def _listed(bucket: str, prefix: str, offset: str | None, page: int) -> Iterator["ObjectMeta"]:
    with _os_errors(bucket, prefix, "list"):
        for number, metas in enumerate(_store(bucket).list(prefix, offset=offset, chunk_size=page)):
            if number:  # each page after the first is a request of its own
                count(Counter.STORE_REQUESTS, "list")
            yield from (meta for meta in metas if meta["path"].startswith(prefix))  # not the mark of the folder itself


def children(bucket: str, prefix: str) -> list[str]:
    """List the names of objects and folders directly below a prefix that ends in a slash."""
    with _os_errors(bucket, prefix, "list"):
        listed = _store(bucket).list_with_delimiter(prefix)
    paths = [*listed["common_prefixes"], *(found["path"] for found in listed["objects"])]
    return sorted(path.removeprefix(prefix).strip("/") for path in paths if path.startswith(prefix))


def copy(bucket: str, key: str, to: str) -> None:
    """Copy an object, within the store."""
    with _os_errors(bucket, key, "copy"):
        _store(bucket).copy(key, to)


class ObjectReader(io.RawIOBase):
    """Random access to an object, which must not change; its end is read first, and kept."""

    def __init__(self, session: Session, bucket: str, key: str) -> None:
        self._bucket, self._key = bucket, key
        held: bytes | None = session.part(_Contents).whole.find((bucket, key))
        self._size, self._tail = _get_tail(session, bucket, key) if held is None else (len(held), held)
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def size(self) -> int:
        """Return the size of the object, as pyarrow asks for it."""
        return self._size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = start + offset
        return self._at

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer
        content = self._between(self._at, min(self._at + len(buffer), self._size))
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)

    def _between(self, start: int, end: int) -> bytes:
        tail_at = self._size - len(self._tail)
        if start >= end:
            return b""
        if start >= tail_at:
            return self._tail[start - tail_at : end - tail_at]
        return get_range(self._bucket, self._key, start, end)


def filesystem(session: Session) -> "AbstractFileSystem":
    """Return the stores as a file system of fsspec, from which DuckDB reads objects that do not change."""
    from fsspec import AbstractFileSystem  # noqa: PLC0415 - as above

    class Objects(AbstractFileSystem):  # type: ignore[misc]
        """Objects by URL. DuckDB asks for the files that a path matches, for sizes, and for ranges."""

        protocol = "s3"
        cachable = False

        def glob(self, path: str, **_: object) -> list[str]:
            return [_unescaped(path)]

        def size(self, path: str) -> int:
            return size(session, *_split(path))

        def modified(self, path: str) -> datetime:  # noqa: ARG002 - a data file is never written again
            return datetime.fromtimestamp(0, UTC)

        def _open(self, path: str, **_: object) -> io.BufferedReader:
            return io.BufferedReader(ObjectReader(session, *_split(path)), _BUFFER_BYTES)

    return Objects()


def _split(path: str) -> tuple[str, str]:
    bucket, _, key = path.removeprefix("s3://").partition("/")
    return f"s3://{bucket}", key


def _unescaped(path: str) -> str:
    """Return the path that a pattern names, in which special characters are in brackets."""
    return re.sub(r"\[([\[*?])\]", r"\1", path)


class Upload(io.RawIOBase):
    """An object being written; it exists once it is finished, and never without. `crc32` is that of the content."""

    def __init__(self, session: Session, bucket: str, key: str) -> None:
        self._session, self._where = session, (bucket, key)
        self._first = io.BytesIO()
        self._parts: Any = None
        self._at = self.crc32 = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def write(self, content: Any) -> int:  # noqa: ANN401 - any buffer
        view = memoryview(content).cast("B")
        self._at += len(view)
        self.crc32 = zlib.crc32(view, self.crc32)
        if self._parts is None:
            self._first.write(view)
            if self._at > _PART_BYTES:
                self._begin_parts()
        else:
            with _os_errors(*self._where, "put"):
                self._parts.write(bytes(view))
        return len(view)

    def _begin_parts(self) -> None:
        import obstore  # noqa: PLC0415 - as above

        with _os_errors(*self._where, "put"):
            self._parts = obstore.open_writer(_store(self._where[0]), self._where[1], buffer_size=_PART_BYTES)
            self._parts.write(self._first.getvalue())
        self._first = io.BytesIO()

    def finish(self) -> None:
        """Make the object exist."""
        if self._parts is None:
            content = self._first.getvalue()
            put(*self._where, content)
            self._session.part(_Contents).keep(*self._where, content, len(content))
        else:
            with _os_errors(*self._where, "put"):
                self._parts.close()


def settings_for_spark(place: object) -> Mapping[str, str]:
    """Return Hadoop's settings for a place, with the same sources of credentials and the same endpoint; no credential.

    Nothing for a local place.
    """
    if isinstance(place, Path):
        return {}
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    url = endpoint()
    optional = {
        "endpoint": url,
        "endpoint.region": region or ("us-east-1" if url else None),
        "path.style.access": "true" if url else None,
    }
    return {
        S3_FILE_SYSTEM: "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "spark.hadoop.fs.s3a.aws.credentials.provider": (
            "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
        ),
        **{f"spark.hadoop.fs.s3a.{name}": value for name, value in optional.items() if value is not None},
    }
