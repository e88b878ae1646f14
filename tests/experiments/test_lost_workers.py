"""What is said of a pack whose worker never said how it ended."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import ray
from ray.exceptions import GetTimeoutError, OutOfMemoryError, RayActorError

from experiments.execution.ray.lost_workers import explain, worker_log
from experiments.execution.ray.tune import RayTune

DIED = """The actor died unexpectedly before finishing this task.
\tclass_name: ImplicitFunc
\tpid: 14309
\tip: 192.0.2.2
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit \
detail: """
LOST = DIED + (
    "Worker unexpectedly exits with a connection error code 2. End of file. Some common causes "
    "include: (1) the process was killed by the OOM killer due to high memory usage, (2) ray stop "
    "--force was called, or (3) the worker crashed unexpectedly due to SIGSEGV."
)
LOW = (
    "Task was killed due to the node running low on memory.\nMemory on the node (IP: 192.0.2.2) "
    "was 22.04GB / 23.00GB (0.958), which exceeds the memory usage threshold of 0.95."
)
RAISED = f"""\x1b[36mray::ImplicitFunc.train()\x1b[39m (pid=12821, ip=192.0.2.2)
  File "{Path(pytest.__file__)}", line 133, in inner
    fn_kwargs[k] = parameter_registry.get(prefix + k)
                   ^^^^^^^^^^^^^^^^^^^^^^^^
ray.exceptions.RaySystemError: System error: No module named 'nets'
traceback: Traceback (most recent call last):
  File "/tmp/ray/x/working_dir_files/_ray_pkg_0123/mine.py", line 19, in <module>
    import nets
ModuleNotFoundError: No module named 'nets'
"""


OVER = ", three times over"
KILLED = f"the worker process was killed (signal 9), or ended itself (os._exit){OVER}"
ENDED = (
    "Worker exits unexpectedly. Worker exits with an exit code 1. The process receives a SIGTERM."
)


@pytest.mark.parametrize(
    ("text", "log", "killed", "message"),
    [
        (LOW, None, 0, f"Ray ended the worker process{OVER}: its machine ran low on memory"),
        (
            LOST,
            "",
            2,
            f"the worker process was killed{OVER}: out of memory: the kernel ended 2 processes of "
            "its machine for that",
        ),
        (LOST, "", 0, KILLED),
        (LOST, "", None, f"the worker process was killed (signal 9){OVER}: out of memory?"),
        (LOST, None, None, f"the worker process was killed, or crashed{OVER}; Ray's logs say more"),
        (
            LOST,
            "Fatal Python error: Aborted\n",
            0,
            f"the worker process crashed{OVER}: Aborted (signal 6, SIGABRT)",
        ),
        (
            DIED + ENDED,
            "",
            0,
            f"the worker process ended{OVER}: exit code 1. The process receives a SIGTERM",
        ),
        (
            "The actor died because its node has died. Node Id: 12.\nthe node was preempted",
            None,
            0,
            f"the worker's node is gone{OVER}: the node was preempted",
        ),
        (RAISED, None, 0, "ModuleNotFoundError: No module named 'nets'"),
        ("", None, None, "Ray gives no reason"),
    ],
)
def test_memory_is_named_only_where_there_is_a_reason(
    text: str, log: str | None, killed: int | None, message: str
) -> None:
    failure = explain(text, times=3, log=log, killed=killed)
    assert failure.message == message
    assert not failure.clear
    assert (failure.hint is not None) is ("memory" in message and "?" not in message)
    assert failure.error().hint == failure.hint


def test_an_exception_is_shown_from_the_users_first_frame_on() -> None:
    failure = explain(RAISED, times=3)
    assert failure.traceback == (
        'Traceback (most recent call last):\n  File "mine.py", line 19, in <module>\n'
        "    import nets\nModuleNotFoundError: No module named 'nets'\n"
    )


def test_a_crash_is_shown_down_to_the_users_code() -> None:
    log = (
        "something before\nFatal Python error: Segmentation fault\n\n"
        "Stack (most recent call first):\n"
        '  File "/tmp/_ray_pkg_01ab/mine.py", line 17 in loss\n'
        f'  File "{Path(pytest.__file__)}", line 151 in check_contract\n\n'
        "Extension modules: torch\n"
    )
    assert explain(LOST, times=1, log=log).traceback.splitlines() == [
        "Fatal Python error: Segmentation fault",
        "",
        "Stack (most recent call first):",
        '  File "mine.py", line 17 in loss',
    ]


def test_the_log_of_the_worker_that_an_error_names(tmp_path: Path) -> None:
    (tmp_path / "worker-ab-01-14309.err").write_text("its last words")
    (tmp_path / "worker-cd-01-99999.err").write_text("of another")
    assert worker_log(LOST, tmp_path) == "its last words"
    assert worker_log("no process", tmp_path) is None
    assert worker_log(LOST, tmp_path / "elsewhere") is None


@pytest.mark.parametrize("raised", [RayActorError(), OutOfMemoryError("x"), GetTimeoutError()])
def test_an_actor_that_ray_ends_for_its_memory_is_replaced_as_any_dead_one(
    raised: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "get", Mock(side_effect=raised))
    runs = RayTune.__new__(RayTune)
    runs._context = SimpleNamespace(mailbox=None, writer=None)  # type: ignore[assignment]
    assert runs._an_actor_died() is not isinstance(raised, GetTimeoutError)
