"""Secrets in addresses are masked in all displayed, written or logged text.

``s3://KEY:SECRET@bucket/folder?session_token=T`` reads ``s3://***@bucket/folder?session_token=***``.
"""

from __future__ import annotations

import os
import re
from urllib.parse import unquote

MASK = "***"

_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]+:/{1,2}"
# Up to the last @ of the authority; a secret with a slash in it (which should have been written
# %2F) shows by the colon before it.
_USER = re.compile(rf"({_SCHEME})(?:[^\s/\"'<>]*|[^\s/:@\"'<>]*:[^\s\"'<>]*)@")
_PARAMETER = re.compile(r"([?&;#])([\w.%~-]+)=([^\s&;#\"'<>]+)")
_NAMES = re.compile(
    r"key|secret|token|pass|pwd|sig|cred|auth|sas\b|ticket|session|private|login|jwt|otp|code",
    re.IGNORECASE,
)
"""Parts of names of parameters whose values may be secret."""
_OPAQUE = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[\w+/%~-]{20,}=*")
"""A long value of letters and digits is masked under any name: nobody would write it by hand."""
_ADDRESS = re.compile(_SCHEME)
_VARIABLE = re.compile(
    r"(SECRET|TOKEN|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|APIKEY|(^|_)KEY(_ID)?)$", re.IGNORECASE
)
"""Ends of names of environment variables whose values are secret, unless they are a file's name."""
_SHORTEST_VALUE = 8
"""Characters of a secret variable's value: a shorter one may be an ordinary word or number."""
_SHORT = 4
"""A secret of fewer characters is masked only as a separate word."""


def masked(text: str, *given: str) -> str:
    """``text`` with the secrets of every address in it masked.

    Masked is everything between ``://`` and ``@``, and the values of query parameters that may be
    secret.

    Args:
        given: texts with addresses of which ``text`` may hold parts, as a library's message may:
            their secrets are masked everywhere.
    """
    for other in given:
        if address := _ADDRESS.search(other):
            for secret in _secrets(other[address.start() :]):
                text = _replace(text, secret)
    if ":/" not in text:
        return text
    text = _USER.sub(rf"\1{MASK}@", text)
    return _PARAMETER.sub(_parameter, text)


def without_variables(text: str) -> str:
    """``text`` without the values of secret environment variables: ``HF_TOKEN``,
    ``AWS_SECRET_ACCESS_KEY``. For errors and tracebacks, which may quote anything."""
    values = {value for name, value in os.environ.items() if _VARIABLE.search(name)}
    for value in sorted(values, key=len, reverse=True):
        if len(value) >= _SHORTEST_VALUE and value in text and not os.path.exists(value):
            text = text.replace(value, MASK)
    return text


def well_formed(address: str) -> bool:
    """Whether the keys of a URI hold no sign that has to be written otherwise: %2F for a slash."""
    return not re.search(r"[/?#@\s]", _whole_user(address))


def is_address(text: str) -> bool:
    """Whether a text begins as a URI does, or as a path made of one (``s3:/bucket``)."""
    return _ADDRESS.match(text) is not None


def _parameter(match: re.Match[str]) -> str:
    mark, name, value = match.groups()
    secret = _NAMES.search(unquote(name)) or _OPAQUE.fullmatch(value) or "@" in unquote(value)
    return f"{mark}{name}={MASK if secret else value}"


def _secrets(address: str) -> list[str]:
    """Every part of an address that is masked, as written and as it is read; the longest first."""
    user = _whole_user(address)
    parts = [address, user, *re.split(r"[:/@\s]+", user)]
    parts += [m[3] for m in _PARAMETER.finditer(address) if MASK in _parameter(m)]
    forms = {form for part in parts for form in (part, unquote(part))}
    forms -= {"", MASK, masked(address)}
    return sorted(forms, key=lambda form: (-len(form), form))


def _whole_user(address: str) -> str:
    """The text between ``://`` and the last ``@``, also with blanks, which no address in a text
    has."""
    scheme = _ADDRESS.match(address)
    if scheme is None or "@" not in address:
        return ""
    user = address[scheme.end() :].rpartition("@")[0]
    return user if ":" in user.partition("/")[0] or "/" not in user else ""


def _replace(text: str, secret: str) -> str:
    if is_address(secret):
        return text.replace(secret, masked(secret))
    if len(secret) >= _SHORT:
        return text.replace(secret, MASK)
    return re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", MASK, text)
