"""cluster.yaml is what Ray's own schema and its own validation accept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import ray
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = Path(ray.__file__).parent / "autoscaler" / "ray-schema.json"


@pytest.fixture
def cluster() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "cluster.yaml").read_text())
    return found


def test_it_keeps_rays_schema(cluster: dict[str, Any]) -> None:
    jsonschema.validate(cluster, json.loads(SCHEMA.read_text()))


def test_ray_itself_accepts_it(cluster: dict[str, Any]) -> None:
    validate_config(prepare_config(cluster))


def test_an_unknown_key_would_be_refused(cluster: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**cluster, "min_workers": 1}, json.loads(SCHEMA.read_text()))


def test_the_workers_have_gpus_and_the_head_does_no_work(cluster: dict[str, Any]) -> None:
    types = cluster["available_node_types"]
    assert types[cluster["head_node_type"]]["resources"] == {"CPU": 0}
    assert types["gpu"]["node_config"]["InstanceType"].startswith("g")
    assert types["gpu"]["max_workers"] <= cluster["max_workers"]


def test_every_node_has_this_machines_ray_and_the_docs_say_so(cluster: dict[str, Any]) -> None:
    versions = {image.split(":")[1].split("-")[0] for image in (
        cluster["docker"]["head_image"], cluster["docker"]["worker_image"])}  # fmt: skip
    assert len(versions) == 1
    assert versions.pop() in (ROOT / "docs" / "cluster.md").read_text()
