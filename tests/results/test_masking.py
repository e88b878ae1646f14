"""Keys in an address are masked wherever they can be read."""

from __future__ import annotations

import pickle
from pathlib import Path

import pandas as pd
import pytest

from results.errors import ClearError, ResultsError
from results.reader import open as open_results
from results.storage import location as module
from results.storage.location import Location
from results.storage.masking import masked
from results.storage.save import save


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://KEY:SECRET@bucket/folder", "s3://***@bucket/folder"),
        ("s3://TOKEN@bucket/folder", "s3://***@bucket/folder"),
        ("s3://KEY:SEC@RET@bucket/a", "s3://***@bucket/a"),
        ("s3://KEY:SEC/RET@bucket/a", "s3://***@bucket/a"),
        ("s3:/KEY:SECRET@bucket", "s3:/***@bucket"),
        ("S3://KEY:SECRET@bucket", "S3://***@bucket"),
        ("cannot open 's3://K:S@b/c': no", "cannot open 's3://***@b/c': no"),
        ("from s3://K:S@b and gs://T@c/d.", "from s3://***@b and gs://***@c/d."),
        ("s3://b/c?access_key=KEY&secret_key=SECRET", "s3://b/c?access_key=***&secret_key=***"),
        ("s3://b/c?region=eu&session_token=T", "s3://b/c?region=eu&session_token=***"),
        ("https://h/x?sv=2024&sig=a%2Fb%3D&se=1", "https://h/x?sv=2024&sig=***&se=1"),
        ("https://h/x?X-Amz-Signature=ab#token=c", "https://h/x?X-Amz-Signature=***#token=***"),
        ("https://h/x?password=p;user=me", "https://h/x?password=***;user=me"),
        ("https://h/x?acc%65ss_k%65y=KEY", "https://h/x?acc%65ss_k%65y=***"),
        ("s3://b/c?endpoint_override=http://K:S@host", "s3://b/c?endpoint_override=***"),
        ("s3://b?endpoint_override=http%3A%2F%2FK%3AS%40h", "s3://b?endpoint_override=***"),
        ("s3://b/c?x=wJalrXUtnFEMIK7MDENGbPxRfiCY", "s3://b/c?x=***"),
    ],
)
def test_what_is_masked(text: str, shown: str) -> None:
    assert masked(text) == shown
    assert masked(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "results/runs",
        "/tmp/a@b/c:d",
        "s3://bucket/folder?region=eu-west-1&endpoint_override=minio.example.com:9000",
        "s3://bucket/mail@example",
        "file:///tmp/a@b",
        "https://openreview.net/forum?id=H1oyRlYgg",
        "https://github.com/mlcommons/logging@master",
        "write to me@example.org: it is 5://6",
        "trials=8 and token=9",
    ],
)
def test_what_is_left(text: str) -> None:
    assert masked(text) == text


def test_the_parts_of_an_address_are_masked_in_what_others_say_of_it() -> None:
    address = "s3://KEY:SEC%2FRET@bucket/a?session_token=T0K"
    said = "bad key KEY with SEC/RET (SEC%2FRET), token T0K, in KEYBOARD"
    assert masked(said, address) == "bad key *** with *** (***), token ***, in KEYBOARD"
    assert masked("cannot parse 's3://A B:C D@b'", "s3://A B:C D@b") == "cannot parse 's3://***@b'"


ADDRESS = "s3://AKID42:wJal%2FrXU@bucket/runs?session_token=FwoGZX"
SECRETS = ("AKID42", "wJal", "rXU", "FwoGZX")


def shows_none(text: str) -> bool:
    return not any(secret in text for secret in SECRETS)


def test_a_location_shows_no_keys_and_opens_again(
    bucket: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def from_uri(uri: str) -> tuple[object, str]:
        opened.append(uri)
        return bucket.filesystem, "/bucket/runs"

    monkeypatch.setattr(module, "from_uri", from_uri)
    location = Location(ADDRESS)
    assert location.root == "s3://***@bucket/runs?session_token=***"
    assert location.display("trials") == "s3://***@bucket/runs/trials"
    assert shows_none(repr(location) + str(location) + f"{location}")
    again = pickle.loads(pickle.dumps(location))
    assert again == location
    assert hash(again) == hash(location)
    assert opened == [ADDRESS, ADDRESS]
    assert Location(ADDRESS.replace("AKID42", "other")) != location
    assert Location.of(location) is location


def test_what_pyarrow_says_of_a_uri_has_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    def from_uri(uri: str) -> tuple[object, str]:
        raise OSError(f"no credentials AKID42:wJal/rXU (FwoGZX) for {uri}")

    monkeypatch.setattr(module, "from_uri", from_uri)
    with pytest.raises(ResultsError, match=r"cannot open s3://\*\*\*@bucket") as raised:
        open_results(ADDRESS)
    assert shows_none(str(raised.value))
    assert raised.value.__cause__ is None  # a traceback would show it


def test_pyarrow_itself_is_asked() -> None:
    for address in ("nowhere://AKID42:wJal@b", "s3://bucket/a?access_key=AKID42&secret_key=wJal"):
        with pytest.raises(ResultsError) as raised:
            Location(address)
        assert shows_none(str(raised.value))


def test_what_pyarrow_says_of_a_file_has_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refuses:
        def __getattr__(self, name: str) -> object:
            raise OSError(f"{name} of AKID42 denied: signature wJal/rXU")

    monkeypatch.setattr(module, "from_uri", lambda _: (Refuses(), "bucket/runs"))
    monkeypatch.setattr(module.ObjectStore, "open", lambda *_: Refuses())
    location = Location(ADDRESS)
    for call in (
        lambda: location.files("trials"),
        lambda: location.read("trials/a"),
        lambda: location.exists("trials/a"),
        lambda: location.write("trials/a", b""),
        lambda: location.delete("trials/a"),
        location.require,
        location.empty,
    ):
        with pytest.raises(ResultsError, match=r"s3://\*\*\*@bucket/runs") as raised:
            call()
        assert shows_none(str(raised.value))


@pytest.mark.parametrize("address", ["s3://AKID42:wJal/rXU@bucket/a", "s3://AKID42:wJ l@b"])
def test_a_key_that_a_uri_cannot_hold(address: str) -> None:
    with pytest.raises(ResultsError, match="a key in it contains a character") as raised:
        Location(address)
    assert "%2F" in (raised.value.hint or "")
    assert shows_none(str(raised.value))


def test_a_uri_as_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be made into a folder called by the keys."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ResultsError, match="there is no folder s3:/") as raised:
        Location(Path(ADDRESS))
    assert shows_none(str(raised.value))
    assert not list(tmp_path.iterdir())
    (tmp_path / "a1:").mkdir()
    assert Location("a1:/").local


@pytest.mark.parametrize("name", ["", " "])
def test_a_folder_without_a_name(name: str) -> None:
    with pytest.raises(ResultsError, match="no results folder is named"):
        Location(name)


def test_an_error_is_one_line_without_keys() -> None:
    error = ClearError(f"no {ADDRESS}\nin \x1b[31m\ud800\u202e", hint=f"open\t{ADDRESS}")
    assert shows_none(str(error) + str(error.hint))
    assert str(error).endswith("\\nin \\x1b[31m\\ud800\\u202e")
    assert len(str(ClearError("x" * 100_000))) < 3_000


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet"])
def test_a_table_that_is_written_has_no_keys(tmp_path: Path, suffix: str) -> None:
    frame = pd.DataFrame([[ADDRESS, 1, None], ["plain", 2, 0.5]], columns=["a", "b", "c"])
    file = tmp_path / f"a.{suffix}"
    save(frame, file)
    assert frame["a"][0] == ADDRESS
    text = str(pd.read_parquet(file)) if suffix == "parquet" else file.read_text()
    assert "***@bucket" in text
    assert "plain" in text
    assert shows_none(text)
