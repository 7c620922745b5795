from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest
import stub_driver
from stub_driver import Stub, fields, names, on_gpu

from titan_kernels.errors import LaunchError
from titan_kernels.launch import Packed, launch


class TestLoading:
    @pytest.mark.parametrize(
        ("ordinal", "image"), [(0, "sm_70"), (1, "sm_75"), (2, "compute_75"), (4, "sm_70")]
    )
    def test_image_by_capability(self, stub: Stub, ordinal: int, image: str) -> None:
        calls = stub.launch("scalars", 1, 32, (on_gpu(1, ordinal=ordinal), None, 0, 0, 0.0, 0))
        assert f"cuModuleLoadDataEx {image}" in calls
        assert fields(calls[-2])["context"] == str(0x1000 + ordinal)

    def test_a_gpu_that_is_too_old(self, stub: Stub) -> None:
        with pytest.raises(LaunchError, match=r"no image for compute capability 6\.1.*Volta \(7\.0\)"):
            stub.launch("scalars", 1, 32, (on_gpu(1, ordinal=3), None, 0, 0, 0.0, 0))

    def test_a_kernel_that_the_generation_lacks(self, stub: Stub) -> None:
        stub.launch("turing_only", 1, 32, (on_gpu(1, ordinal=1),))
        with pytest.raises(LaunchError, match=r"kernel turing_only .* does not exist for sm_70"):
            stub.launch("turing_only", 1, 32, (on_gpu(1),))

    def test_an_unknown_kernel(self, stub: Stub) -> None:
        with pytest.raises(LaunchError, match="unit probe has no kernel of that name"):
            launch("probe", "nothing", 1, 32, (on_gpu(1),))

    def test_a_unit_is_loaded_once_per_device(self, stub: Stub) -> None:
        loads = []
        for ordinal in (0, 1, 0, 1):
            for kernel, rest in (
                ("scalars", (None, 0, 0, 0.0, 0)),
                ("array", (Packed([], 4), Packed([], 3))),
            ):
                loads += stub.launch(kernel, 1, 32, (on_gpu(1, ordinal=ordinal), *rest))
        assert [call for call in loads if "ModuleLoad" in call] == [
            "cuModuleLoadDataEx sm_70",
            "cuModuleLoadDataEx sm_75",
        ]
        assert names(loads).count("cuModuleGetFunction") == 4

    def test_loading_is_allowed_during_graph_capture(self, stub: Stub) -> None:
        calls = stub.launch("scalars", 1, 32, (on_gpu(1), None, 0, 0, 0.0, 0))
        modes = [call.split()[1] for call in calls if "CaptureMode" in call]
        assert modes == ["2", "0"]  # relaxed, and back
        first, second = (index for index, call in enumerate(calls) if "CaptureMode" in call)
        assert first < calls.index("cuModuleLoadDataEx sm_70") < second

    def test_a_refused_image_comes_with_the_compilers_words(self, stub: Stub) -> None:
        stub.fail("cuModuleLoadDataEx", 218)
        with pytest.raises(LaunchError, match="CUDA_ERROR_INVALID_PTX") as caught:
            stub.launch("scalars", 1, 32, (on_gpu(1), None, 0, 0, 0.0, 0))
        assert "words of the compiler" in str(caught.value)

    def test_other_threads_launch_while_an_image_is_loaded(self, stub: Stub) -> None:
        def run(ordinal: int) -> None:
            launch("probe", "scalars", 1, 32, (on_gpu(1, ordinal=ordinal), None, 0, 0, 0.0, 0))

        run(0)
        stub.record(False)
        stub.delay_loading(1500)
        loading = threading.Thread(target=run, args=(1,))
        loading.start()
        time.sleep(0.2)
        run(0)
        assert loading.is_alive()
        loading.join()


class TestDriver:
    def test_a_missing_driver(self, stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TITAN_CUDA_DRIVER", "/nowhere/libcuda.so.1")
        with pytest.raises(LaunchError, match=r"no CUDA driver: /nowhere/libcuda.*TITAN_CUDA_DRIVER"):
            stub.launch("scalars", 1, 32, (on_gpu(1), None, 0, 0, 0.0, 0))

    def test_a_driver_that_is_too_old(
        self, stub: Stub, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        old = stub_driver.build(tmp_path_factory.mktemp("old"), "-DSTUB_OLD_DRIVER")
        monkeypatch.setenv("TITAN_CUDA_DRIVER", str(old))
        with pytest.raises(LaunchError, match="has no cuThreadExchangeStreamCaptureMode: it is too old"):
            stub.launch("scalars", 1, 32, (on_gpu(1), None, 0, 0, 0.0, 0))

    def test_importing_opens_nothing(self, stub: Stub) -> None:
        assert stub.driver.archive()
        assert stub.calls() == []

    def test_a_fork_before_the_first_use_is_safe(self, stub: Stub) -> None:
        assert in_child(stub) == "launched"
        assert stub.launch("scalars", 1, 32, (on_gpu(1), None, 0, 0, 0.0, 0))

    def test_a_fork_after_the_first_use_is_refused(self, stub: Stub) -> None:
        stub.launch("scalars", 1, 32, (on_gpu(1), None, 0, 0, 0.0, 0))
        assert "this process was forked after its parent had used CUDA" in in_child(stub)
        assert stub.launch("scalars", 1, 32, (on_gpu(1), None, 0, 0, 0.0, 0))


def in_child(stub: Stub) -> str:
    """Launch in a forked process; "launched" or the error."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            stub.launch("scalars", 1, 32, (on_gpu(1), None, 0, 0, 0.0, 0))
            os.write(write, b"launched")
        except Exception as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as answer:
        return answer.read()


def test_import_without_triton_driver_and_gpu() -> None:
    code = (
        "import sys; sys.modules['triton'] = None\n"
        "import titan_kernels, titan_kernels.images\n"
        "assert titan_kernels.images.units()\n"
        "maps = open('/proc/self/maps').read(); assert 'libcuda.so' not in maps, maps\n"
    )
    environment = {**os.environ, "TITAN_CUDA_DRIVER": "/nowhere", "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, cwd="/")
