"""Clients spread over several devices: the numbers of one, but for rounding."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

CHILD = Path(__file__).with_name("on_devices.py")
ROUNDING = 1e-12  # sums over devices are sums in another order


def start(devices, *arguments):
    flags = f"--xla_force_host_platform_device_count={devices}"
    return subprocess.Popen(
        [sys.executable, CHILD, *map(str, arguments)],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said(child):
    out, errors = child.communicate(timeout=240)
    assert child.returncode == 0, errors
    return json.loads(out.splitlines()[-1])  # gloo writes there too


@pytest.fixture(scope="module")
def four():
    """What four devices of one process have found."""
    return said(start(4))


def test_four_devices_give_the_numbers_of_one(four):
    assert len(four["gaps"]) == 23
    assert {name: gap for name, gap in four["gaps"].items() if gap > ROUNDING} == {}


def test_one_sum_crosses_between_devices_in_a_round(four):
    assert four["messages"] == ["all-reduce"]


def test_devices_that_cannot_be_are_refused(four):
    assert "devices must be at most 4" in four["too many"]
    assert "--xla_force_host_platform_device_count=5" in four["too many"]
    assert "at least 1; got 0" in four["no number"]
    assert 'client_state must be "device"' in four["off the device"]


def test_two_processes_give_the_numbers_of_one_device():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = [start(2, port, number) for number in range(2)]
    try:
        for found in map(said, children):
            assert len(found["gaps"]) == 2
            assert max(found["gaps"].values()) <= ROUNDING
            assert "devices must be 4" in found["too few"]
            assert "cannot keep a checkpoint" in found["checkpoint"]
    finally:
        for child in children:
            child.kill()
