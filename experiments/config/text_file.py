"""An experiment file's text, read with care: whatever its path names may be anything."""

from __future__ import annotations

from pathlib import Path

_MOST_BYTES = 2_000_000


class UnreadableError(Exception):
    """A file that cannot be read as an experiment; its text says why. The caller knows its name."""


def read_text(file: Path) -> str:
    """The text of a file, or of a pipe.

    Raises:
        FileNotFoundError: there is none.
        UnreadableError: it cannot be read, is no UTF-8 text, or is larger than an experiment is.
    """
    try:
        with file.expanduser().open("rb") as stream:
            data = stream.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise UnreadableError(f"an experiment file has at most {_MOST_BYTES / 1e6:g} MB")
        return data.decode("utf-8")
    except FileNotFoundError:
        raise
    except UnicodeDecodeError:
        raise UnreadableError("not UTF-8 text") from None
    except OSError as error:
        raise UnreadableError(error.strerror or str(error)) from None
    except (ValueError, RuntimeError):  # a NUL or half a sign in its name; nobody's home folder
        raise UnreadableError("no file can have that name") from None
