"""cluster.yaml and the files of docs/cluster: what Ray, Kubernetes and SLURM would accept."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

from tests.batchscale.blocks import parse_ours

ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / "docs" / "cluster"
DOCKERFILE = (FILES / "Dockerfile").read_text()
DOCS = (ROOT / "docs" / "cluster.md").read_text()

# KubeRay's types (ray-operator/apis/ray/v1: RayJobSpec, RayClusterSpec, AutoscalerOptions,
# HeadGroupSpec, WorkerGroupSpec) and Kubernetes' PodSpec and Container, as far as they are used.
RAY_JOB = {
    "activeDeadlineSeconds": int, "backoffLimit": int, "clusterSelector": dict,
    "entrypoint": str, "entrypointNumCpus": float, "entrypointNumGpus": float,
    "entrypointResources": str, "jobId": str, "metadata": dict, "rayClusterSpec": dict,
    "runtimeEnvYAML": str, "shutdownAfterJobFinishes": bool, "submissionMode": str,
    "submitterConfig": dict, "submitterPodTemplate": dict, "suspend": bool,
    "ttlSecondsAfterFinished": int,
}  # fmt: skip
RAY_CLUSTER = {
    "autoscalerOptions": dict, "enableInTreeAutoscaling": bool, "headGroupSpec": dict,
    "headServiceAnnotations": dict, "rayVersion": str, "suspend": bool, "workerGroupSpecs": list,
}  # fmt: skip
AUTOSCALER = {
    "env": list, "envFrom": list, "idleTimeoutSeconds": int, "image": str, "imagePullPolicy": str,
    "resources": dict, "securityContext": dict, "upscalingMode": str, "volumeMounts": list,
}  # fmt: skip
HEAD_GROUP = {
    "enableIngress": bool, "headService": dict, "rayStartParams": dict, "serviceType": str,
    "template": dict,
}  # fmt: skip
WORKER_GROUP = {
    "groupName": str, "maxReplicas": int, "minReplicas": int, "numOfHosts": int,
    "rayStartParams": dict, "replicas": int, "scaleStrategy": dict, "template": dict,
}  # fmt: skip
POD = {
    "containers": list, "serviceAccountName": str, "terminationGracePeriodSeconds": int,
    "volumes": list,
}  # fmt: skip
CONTAINER = {
    "image": str, "name": str, "ports": list, "resources": dict, "volumeMounts": list,
}  # fmt: skip


@pytest.fixture
def cluster() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((ROOT / "cluster.yaml").read_text())
    return read


@pytest.fixture
def job() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((FILES / "rayjob.yaml").read_text())
    return read


def test_ray_itself_accepts_it(cluster: dict[str, Any]) -> None:
    validate_config(prepare_config(cluster))


def test_the_workers_have_gpus_and_the_head_does_no_work(cluster: dict[str, Any]) -> None:
    types = cluster["available_node_types"]
    assert types[cluster["head_node_type"]]["resources"] == {"CPU": 0}
    assert types["gpu"]["node_config"]["InstanceType"].startswith("g")
    assert types["gpu"]["max_workers"] <= cluster["max_workers"]


def test_a_new_machine_installs_nothing(cluster: dict[str, Any], job: dict[str, Any]) -> None:
    keys = ("setup_commands", "worker_setup_commands", "head_setup_commands")
    assert not any(cluster.get(key) for key in keys)
    groups = job["spec"]["rayClusterSpec"]
    pods = [each["template"] for each in (groups["headGroupSpec"], *groups["workerGroupSpecs"])]
    images = {container["image"] for pod in pods for container in pod["spec"]["containers"]}
    assert images == {cluster["docker"]["image"]}
    assert "runtimeEnvYAML" not in job["spec"]


def test_every_node_has_this_machines_ray_and_the_docs_say_so(job: dict[str, Any]) -> None:
    (version,) = re.findall(r"^FROM rayproject/ray:([\d.]+)-py311-gpu$", DOCKERFILE, re.MULTILINE)
    assert job["spec"]["rayClusterSpec"]["rayVersion"] == version
    assert version in (ROOT / "cluster.yaml").read_text()
    assert version in DOCS
    assert version == ray.__version__


def test_the_image_copies_files_that_exist() -> None:
    for line in re.findall(r"^COPY \S+ (.*)$", DOCKERFILE, re.MULTILINE):
        for name in line.split()[:-1]:
            assert (ROOT / name).exists(), name
    ignored = (FILES / "Dockerfile.dockerignore").read_text().split()
    assert {".git", ".venv"} <= set(ignored)


def test_the_images_requirements_are_the_projects(tmp_path: Path) -> None:
    program = DOCKERFILE.partition("<<'PYTHON'")[2].partition("\n")[2].partition("\nPYTHON\n")[0]
    program = program.replace("/home/ray/batchscale", str(ROOT))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert any(line.startswith("torch") for line in done.stdout.splitlines())
    assert any(line.startswith("ray[") for line in done.stdout.splitlines())


def _fields(given: dict[str, Any], types: Mapping[str, Any]) -> None:
    for name, value in given.items():
        assert name in types, name
        assert isinstance(value, types[name]), name


def test_the_ray_job_has_kuberays_fields(job: dict[str, Any]) -> None:
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert set(job) == {"apiVersion", "kind", "metadata", "spec"}
    cluster = job["spec"]["rayClusterSpec"]
    head, workers = cluster["headGroupSpec"], cluster["workerGroupSpecs"]
    _fields(job["spec"], RAY_JOB)
    _fields(cluster, RAY_CLUSTER)
    _fields(cluster["autoscalerOptions"], AUTOSCALER)
    _fields(head, HEAD_GROUP)
    for group in workers:
        _fields(group, WORKER_GROUP)
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for group in (head, *workers):
        assert all(isinstance(text, str) for text in group["rayStartParams"].values())
        pod = group["template"]["spec"]
        _fields(pod, POD)
        volumes = {volume["name"] for volume in pod.get("volumes", ())}
        for container in pod["containers"]:
            _fields(container, CONTAINER)
            # A container that may use more than it asks for is killed when its node is full.
            assert container["resources"]["limits"] == container["resources"]["requests"]
            assert {mount["name"] for mount in container.get("volumeMounts", ())} <= volumes


@pytest.mark.parametrize("place", ["AWS", "Kubernetes"])
def test_the_commands_ask_for_all_gpus_that_may_be_started(
    place: str, cluster: dict[str, Any], job: dict[str, Any]
) -> None:
    """At the beginning there is a head alone: Ray knows of no GPU."""
    if place == "AWS":
        (line,) = re.findall(r"^ray job submit .* -- (.*)$", DOCS, re.MULTILINE)
        most = cluster["max_workers"]
    else:
        line = job["spec"]["entrypoint"]
        most = job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["maxReplicas"]
    command = shlex.split(line)
    parse_ours(command)
    assert command[command.index("--grows-to") + 1] == str(most)
    assert command[command.index("--set") + 1] == "gpus=1"


# Fake programs of SLURM: srun runs its command here, and writes down how it was called.
FAKES = {
    "srun": """#!/bin/bash
echo "srun $*" >> "$CALLS"
while [ $# -gt 0 ]; do case $1 in -*) shift ;; *) break ;; esac; done
exec "$@"
""",
    "batchscale": """#!/bin/bash
echo "batchscale $*" >> "$CALLS"
exit "${SWEEP_STATUS:-0}"
""",
    "ray": """#!/bin/bash
echo "ray $* token=${#RAY_AUTH_TOKEN}" >> "$CALLS"
exec sleep 60
""",
    "scontrol": "#!/bin/bash\nprintf 'a1\\na2\\na3\\n'\n",
    "hostname": "#!/bin/bash\necho 10.0.0.1 fe80::1\n",
}


def _as_slurm(script: str, folder: Path, **variables: str) -> tuple[int, list[str]]:
    """Run a job script with fake programs; its exit status, and their calls."""
    for name, text in FAKES.items():
        file = folder / name
        file.write_text(text)
        file.chmod(0o755)
    calls = folder / "calls"
    calls.touch()
    done = subprocess.run(
        ["bash", str(FILES / script), "my_model.yaml", "/shared/my runs"],
        env={
            "PATH": f"{folder}:{os.environ['PATH']}",
            "CALLS": str(calls),
            "SLURM_JOB_ID": "70123",
            "SLURM_JOB_NODELIST": "a[1-3]",
            "SLURM_CPUS_PER_TASK": "32",
            "SLURM_GPUS_ON_NODE": "8",
            "RAY_START_SECONDS": "0.5",
            **variables,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, calls.read_text().splitlines()


@pytest.mark.parametrize("script", ["slurm-array.sh", "slurm-ray.sh"])
def test_the_job_scripts_are_bash_and_name_sbatchs_options(script: str) -> None:
    subprocess.run(["bash", "-n", str(FILES / script)], check=True)
    options = re.findall(r"^#SBATCH --([a-z-]+)=\S+$", (FILES / script).read_text(), re.MULTILINE)
    of_sbatch = """array cpus-per-task gpus-per-node gpus-per-task job-name mem nodes
        ntasks-per-node output signal time"""
    assert options
    assert set(options) <= set(of_sbatch.split())


def test_an_array_job_is_a_sweep_without_ray(tmp_path: Path) -> None:
    status, calls = _as_slurm("slurm-array.sh", tmp_path)
    (sweep,) = [shlex.split(line) for line in calls if line.startswith("batchscale ")]
    assert status == 0
    assert sweep[3:5] == ["--address", "none"]
    parse_ours(shlex.split("batchscale sweep my_model.yaml --address none --for 7h50m"))


@pytest.mark.slow
def test_a_job_with_ray_starts_a_node_on_each_machine_and_ends_them(tmp_path: Path) -> None:
    status, calls = _as_slurm("slurm-ray.sh", tmp_path, SWEEP_STATUS="3")
    assert status == 3  # the sweep's
    head, others = [line for line in calls if line.startswith("ray ")]
    assert "--head --node-ip-address=10.0.0.1 --port=20123" in head
    assert "--address=10.0.0.1:20123" in others
    assert "--num-cpus=32 --num-gpus=8" in head
    assert all(line.endswith("token=32") for line in (head, others))
    steps = [line for line in calls if line.startswith("srun ") and " ray start" in line]
    assert "--nodes=1 --ntasks=1 --overlap --nodelist=a1 " in steps[0]
    assert "--nodes=2 --ntasks=2 --overlap --nodelist=a2,a3 " in steps[1]
    assert any("batchscale sweep my_model.yaml --address 10.0.0.1:20123" in c for c in calls)


@pytest.mark.parametrize("script", ["slurm-array.sh", "slurm-ray.sh"])
def test_a_job_script_without_arguments_says_what_it_wants(script: str) -> None:
    done = subprocess.run(
        ["bash", str(FILES / script)], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "usage: sbatch" in done.stderr
