"""A Ray that a sweep starts obeys only those who have its token.

Whoever connects to a Ray runs code in it, and every user of a machine reaches its loopback. Ray
(2.52 and later) can ask for a token. Left to itself it keeps one for all clusters in a file,
``~/.ray/auth_token``, with the permissions of any new file. Ours is new for each Ray, and lies in
the environment of its processes alone, which no other user can read.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

MODE, TOKEN, PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
_BYTES = 32


@contextmanager
def private_token() -> Iterator[None]:
    """Processes that start inside ask for a token which they and this process alone have.

    Whoever has set one of Ray's variables has chosen: it is kept.
    """
    if {MODE, TOKEN, PATH} & os.environ.keys():
        yield
        return
    os.environ.update({MODE: "token", TOKEN: secrets.token_hex(_BYTES)})
    try:
        reload_token()
        yield
    finally:
        # Ray has read both by now. A program that the driver starts later has no use for them.
        for name in (MODE, TOKEN):
            os.environ.pop(name, None)


def reload_token() -> None:
    """Have Ray read its variables again, after the end of ours too: another one, to which this
    process connects, has another token. A Ray without tokens has nothing to read."""
    try:
        from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]
    except ImportError:
        return
    Config.initialize("")  # first: a thread of Ray's that still ends may ask for the token
    AuthenticationTokenLoader.instance().reset_cache()
