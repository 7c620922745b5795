"""The Triton kernels compile for Volta and Turing: what the interpreter of the other tests cannot tell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# Small cases of each operator: enough for all kernels and for arguments that are 1.
CASES = 4


@pytest.mark.slow
@pytest.mark.parametrize("capability", [70, 75])
def test_kernels_compile(capability):
    pytest.importorskip("triton")
    script = Path(__file__).with_name("compile_triton.py")
    command = [sys.executable, str(script), str(capability), str(CASES)]
    unwanted = "TRITON_INTERPRET", "TITAN_TEST_DEVICE"
    environment = {name: value for name, value in os.environ.items() if name not in unwanted}
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout.splitlines()[-1])
    assert not report["failures"], "\n".join(report["failures"])
    assert report["compiled"] > 20
