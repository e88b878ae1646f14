"""Whose the Ray is that runs on this machine.

``ray start`` writes its address into the temporary folder, which all users of a machine share:
whoever connects to it runs code there, and takes code from it.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

_LISTENING = "0A"


def read_own(file: Path) -> tuple[str | None, str | None]:
    """The address that a file of Ray's names, if file and Ray are this user's; else why not, in a
    sentence. Both are ``None`` where there is no such file."""
    try:
        with file.open(encoding="utf-8") as stream:
            owners = {os.fstat(stream.fileno()).st_uid}
            address = stream.read().strip()
    except (OSError, ValueError):
        return None, None
    owners |= _listeners(address)
    if others := owners - {os.getuid()}:
        ids = " and ".join(map(str, sorted(others)))
        return None, (
            f"the Ray at {address}, which {file} names, is of another user (id {ids}): it is not "
            "joined, and this sweep starts its own. --address HOST:PORT joins it all the same."
        )
    return address, None


def _listeners(address: str) -> set[int]:
    """The users whose processes of this machine listen there; none where that is not known."""
    host, _, port = address.rpartition(":")
    users = set()
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, int(port)))  # sends nothing
            if probe.getsockname()[0] != probe.getpeername()[0]:
                return set()  # another machine's
        for name in ("tcp", "tcp6"):
            for line in Path("/proc/net", name).read_text(encoding="ascii").splitlines()[1:]:
                _, local, _, state, _, _, _, user, *_ = line.split()
                if state == _LISTENING and int(local.rpartition(":")[2], 16) == int(port):
                    users.add(int(user))
    except (OSError, ValueError):
        pass
    return users
