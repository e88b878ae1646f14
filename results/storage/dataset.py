"""The Parquet files of a table as one pyarrow dataset, each file checked by its footer.

A compacted file names the files whose rows it took over (``REPLACES_KEY``): while both exist, as
after a crash in the middle of a compaction, the replaced ones are not read.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from results.errors import ResultsError
from results.schema import REPLACES_KEY, SCHEMA_VERSION, SCHEMAS, TABLE_KEY, VERSION_KEY
from results.storage.location import Location
from results.storage.names import is_file_name

_ATTEMPTS = 5
_LISTINGS = 10
_ROW_GROUP = 131_072
_VERSION = re.compile(r"[0-9]{1,9}")
MOVE_AWAY = "move it out of the results folder; no other file is affected and none was changed"

T = TypeVar("T")


def dataset(
    location: Location,
    table: str,
    experiments: Iterable[str] | None = None,
    *,
    coded: Sequence[str] = (),
) -> ds.Dataset:
    """All live files of a table (of some experiments), by name, under the full schema.

    Columns that a file lacks are null. Text columns that are ``coded`` come
    dictionary-encoded, as they lie in the files.

    Raises:
        ResultsError: a file is half-written, foreign, or of a newer schema: it is named.
        FileNotFoundError: a file was removed since it was listed (``retrying`` lists again).
    """
    folders = [None] if experiments is None else sorted(set(experiments))
    files = [file for folder in folders for file in fragments(location, table, folder).items()]
    schema = SCHEMAS[table].remove_metadata()
    if not coded:
        plain = [fragment for _, fragment in files]
        return ds.FileSystemDataset(plain, schema, ds.ParquetFileFormat())
    for name in coded:
        code = pa.field(name, pa.dictionary(pa.int32(), schema.field(name).type))
        schema = schema.set(schema.get_field_index(name), code)
    style = ds.ParquetFileFormat(dictionary_columns=list(coded))
    paths = [location.full(name) for name, _ in files]
    read = [style.make_fragment(path, location.filesystem) for path in paths]
    return ds.FileSystemDataset(read, schema, style)


def fragments(
    location: Location, table: str, experiment: str | None = None
) -> dict[str, ds.ParquetFileFragment]:
    """File name (relative to the root) to fragment, without replaced files; see ``dataset``."""
    every = all_fragments(location, table, experiment)
    excluded = {other for name, fragment in every.items() for other in replaces(name, fragment)}
    return {name: fragment for name, fragment in every.items() if name not in excluded}


def all_fragments(
    location: Location, table: str, experiment: str | None = None
) -> dict[str, ds.ParquetFileFragment]:
    """As ``fragments``, with the files that a compacted one replaces."""
    files = names(location, table if experiment is None else f"{table}/{experiment}")
    if len(files) < 16:
        return {name: checked(location, table, name) for name in files}
    with ThreadPoolExecutor(8) as pool:
        read = pool.map(lambda name: checked(location, table, name), files)
        return dict(zip(files, read, strict=True))


def checked(
    location: Location, table: str, name: str, data: bytes | None = None
) -> ds.ParquetFileFragment:
    """One file of a table, its footer read and checked; see ``dataset``.

    Args:
        data: the file's content, where it has been read.
    """
    style = ds.ParquetFileFormat()
    if data is None:
        fragment = style.make_fragment(location.full(name), location.filesystem)
    else:
        fragment = style.make_fragment(pa.py_buffer(data))
    with reading(location.display(name)):
        schema = fragment.physical_schema
    _check(location, name, table, schema)
    if replaced_by(name, schema) is None:
        raise ResultsError(
            f"{location.display(name)} does not say which files it replaces by their names",
            hint=MOVE_AWAY,
        )
    return fragment


def names(location: Location, folder: str) -> list[str]:
    """The Parquet files under a folder, listed until two listings agree.

    A listing takes time: one that ran while a merged file appeared and its originals were deleted
    may have missed both. The next one then has the merged file.
    """
    listed: list[str] | None = None
    for _ in range(_LISTINGS):
        before, listed = listed, [file.name for file in location.files(folder, ".parquet")]
        if listed == before:
            break
    return listed or []


def replaces(name: str, fragment: ds.ParquetFileFragment) -> frozenset[str]:
    """The files that a file replaces; none, unless a compaction wrote it."""
    return replaced_by(name, fragment.physical_schema) or frozenset()


def replaced_by(name: str, schema: pa.Schema) -> frozenset[str] | None:
    """The files that a file of this schema replaces; ``None`` if what it lists is anything but
    files beside it."""
    listed = (schema.metadata or {}).get(REPLACES_KEY)
    if listed is None:
        return frozenset()
    try:
        others = json.loads(listed)
    except (ValueError, RecursionError):
        return None
    folder, _, itself = name.rpartition("/")
    if not isinstance(others, list) or itself in others:
        return None
    if not all(is_file_name(other) and other.endswith(".parquet") for other in others):
        return None  # the replaced files are deleted at the next compaction
    return frozenset(f"{folder}/{other}" for other in others)


def retrying(read: Callable[[], T]) -> T:
    """Call ``read``, again if a file it listed was compacted away before it was opened."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return read()
        except FileNotFoundError:
            continue
    return read()


def of_commit(location: Location, table: str, experiment: str, run: str) -> pa.Table:
    """The rows that a commit wrote into a table; not those that later ones replaced, once a
    compaction has dropped them.

    Raises:
        ResultsError: as ``dataset``.
    """

    def read() -> pa.Table:
        listed = names(location, f"{table}/{experiment}")
        own = [name for name in listed if name.endswith(f"-{run}.parquet")]
        if own:  # not merged yet: the other files are not opened
            parts = [checked(location, table, name) for name in own]
            schema = SCHEMAS[table].remove_metadata()
            files = ds.FileSystemDataset(parts, schema, ds.ParquetFileFormat())
        else:
            files = dataset(location, table, [experiment])
        return files.to_table(filter=ds.field("run") == run)

    return retrying(read)


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn pyarrow's error about a broken file into one line that names it."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise ResultsError(f"{what} is not a whole Parquet file", hint=MOVE_AWAY) from error


def _check(location: Location, name: str, table: str, schema: pa.Schema) -> None:
    path = location.display(name)
    metadata = schema.metadata or {}
    version = metadata.get(VERSION_KEY, b"").decode("ascii", "replace")
    if metadata.get(TABLE_KEY) != table.encode() or not _VERSION.fullmatch(version):
        raise ResultsError(f"{path} is not a {table} file of batchscale", hint=MOVE_AWAY)
    if int(version) > SCHEMA_VERSION:
        raise ResultsError(
            f"{path} was written by a newer batchscale: schema {version}, this one reads up to "
            f"{SCHEMA_VERSION}",
            hint="upgrade batchscale",
        )
    types = {field.name: field.type for field in SCHEMAS[table]}
    for field in schema:
        if types.get(field.name, field.type) != field.type:
            raise ResultsError(
                f"{path}: column {field.name} holds {field.type}, not {types[field.name]}",
                hint=MOVE_AWAY,
            )


def columns_of(table: str, columns: Iterable[str] | None) -> list[str]:
    """The columns to read, all when ``None``.

    Raises:
        ResultsError: a column that the table does not have.
    """
    names = SCHEMAS[table].names
    wanted = list(names if columns is None else columns)
    for column in wanted:
        if column not in names:
            raise ResultsError(f"{table} have no column {column!r}", hint=", ".join(names))
    return wanted


def encode(rows: pa.Table, replaces: Sequence[str] = ()) -> bytes:
    """A Parquet file (zstd) of rows of a full schema, which takes the place of the files it
    ``replaces``.

    A text column may be dictionary-encoded: the file is the same, and written sooner. Numbers with
    a fraction hardly repeat, and get no dictionary.
    """
    metadata = dict(rows.schema.metadata)
    if replaces:
        metadata[REPLACES_KEY] = json.dumps(sorted(replaces)).encode()
    dictionaries = any(pa.types.is_dictionary(field.type) for field in rows.schema)
    buffer = io.BytesIO()
    with pq.ParquetWriter(
        buffer,
        rows.schema.with_metadata(None if dictionaries else metadata),
        compression="zstd",
        use_dictionary=[f.name for f in rows.schema if not pa.types.is_floating(f.type)],
        # Arrow's own schema in the file would have readers see dictionaries.
        store_schema=not dictionaries,
    ) as writer:
        writer.write_table(rows, row_group_size=_ROW_GROUP)
        if dictionaries:
            writer.add_key_value_metadata(metadata)
    return buffer.getvalue()


class Polled:
    """Some columns of a table that others add to: of each call only new files are read. Files
    never change, so rows once read stay valid.

    Args:
        but: files that are left out.
    """

    def __init__(
        self,
        location: Location,
        table: str,
        experiment: str | None,
        columns: Sequence[str],
        but: Collection[str] = (),
    ) -> None:
        self._location = location
        self._table = table
        self._folder = table if experiment is None else f"{table}/{experiment}"
        self._schema = SCHEMAS[table].remove_metadata()
        self._columns, self._but = list(columns), but
        self._read: dict[str, tuple[pa.Table, frozenset[str]]] = {}

    def rows(self) -> pa.Table:
        """All rows, superseded ones included, in the order of the files.

        Raises:
            ResultsError: a half-written or foreign file, which is named.
        """
        return retrying(self._rows)

    def _rows(self) -> pa.Table:
        listed = names(self._location, self._folder)
        files = [name for name in listed if name not in self._but]
        self._read = {name: self._read.get(name) or self._file(name) for name in files}
        replaced = {other for _, others in self._read.values() for other in others}
        parts = [rows for name, (rows, _) in self._read.items() if name not in replaced]
        empty = self._schema.empty_table().select(self._columns)
        return pa.concat_tables([empty, *parts]).combine_chunks()

    def _file(self, name: str) -> tuple[pa.Table, frozenset[str]]:
        data = None
        if not self._location.local:  # one request, where pyarrow makes four
            data = self._location.read(name)
            if data is None:
                raise FileNotFoundError(name)
        fragment = checked(self._location, self._table, name, data)
        with reading(self._location.display(name)):
            rows = fragment.to_table(schema=self._schema, columns=self._columns, use_threads=False)
        return rows, replaces(name, fragment)
