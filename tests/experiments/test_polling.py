"""Calls beside the training: until one raises, and never after the end."""

from __future__ import annotations

import threading

from experiments.execution.polling import polling


def test_it_polls_until_an_error_which_is_handed_on_and_ends_with_the_block() -> None:
    errors: list[Exception] = []
    failed, left = threading.Event(), [2, 1, 0]

    def poll() -> None:
        1 / left.pop(0)

    def note(error: Exception) -> None:
        errors.append(error)
        failed.set()

    with polling(lambda: None, note):
        assert [thread for thread in threading.enumerate() if thread.name == "polling"]
    assert not [thread for thread in threading.enumerate() if thread.name == "polling"]
    with polling(poll, note, seconds=0.001):
        assert failed.wait(60)
    assert not left
    assert [type(error) for error in errors] == [ZeroDivisionError]
