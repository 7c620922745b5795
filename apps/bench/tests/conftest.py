"""Shared by all tests of the package."""

import os

# Before triton is imported: on a CPU its kernels run in its interpreter.
if os.environ.get("TITAN_TEST_DEVICE", "cpu") == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"
