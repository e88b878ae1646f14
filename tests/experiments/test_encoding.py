"""Values as bytes and back: the same types, the same bits, and nothing but what was written."""

from __future__ import annotations

import collections
import json
import math
import pickle
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load, save

from experiments.encoding import (
    MalformedError,
    UnencodableError,
    decode,
    encode,
    from_fields,
    to_fields,
)
from experiments.plan import Measurement

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=True)
    | st.text()
    | st.binary(max_size=20)
)
keys = st.text(max_size=5) | st.integers()
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(keys, inner, max_size=4)
    ),
    max_leaves=20,
)


def same(left: Any, right: Any) -> bool:
    """Whether two values are of the same types and bits."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        pairs = zip(left.items(), right.items(), strict=True)
        return len(left) == len(right) and all(same(a, b) for a, b in pairs)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, float):
        return struct.pack(">d", left) == struct.pack(">d", right)
    if isinstance(left, torch.Tensor):
        alike = left.dtype == right.dtype and left.shape == right.shape
        return alike and raw(left) == raw(right)
    return bool(left == right)


def raw(tensor: torch.Tensor) -> bytes:
    plain = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1)
    return plain.view(torch.uint8).numpy().tobytes()


@given(values)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    assert same(decode(encode(value)), value)


@given(st.integers(0, 2**64 - 1))
def test_every_float_comes_back_bit_for_bit(bits: int) -> None:
    (value,) = struct.unpack(">d", struct.pack(">Q", bits))
    assert same(decode(encode([value])), [value])


DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool),
    *(torch.int64, torch.int32, torch.int16, torch.int8),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    *(torch.complex128, torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_of_every_dtype_and_shape(dtype: torch.dtype) -> None:
    for shape in [(), (0,), (3, 0), (1,), (5,), (2, 3), (2, 3, 4, 5)]:
        bits = torch.randint(0, 2, (*shape, dtype.itemsize), dtype=torch.uint8)
        if dtype != torch.bool:
            bits = torch.randint(0, 256, (*shape, dtype.itemsize), dtype=torch.uint8)
        tensor = bits.view(dtype).squeeze(-1)
        assert tensor.shape == shape
        assert same(decode(encode({"a": (tensor,)})), {"a": (tensor,)})


def test_tensors_however_they_lie_in_memory() -> None:
    x = torch.randn(4, 3, 5, 6)
    numbers = torch.tensor([1 + 2j, float("nan") - 3j])
    lying = [
        x.to(memory_format=torch.channels_last),
        x.permute(3, 1, 0, 2),
        x[::2, 1:],
        x[:, 0],
        x.expand(2, 4, 3, 5, 6),
        numbers.conj(),
        numbers.imag,
        torch.tensor(float("-inf")),
    ]
    read = decode(encode(lying))
    assert same(read, lying)
    # The kernels that a tensor meets depend on the order of its dimensions in memory.
    assert [tensor.stride() for tensor in read[:2]] == [tensor.stride() for tensor in lying[:2]]


def test_tensors_that_share_memory_come_back_apart() -> None:
    x = torch.arange(6.0)
    shared = [x, x, x[:3], x[3:].view(1, 3)]
    read = decode(encode(shared))
    assert same(read, shared)
    read[0].zero_()
    assert same(read[1:], shared[1:])


class Odd(dict):
    """A dict that would come back as another type."""


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (Odd(), r"^state\.held is a .*Odd$"),
        (collections.deque([1]), r"^state\.held is a collections\.deque$"),
        ({1, 2}, r"^state\.held is a set$"),
        (np.float64(1), r"^state\.held is a numpy\.float64$"),
        (torch.Size([1]), r"^state\.held is a torch\.Size$"),
        (torch.nn.Parameter(torch.ones(1)), r"^state\.held is a torch\.nn\.parameter\.Parameter$"),
        (torch.ones(1, requires_grad=True), r"^state\.held is a tensor: .* requires a gradient$"),
        (torch.ones(1, device="meta"), r"^state\.held is a tensor"),
        ({(1, 2): 3}, r"^state\.held has a key of type tuple$"),
        ({True: 3}, r"^state\.held has a key of type bool$"),
        (lambda: None, r"^state\.held is a function$"),
        (10**5000, "thousands of digits"),
        ("\ud83d", r"^state\.held is text with lone surrogates$"),
        ({"\udc00": 1}, r"^state\.held is text with lone surrogates$"),
    ],
    ids=lambda case: type(case).__name__,
)
def test_what_cannot_be_kept_is_named(value: Any, says: str) -> None:
    with pytest.raises(UnencodableError, match=says):
        encode({"state": [{"held": value}]})


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(UnencodableError, match="nested more than"):
        encode(value)


def written(structure: Any, **tensors: torch.Tensor) -> bytes:
    """A file of this structure: any JSON, or text."""
    text = structure if isinstance(structure, str) else json.dumps(structure)
    held = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
    return save({"structure": held, **tensors})


ONE = torch.ones(2, 3)
BYTES = torch.ones(4, dtype=torch.uint8)


def test_the_files_of_the_next_test_are_near_ones_that_can_be_read() -> None:
    assert same(decode(written(["tensor", "0", "float32", [0, 1]], **{"0": ONE})), ONE)
    assert decode(written(["dict", ["a", 1], [2, ["list"]]])) == {"a": 1, 2: []}
    assert decode(written(["float", "7ff0000000000000"])) == math.inf
    assert decode(written(["bytes", "0"], **{"0": BYTES})) == b"\1\1\1\1"


@pytest.mark.parametrize(
    ("structure", "tensors"),
    [
        ({}, {}),
        ({"a": 1}, {}),
        ([], {}),
        ([1], {}),
        ([None, 1], {}),
        (["set", 1], {}),
        (["Tuple", 1], {}),
        (["dict", ["a"]], {}),
        (["dict", [1.5, 1]], {}),
        (["dict", [None, 1]], {}),
        (["dict", [True, 1]], {}),
        (["dict", ["a", 1], ["a", 2]], {}),
        (["dict", "ab"], {}),
        (["float", "3ff0000000000000"], {}),  # a finite float stands for itself
        (["float", "7ff000000000000"], {}),
        (["float", "7ff0 0000000000000"], {}),
        (["float", 1], {}),
        (["float"], {}),
        ("1e999", {}),
        ("NaN", {}),
        ("-Infinity", {}),
        ("{", {}),
        (" ", {}),
        ("[" * 100_000 + "]" * 100_000, {}),
        ('["list",' * 150 + "1" + "]" * 150, {}),
        ("9" * 5000, {}),
        (["bytes", "0"], {}),
        (["bytes", "structure"], {}),
        (["bytes", "0"], {"0": ONE}),
        (["bytes", "0"], {"0": BYTES.view(2, 2)}),
        (["bytes", ["0"]], {"0": BYTES}),
        (None, {"0": ONE}),  # a tensor that nothing names
        (["list", ["bytes", "0"], ["bytes", "0"]], {"0": BYTES}),
        (["tensor", "0"], {"0": ONE}),
        (["tensor", "0", "float64", [0, 1]], {"0": ONE}),
        (["tensor", "0", "float32", [0]], {"0": ONE}),
        (["tensor", "0", "float32", [0, 0]], {"0": ONE}),
        (["tensor", "0", "float32", [0, True]], {"0": ONE}),
        (["tensor", "0", "float32", None], {"0": ONE}),
        (["tensor", "0", "load", [0, 1]], {"0": ONE}),
        (["tensor", "0", "complex64", []], {"0": BYTES}),
        (["tensor", "0", "complex64", []], {"0": ONE}),
        (["tensor", 0, "float32", [0, 1]], {"0": ONE}),
    ],
    ids=lambda case: repr(case)[:40],
)
def test_what_encode_did_not_write_is_refused(structure: Any, tensors: Any) -> None:
    with pytest.raises(MalformedError):
        decode(written(structure, **tensors))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 8,
        b"\xff" * 64,
        pickle.dumps({"a": 1}),
        save({}),
        save({"0": ONE}),
        save({"structure": ONE}),
        save({"structure": BYTES.view(2, 2)}),
    ],
    ids=range(8),
)
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedError):
        decode(data)


WHOLE = encode({"a": [1, 2.5, (None, "text")], 3: torch.arange(6).view(2, 3), "b": b"123"})


@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 255), st.integers(0, len(WHOLE)))
def test_a_damaged_file_is_refused_or_another_value(at: int, byte: int, length: int) -> None:
    damaged = bytearray(WHOLE)
    damaged[at] = byte
    for data in (bytes(damaged), WHOLE[:length], bytes(damaged[:length]), WHOLE + bytes([byte])):
        try:
            value = decode(data)
        except MalformedError:
            continue
        assert type(value) in (dict, list, tuple, int, str, float, bytes, type(None), torch.Tensor)
    assert length == len(WHOLE) or not _reads(WHOLE[:length])


def _reads(data: bytes) -> bool:
    try:
        decode(data)
    except MalformedError:
        return False
    return True


def test_the_file_is_one_of_safetensors() -> None:
    tensors = load(WHOLE)
    assert json.loads(tensors["structure"].numpy().tobytes())[0] == "dict"
    assert {name for name in tensors if name != "structure"} == {"0", "1"}


# Dataclasses, field by field


@dataclass(frozen=True, kw_only=True)
class Point:
    name: str
    steps: tuple[int, ...]
    share: float = 0.0
    extra: Any = None


def test_a_dataclass_field_by_field() -> None:
    point = Point(name="a", steps=(1, 2), extra={"x": [1]})
    assert to_fields(point) == {"name": "a", "steps": (1, 2), "share": 0.0, "extra": {"x": [1]}}
    assert from_fields(Point, decode(encode(to_fields(point)))) == point


@pytest.mark.parametrize(
    "change",
    [
        {"name": 1},
        {"name": None},
        {"steps": [1, 2]},
        {"steps": (1, "2")},
        {"steps": (True,)},
        {"share": "0.5"},
        {"another": 1},
    ],
    ids=repr,
)
def test_a_field_of_another_type_is_refused(change: dict[str, Any]) -> None:
    content = {"name": "a", "steps": (1, 2), "share": 0.5, "extra": None}
    assert from_fields(Point, content).share == 0.5
    with pytest.raises(MalformedError):
        from_fields(Point, {**content, **change})
    for missing in content:
        with pytest.raises(MalformedError):
            from_fields(Point, {k: v for k, v in content.items() if k != missing})
    for other in (None, [], "abc", [("name", "a")]):
        with pytest.raises(MalformedError):
            from_fields(Point, other)


def test_measurements() -> None:
    point = Measurement(
        trial="a", step=1, examples=8, train_seconds=0.5, metrics={"e": math.inf, "f": 0.1}
    )
    assert from_fields(Measurement, decode(encode(to_fields(point)))) == point
