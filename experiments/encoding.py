"""Values as bytes and back, for what is kept on disk and read again: nothing is unpickled.

The bytes are a safetensors file: the tensors of the value, and one more, ``structure``, JSON text
that describes the value. None, booleans, integers, text and finite floats are themselves in it;
everything else is a list that begins with its kind:

    ["list", item, …]   ["tuple", item, …]   ["dict", [key, value], …]   keys: text and integers
    ["float", bits]             not finite, as 16 hexadecimal digits
    ["bytes", name]             one of the file's tensors
    ["tensor", name, dtype, order]      its dimensions as they lie in memory, outermost first

What comes back has the same types and the same bits, tensors on the CPU, each with memory of its
own and its dimensions in the same order in memory, on which the kernels that it meets depend. A
dtype that safetensors lacks is kept as bytes, in one more dimension.

Reading is strict. Whatever was not written by ``encode`` is refused, and nothing in it is run.
"""

from __future__ import annotations

import functools
import json
import math
import struct
import typing
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from pydantic import TypeAdapter, ValidationError

if TYPE_CHECKING:
    from torch import Tensor

_STRUCTURE = "structure"
_DEEPEST = 100
_KEPT = {"float64", "float32", "float16", "bfloat16"}
_KEPT |= {"int64", "int32", "int16", "int8", "uint8", "bool"}
"""Dtypes that safetensors has had from its first release."""
_AS_BYTES = {"complex128", "complex64", "complex32", "uint64", "uint32", "uint16"}
_AS_BYTES |= {"float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"}
_AS_BYTES |= {"float8_e8m0fnu"}

T = TypeVar("T")


class UnencodableError(TypeError):
    """A value that cannot be kept; the message says what it is."""


class MalformedError(ValueError):
    """Bytes or values that ``encode`` or ``to_fields`` did not write."""


def encode(value: Any) -> bytes:
    """A nest of dicts, lists, tuples, None, booleans, numbers, text, bytes and tensors as bytes.

    Raises:
        UnencodableError: anything else is in it, also of a subclass of these types.
    """
    from safetensors.torch import save

    writer = _Writer()
    node = writer.node(value, "", 0)
    try:
        text = json.dumps(node, allow_nan=False, separators=(",", ":"))
    except ValueError:
        raise UnencodableError("an integer of thousands of digits") from None
    return save({**writer.tensors, _STRUCTURE: _of_bytes(text.encode())})


def decode(data: bytes) -> Any:
    """The value from which ``encode`` made ``data``.

    Raises:
        MalformedError: ``encode`` did not make it.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        tensors = load(data)
    except (SafetensorError, KeyError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        raise MalformedError("not a complete safetensors file") from error
    reader = _Reader(tensors)
    text = reader.raw(_STRUCTURE)
    try:
        node = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise MalformedError("its structure is not JSON text") from error
    value = reader.value(node, 0)
    if reader.tensors:
        raise MalformedError("tensors that are not in its structure")
    return value


def to_fields(value: Any) -> dict[str, Any]:
    """The fields of a dataclass by name, as they are."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


def from_fields(kind: type[T], content: Any) -> T:
    """The dataclass ``kind`` of these fields.

    Raises:
        MalformedError: other fields, or a value that is not of its field's type.
    """
    types = _types(kind)  # type: ignore[arg-type]
    if type(content) is not dict or content.keys() != types.keys():
        raise MalformedError(f"not the fields of {kind.__name__}")
    try:
        values = {n: each.validate_python(content[n], strict=True) for n, each in types.items()}
    except ValidationError as error:
        raise MalformedError(f"not the values of {kind.__name__}") from error
    return kind(**values)


@functools.cache
def _types(kind: Any) -> Mapping[str, TypeAdapter[Any]]:
    hints = typing.get_type_hints(kind)
    return {field.name: TypeAdapter(hints[field.name]) for field in fields(kind)}


class _Writer:
    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._memory: set[int] = set()

    def node(self, value: Any, path: str, depth: int) -> Any:
        kind = type(value)
        if depth > _DEEPEST:
            raise UnencodableError(f"{path or 'it'} is nested more than {_DEEPEST} deep")
        if value is None or kind is bool or kind is int:
            return value
        if kind is str:
            return self._text(value, path)
        if kind is float:
            return value if math.isfinite(value) else ["float", struct.pack(">d", value).hex()]
        if kind is list or kind is tuple:
            return [kind.__name__, *(self.node(item, path, depth + 1) for item in value)]
        if kind is dict:
            return ["dict", *(self._pair(key, item, path, depth) for key, item in value.items())]
        if kind is bytes:
            return ["bytes", self._put(_of_bytes(value))]
        if kind.__module__ == "torch" and kind.__name__ == "Tensor":
            return self._tensor(value, path)
        name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
        raise UnencodableError(f"{path or 'it'} is a {name}")

    def _pair(self, key: Any, value: Any, path: str, depth: int) -> list[Any]:
        if type(key) not in (str, int):
            raise UnencodableError(f"{path or 'it'} has a key of type {type(key).__qualname__}")
        # Numbers are places of trials or weights: the same error is in all of them, so name none.
        inner = f"{path}.{key}".lstrip(".") if type(key) is str else path
        if type(key) is str:
            self._text(key, path)
        return [key, self.node(value, inner, depth + 1)]

    def _text(self, text: str, path: str) -> str:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UnencodableError(f"{path or 'it'} is text with lone surrogates") from None
        return text

    def _tensor(self, value: Tensor, path: str) -> list[Any]:
        import torch

        dtype = str(value.dtype).removeprefix("torch.")
        plain = value.layout == torch.strided and value.device.type != "meta"
        if not plain or value.requires_grad or dtype not in _KEPT | _AS_BYTES:
            what = ", requires a gradient" if value.requires_grad else ""
            raise UnencodableError(f"{path or 'it'} is a tensor: {value.layout}, {dtype}{what}")
        value = value.resolve_conj().resolve_neg().cpu()
        strides = value.stride()
        order = sorted(range(value.dim()), key=lambda at: (-strides[at], at))
        if not value.permute(order).is_contiguous():
            order = list(range(value.dim()))
        value = value.permute(order).contiguous()
        if dtype in _AS_BYTES:
            value = value.unsqueeze(-1).view(torch.uint8)
        return ["tensor", self._put(value), dtype, order]

    def _put(self, value: Tensor) -> str:
        """Keep a tensor; each has memory of its own, all of it."""
        storage = value.untyped_storage()
        if storage.data_ptr() in self._memory or storage.nbytes() != value.nbytes:
            value = value.clone()
        self._memory.add(value.untyped_storage().data_ptr())
        name = str(len(self.tensors))
        self.tensors[name] = value
        return name


class _Reader:
    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = dict(tensors)
        """Those that no node has named yet: each is named once."""

    def value(self, node: Any, depth: int) -> Any:
        if depth > _DEEPEST:
            raise MalformedError("nested too deeply")
        if node is None or type(node) in (bool, int, str):
            return node
        if type(node) is float and math.isfinite(node):
            return node
        if type(node) is not list or not node or type(node[0]) is not str:
            raise MalformedError("a value of no kind")
        kind, *parts = node
        if kind == "list":
            return [self.value(part, depth + 1) for part in parts]
        if kind == "tuple":
            return tuple(self.value(part, depth + 1) for part in parts)
        if kind == "dict":
            return self._dict(parts, depth)
        if kind == "float" and len(parts) == 1:
            return _not_finite(parts[0])
        if kind == "bytes" and len(parts) == 1:
            return self.raw(parts[0])
        if kind == "tensor" and len(parts) == 3:
            return self._tensor(*parts)
        raise MalformedError(f"a value of the kind {kind[:20]!r}")

    def _dict(self, pairs: list[Any], depth: int) -> dict[Any, Any]:
        content: dict[Any, Any] = {}
        for pair in pairs:
            if type(pair) is not list or len(pair) != 2 or type(pair[0]) not in (str, int):
                raise MalformedError("an entry without a key")
            if pair[0] in content:
                raise MalformedError("a key that occurs twice")
            content[pair[0]] = self.value(pair[1], depth + 1)
        return content

    def raw(self, name: Any) -> bytes:
        tensor = self._take(name, "uint8")
        if tensor.dim() != 1:
            raise MalformedError("bytes in several dimensions")
        return tensor.numpy().tobytes()

    def _tensor(self, name: Any, dtype: Any, order: Any) -> Tensor:
        import torch

        if type(dtype) is not str or dtype not in _KEPT | _AS_BYTES:
            raise MalformedError("a tensor of no known dtype")
        value = self._take(name, "uint8" if dtype in _AS_BYTES else dtype)
        if dtype in _AS_BYTES:
            kind = getattr(torch, dtype)
            if not value.dim() or value.shape[-1] != kind.itemsize:
                raise MalformedError("a tensor of another dtype's size")
            value = value.view(kind).squeeze(-1)
        if type(order) is not list or any(type(at) is not int for at in order):
            raise MalformedError("dimensions that are not ordered")
        if sorted(order) != list(range(value.dim())):
            raise MalformedError("dimensions that are not ordered")
        return value.permute([order.index(at) for at in range(len(order))])

    def _take(self, name: Any, dtype: str) -> Tensor:
        if type(name) is not str or name not in self.tensors:
            raise MalformedError("a tensor that does not exist")
        tensor = self.tensors.pop(name)
        if str(tensor.dtype) != f"torch.{dtype}":
            raise MalformedError("a tensor of another dtype")
        return tensor


def _of_bytes(data: bytes) -> Tensor:
    import torch

    if not data:
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _not_finite(bits: Any) -> float:
    try:
        (value,) = struct.unpack(">d", bytes.fromhex(bits))
    except (TypeError, ValueError, struct.error) as error:
        raise MalformedError("a float without its bits") from error
    if math.isfinite(value) or len(bits) != 16:
        raise MalformedError("a float that is another kind of value")
    return float(value)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
