"""An object store whose writes may have conditions, by obstore.

An object is created only if there is none of its name, or replaced only if it is still the one that
was read: S3 has this since 2024 (If-None-Match and If-Match), Google Cloud Storage as generations.
pyarrow, which reads the tables, has no conditional writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

T = TypeVar("T")

_RETRIES = {
    "max_retries": 1000,  # the time bounds them
    "backoff": {
        "init_backoff": timedelta(seconds=0.1),
        "max_backoff": timedelta(seconds=3),
        "base": 2,
    },
    "retry_timeout": timedelta(seconds=60),
}
"""A store that is away for half a minute stops nothing."""


@dataclass(frozen=True)
class Version:
    """What an object was when it was read or written."""

    e_tag: str | None
    generation: str | None
    """Of stores that number the versions of an object."""


@dataclass(frozen=True)
class File:
    """An entry of a listing: name below the root, bytes, seconds since the epoch."""

    name: str
    size: int
    modified: float
    version: Version = Version(None, None)
    """Of an object; a file has none."""


class ObjectStore:
    """A folder of a bucket. Every method raises ``OSError`` if the store cannot be reached, or
    refuses; a request that fails on its way is made again for a minute."""

    def __init__(self, store: Any) -> None:
        self._store = store

    @classmethod
    def open(cls, address: str, filesystem: fs.FileSystem) -> ObjectStore:
        """The store of a URI, as pyarrow reads it (keys, ``region``, ``scheme``,
        ``endpoint_override``)."""
        from obstore import exceptions
        from obstore.store import GCSStore, S3Store

        parts = urlsplit(address)
        options = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        bucket, prefix = parts.hostname or parts.netloc, unquote(parts.path).strip("/")
        plain = options.get("scheme") == "http"
        client = {"allow_http": plain, "timeout": timedelta(seconds=60)}
        common: dict[str, Any] = {"client_options": client, "retry_config": _RETRIES}
        try:
            if isinstance(filesystem, fs.S3FileSystem):
                given = {"region": filesystem.region, **_keys(parts.username, parts.password)}
                if endpoint := options.get("endpoint_override"):
                    given["endpoint"] = f"{options.get('scheme', 'https')}://{endpoint}"
                return cls(S3Store(bucket, prefix=prefix or None, **given, **common))
            if isinstance(filesystem, fs.GcsFileSystem) and "endpoint_override" not in options:
                return cls(GCSStore(bucket, prefix=prefix or None, **common))
        except exceptions.BaseError as error:
            raise OSError(_line(error)) from None
        raise OSError("results are kept in a folder, or in an object store of s3:// or gs://")

    def list(self, folder: str, suffix: str = "") -> list[File]:
        """The objects under a folder whose names end so, at any depth, in no order."""
        import obstore

        def entries() -> list[File]:
            return [
                _file(meta["path"], meta)
                for page in obstore.list(self._store, f"{folder}/", chunk_size=1000)
                for meta in page
                if meta["path"].endswith(suffix)
            ]

        return _requested(entries)

    def children(self) -> Sequence[str] | None:
        """The names directly below the root; ``None`` if there is none."""
        import obstore

        listed = _requested(lambda: obstore.list_with_delimiter(self._store))
        names = [*listed["common_prefixes"], *(meta["path"] for meta in listed["objects"])]
        return [name.strip("/").rpartition("/")[2] for name in names] or None

    def head(self, name: str) -> File | None:
        """An object without its content, ``None`` if there is none."""
        import obstore

        with suppress(FileNotFoundError):
            return _file(name, _requested(lambda: obstore.head(self._store, name)))
        return None

    def exists(self, name: str) -> bool:
        """Whether there is such an object."""
        return self.head(name) is not None

    def read(self, name: str) -> bytes | None:
        """An object's content, ``None`` if there is none."""
        there = self.get(name)
        return None if there is None else there[0]

    def get(self, name: str) -> tuple[bytes, Version] | None:
        """An object's content and version, ``None`` if there is none."""
        import obstore

        def content() -> tuple[bytes, Version]:
            answer = obstore.get(self._store, name)
            return bytes(answer.bytes()), _version(answer.meta)

        with suppress(FileNotFoundError):
            return _requested(content)
        return None

    def write(self, name: str, data: bytes | pa.Buffer) -> Version:
        """Write a whole object, in place of one of that name."""
        return self._put(name, bytes(data), "overwrite")

    def create(self, name: str, data: bytes) -> Version | None:
        """Write a new object; ``None`` if there is one of that name, which stays as it is."""
        from obstore.exceptions import AlreadyExistsError

        try:
            return self._put(name, data, "create")
        except AlreadyExistsError:
            return self._written_before(name, data)

    def replace(self, name: str, data: bytes, version: Version) -> Version | None:
        """Write an object in place of this very version; ``None`` if it is another one by now."""
        from obstore.exceptions import PreconditionError

        condition = {"e_tag": version.e_tag, "version": version.generation}
        try:
            return self._put(name, data, {k: v for k, v in condition.items() if v is not None})
        except (PreconditionError, FileNotFoundError):
            return self._written_before(name, data)

    def delete(self, name: str) -> None:
        """Delete an object; it is no error if there is none."""
        import obstore

        with suppress(FileNotFoundError):
            _requested(lambda: obstore.delete(self._store, name))

    def _written_before(self, name: str, data: bytes) -> Version | None:
        """The version of an object with this content. A write whose answer was lost is repeated,
        and then meets itself."""
        there = self.get(name)
        return there[1] if there is not None and there[0] == data else None

    def _put(self, name: str, data: bytes, mode: Any) -> Version:
        import obstore

        # One request: a store checks the conditions of a multipart upload only at its end.
        put = lambda: obstore.put(self._store, name, data, mode=mode, use_multipart=False)  # noqa: E731
        return _version(_requested(put))


def _keys(user: str | None, password: str | None) -> dict[str, Any]:
    """How S3 is given its keys: those of the URI, else those of the environment, else boto3's
    (profiles, instances), where it is installed."""
    if user is not None and password is not None:
        return {"access_key_id": unquote(user), "secret_access_key": unquote(password)}
    import importlib.util
    import os

    if "AWS_ACCESS_KEY_ID" in os.environ or importlib.util.find_spec("boto3") is None:
        return {}
    from obstore.auth.boto3 import Boto3CredentialProvider

    return {"credential_provider": Boto3CredentialProvider()}


def _file(name: str, meta: Mapping[str, Any]) -> File:
    return File(name, meta["size"], meta["last_modified"].timestamp(), _version(meta))


def _version(meta: Mapping[str, Any]) -> Version:
    return Version(meta.get("e_tag"), meta.get("version"))


def _requested(request: Callable[[], T]) -> T:
    """The answer of a request, whose refused conditions and absent objects stay errors of their
    own, and whose other errors are ``OSError``."""
    from obstore import exceptions

    try:
        return request()
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
        raise
    except exceptions.BaseError as error:
        raise OSError(_line(error)) from None


def _line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
