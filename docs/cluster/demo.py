"""A sweep on a local cluster of three Ray nodes, one of which is killed halfway, and its regimes
beside those of an undisturbed sweep:

    python docs/cluster/demo.py RESULTS_OF_THE_UNDISTURBED_ONE [--set KEY=VALUE …]

The nodes are processes of this machine, one worker each, with a token of their own.
Exit status 0 if both tables of regimes are the same.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

NODES = 3
_START_SECONDS = 240.0
_POLL_SECONDS = 1.0
WHERE = ("--where", "experiment = 'digits'")


class Node:
    """One ``ray start``: all its processes are of one group, and end with it."""

    def __init__(self, folder: Path, number: int, *place: str) -> None:
        self.log = folder / f"node-{number}.log"
        command = [
            sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *place,
            "--node-ip-address=127.0.0.1", "--num-cpus=1", "--num-gpus=0",
            f"--dashboard-agent-listen-port={free_port()}", "--object-store-memory=134217728",
            "--disable-usage-stats",
        ]  # fmt: skip
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        until = time.monotonic() + _START_SECONDS
        while b"Ray runtime started" not in self.log.read_bytes():
            if self.process.poll() is not None or time.monotonic() > until:
                end = self.log.read_text(errors="replace")[-2000:]
                raise SystemExit(f"error: a Ray node did not start: {end}")
            time.sleep(0.2)

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End all its processes; with SIGKILL as a machine ends that loses its power."""
        for each in (number, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, each)
                self.process.wait(20)
            except ProcessLookupError:
                return
            except subprocess.TimeoutExpired:
                continue


def free_port() -> int:
    """A port that nothing listens at now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def disturbed(results: Path, folder: Path, overrides: Sequence[str]) -> None:
    """Sweep the digits on three nodes; kill the last one once half of the trials are recorded."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    head = ("--head", f"--port={port}", f"--temp-dir={folder}", "--include-dashboard=false")
    nodes = []
    try:
        nodes.append(Node(folder, 0, *head))
        nodes += [Node(folder, number, f"--address={address}") for number in range(1, NODES)]
        print(f"{NODES} Ray nodes at {address}", flush=True)
        sweep = subprocess.Popen(
            [
                *(sys.executable, "-m", "batchscale", "sweep", "digits", *overrides),
                *("--address", address, "--results", str(results)),
            ]
        )
        try:
            killed = False
            while sweep.poll() is None:
                time.sleep(_POLL_SECONDS)
                if not killed and half_done(results):
                    nodes[-1].end(signal.SIGKILL)
                    killed = True
                    print("half of the trials are recorded: one of the nodes is killed", flush=True)
        finally:
            if sweep.poll() is None:
                sweep.send_signal(signal.SIGINT)
                sweep.wait()
        if sweep.returncode:
            raise SystemExit(f"error: the sweep ended with status {sweep.returncode}")
        if not killed:
            raise SystemExit("error: the sweep ended before a node could be killed")
    finally:
        for node in reversed(nodes):
            node.end()


def half_done(results: Path) -> bool:
    """Whether half of the trials that the sweep wants are recorded."""
    import batchscale as bs

    if not any(results.glob("trials/**/*.parquet")):
        return False
    studies = bs.status(results).studies
    return bool(2 * studies["done"].sum() >= studies["wanted"].sum())


def regimes(results: str) -> str:
    """The table that ``make demo`` prints."""
    command = [sys.executable, "-m", "batchscale", "regimes", results, *WHERE]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def main(undisturbed: str, *overrides: str) -> None:
    """Sweep, kill, compare."""
    # Whoever else is on this machine cannot submit to these nodes.
    os.environ["RAY_AUTH_MODE"], os.environ["RAY_AUTH_TOKEN"] = "token", secrets.token_hex(16)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as name:
        results = Path(name, "runs")
        disturbed(results, Path(name), overrides)
        table = regimes(str(results))
    print(table, end="")
    if table != regimes(undisturbed):
        raise SystemExit(
            f"error: the regimes of {undisturbed} differ: batchscale regimes {undisturbed}"
        )
    print("equal to the regimes of the undisturbed sweep")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit("usage: python docs/cluster/demo.py UNDISTURBED [--set KEY=VALUE …]")
    main(*sys.argv[1:])
