"""Units of work, in threads of this process."""

import threading

from focusfl.studies.units import run_units


def test_a_thread_at_work_sends_nothing_after_the_caller_left():
    begun, left, ended = (threading.Event() for _ in range(3))
    messages, errors = [], []

    def work(unit, message):
        if unit == "short":
            begun.wait(30)
        else:
            begun.set()
            left.wait(30)
            try:
                message("late")
            except BaseException as error:
                errors.append(error)
                raise
            finally:
                ended.set()

    units = run_units(work, ["short", "long"], 0, 2, lambda *heard: messages.append(heard))
    unit, _ = next(units)
    units.close()  # as an exception in the caller's loop does
    left.set()
    assert ended.wait(30)
    assert unit == "short" and not messages and len(errors) == 1


def test_an_error_where_messages_are_heard_ends_all_units_and_is_given():
    def hear(unit, message):
        raise KeyboardInterrupt

    def work(unit, message):
        started.append(unit)
        message("first")

    started = []
    futures = [future for _, future in run_units(work, range(20), 0, 1, hear)]
    assert isinstance(futures[0].exception(), KeyboardInterrupt) and len(futures) == 1
