from __future__ import annotations

import struct
import threading

import pytest
import torch
from stub_driver import OnGpu, Stub, fields, names, on_gpu

from titan_kernels.errors import LaunchError
from titan_kernels.launch import Packed, launch

WARM = ["cuCtxGetCurrent", "cuLaunchKernel"]


class Wrapper(OnGpu):
    """A tensor that holds another one, as DTensor does."""

    def data_ptr(self) -> int:
        return 0


class Fake(OnGpu):
    """Answers as a FakeTensor does."""

    def data_ptr(self) -> int:
        raise RuntimeError("Cannot access data pointer of Tensor")


def address(tensor: torch.Tensor) -> str:
    return struct.pack("<Q", tensor.data_ptr()).hex()


class TestArguments:
    def test_bytes_stream_and_geometry_arrive(self, stub: Stub) -> None:
        x = on_gpu(3, 5)
        calls = stub.launch("scalars", (2, 3, 4), (32, 2, 1), (x, None, -5, 2**40, 0.1, True), 512)
        call = fields(calls[-2])
        assert (call["grid"], call["block"]) == ("2,3,4", "32,2,1")
        assert (call["shared"], call["stream"]) == ("512", "7000")
        numbers = (-5, 2**40, 0.1, 1)
        scalars = (struct.pack(f"<{code}", value).hex() for code, value in zip("iqfi", numbers, strict=True))
        assert call["parameters"] == ",".join([address(x), "00" * 8, *scalars])

    def test_one_dimension_and_an_int_for_a_float(self, stub: Stub) -> None:
        call = fields(stub.launch("scalars", 9, 64, [on_gpu(1), None, 0, 0, 3, 0])[-2])
        assert (call["grid"], call["block"]) == ("9,1,1", "64,1,1")
        assert call["parameters"].split(",")[4] == struct.pack("<f", 3.0).hex()

    def test_packed_tensors_and_numbers(self, stub: Stub) -> None:
        x, y = on_gpu(2), on_gpu(3)
        call = fields(stub.launch("array", 1, 32, (x, Packed([x, None, y], 4), Packed([1.5, -2.0], 3)))[-2])
        pointers, floats = call["parameters"].split(",")[1:]
        assert pointers == address(x) + "00" * 8 + address(y) + "00" * 8
        assert floats == struct.pack("<fff", 1.5, -2.0, 0.0).hex()

    def test_packed_numbers_of_64_bits(self, stub: Stub) -> None:
        call = fields(stub.launch("array", 1, 32, (on_gpu(1), Packed([1, -1], 4), Packed([2], 3)))[-2])
        assert call["parameters"].split(",")[1:] == [
            struct.pack("<qqqq", 1, -1, 0, 0).hex(),
            struct.pack("<iii", 2, 0, 0).hex(),
        ]

    def test_packed_places_after_a_negative_number_are_zero(self, stub: Stub) -> None:
        call = fields(stub.launch("array", 1, 32, (on_gpu(1), Packed([-1], 4), Packed([-1], 3)))[-2])
        assert call["parameters"].split(",")[1:] == [
            struct.pack("<qqqq", -1, 0, 0, 0).hex(),
            struct.pack("<iii", -1, 0, 0).hex(),
        ]

    def test_one_float_makes_all_of_packed_floats(self, stub: Stub) -> None:
        call = fields(stub.launch("array", 1, 32, (on_gpu(1), Packed([], 4), Packed([1, 0.5, 2], 3)))[-2])
        assert call["parameters"].split(",")[2] == struct.pack("<fff", 1.0, 0.5, 2.0).hex()

    def test_the_device_is_that_of_a_tensor_in_packed(self, stub: Stub) -> None:
        call = stub.launch("array", 1, 32, (None, Packed([None, on_gpu(2, ordinal=1)], 4), Packed([], 3)))[-2]
        assert fields(call)["stream"] == "7001"

    @pytest.mark.parametrize(
        ("replace", "words"),
        [
            ({2: 2**31}, "argument 2: 2147483648 does not fit in the kernel's 32-bit parameter"),
            ({3: 2**63}, "argument 3: the number does not fit in 64 bits"),
            ({3: 0.5}, "argument 3: a float for an integer parameter"),
            ({1: 17}, "argument 1: int for a pointer"),
            ({2: None}, "argument 2: NoneType for a number"),
            ({1: "text"}, "argument 1: str is no tensor, number, Packed or None"),
            ({1: Packed([1], 3)}, "argument 1: Packed with 1 values and capacity 3 for an Array of 8 bytes"),
            ({1: torch.zeros(2).as_subclass(Wrapper)}, "argument 1: the tensor has no memory of its own"),
            ({1: torch.zeros(2).as_subclass(Fake)}, "Cannot access data pointer"),
            ({1: torch.zeros(2)}, "argument 1: the tensor is on the CPU, the first one on cuda:0"),
            ({1: on_gpu(2, ordinal=1)}, "argument 1: the tensor is on cuda:1, the first one on cuda:0"),
        ],
    )
    def test_a_wrong_argument_is_named(self, stub: Stub, replace: dict[int, object], words: str) -> None:
        args: list[object] = [on_gpu(2), None, 0, 0, 0.0, 0]
        for position, value in replace.items():
            args[position] = value
        with pytest.raises(LaunchError) as caught:
            stub.launch("scalars", 1, 32, args)
        assert words in str(caught.value)
        assert "cuLaunchKernel" not in names(stub.calls())

    def test_a_tensor_for_a_number_in_packed(self, stub: Stub) -> None:
        with pytest.raises(LaunchError, match="argument 2: OnGpu for a number"):
            stub.launch("array", 1, 32, (on_gpu(2), Packed([], 4), Packed([on_gpu(1)], 3)))

    def test_a_wrong_number_of_arguments(self, stub: Stub) -> None:
        with pytest.raises(LaunchError, match="2 arguments for 6 parameters"):
            stub.launch("scalars", 1, 32, (on_gpu(2), None))

    def test_packed_checks_its_capacity(self) -> None:
        with pytest.raises(ValueError, match=r"3 values do not fit in capacity \(2\)"):
            Packed([1, 2, 3], 2)


class TestLaunches:
    def test_a_warm_launch_asks_for_the_context_and_launches(self, stub: Stub) -> None:
        stub.make_current(0)
        args = (on_gpu(1), None, 0, 0, 0.0, 0)
        stub.launch("scalars", 1, 32, args)
        assert names(stub.launch("scalars", 1, 32, args)) == WARM

    def test_another_current_device_comes_back(self, stub: Stub) -> None:
        stub.make_current(0)
        args = (on_gpu(1, ordinal=1), None, 0, 0, 0.0, 0)
        stub.launch("scalars", 1, 32, args)
        calls = stub.launch("scalars", 1, 32, args)
        assert names(calls) == ["cuCtxGetCurrent", "cuCtxPushCurrent", "cuLaunchKernel", "cuCtxPopCurrent"]
        assert fields(calls[2])["context"] == str(0x1001)

    def test_a_thread_without_a_context_launches_into_the_primary_one(self, stub: Stub) -> None:
        stub.make_current(0)
        args = (on_gpu(1), None, 0, 0, 0.0, 0)
        stub.launch("scalars", 1, 32, args)
        seen: list[list[str]] = []
        thread = threading.Thread(target=lambda: seen.append(stub.launch("scalars", 1, 32, args)))
        thread.start()
        thread.join()
        assert fields(seen[0][2])["context"] == str(0x1000)

    def test_large_shared_memory_is_allowed_once_per_kernel_and_size(self, stub: Stub) -> None:
        def attributes(kernel: str, shared: int) -> list[str]:
            rest = (None, 0, 0, 0.0, 0) if kernel == "scalars" else (Packed([], 4), Packed([], 3))
            calls = stub.launch(kernel, 1, 32, (on_gpu(1), *rest), shared)
            return [call.removeprefix("cuFuncSetAttribute ") for call in calls if "SetAttribute" in call]

        assert attributes("scalars", 47 * 1024) == []  # with the static 1024 bytes just 48 KB
        assert attributes("scalars", 47 * 1024 + 1) == ["8 48129"]
        assert attributes("scalars", 47 * 1024 + 1) == []
        assert attributes("scalars", 60000) == ["8 60000"]
        assert attributes("scalars", 50000) == []
        assert attributes("array", 60000) == ["8 60000"]

    @pytest.mark.parametrize("grid", [0, (0, 1, 1), (5, 0, 1)])
    def test_an_empty_grid_is_not_launched(self, stub: Stub, grid: int | tuple[int, int, int]) -> None:
        assert stub.launch("scalars", grid, 32, (on_gpu(0), None, 0, 0, 0.0, 0)) == []

    @pytest.mark.parametrize(
        ("grid", "block", "words"),
        [
            (-1, 32, r"grid\.x \(-1\) must lie between 1 and 2147483647"),
            ((1, 65536, 1), 32, r"grid\.y \(65536\) must lie between 1 and 65535"),
            (1, 0, r"block\.x \(0\) must lie between 1 and 1024"),
            (1, (1, 1, 65), r"block\.z \(65\) must lie between 1 and 64"),
            (1, 257, "block of 257 threads: the kernel is built for 256"),
            (1, (16, 17, 1), "block of 272 threads: the kernel is built for 256"),
        ],
    )
    def test_bad_geometry_is_named(self, stub: Stub, grid: object, block: object, words: str) -> None:
        with pytest.raises(LaunchError, match=words):
            stub.launch("scalars", grid, block, (on_gpu(1), None, 0, 0, 0.0, 0))

    def test_the_drivers_words_come_with_the_whole_launch(self, stub: Stub) -> None:
        stub.fail("cuLaunchKernel", 700)
        x = on_gpu(3, 5, dtype=torch.float16)
        with pytest.raises(LaunchError) as caught:
            stub.launch("scalars", (7, 1, 1), 64, (x, None, 4, 5, 0.5, 1), 128)
        assert str(caught.value) == (
            "kernel scalars of unit probe on cuda:0: cuLaunchKernel: CUDA_ERROR_ILLEGAL_ADDRESS (700): "
            "an illegal memory access was encountered\n"
            "  grid (7, 1, 1), block 64, dynamic shared memory 128 bytes\n"
            "  arguments: float16 (3, 5), None, 4, 5, 0.5, 1"
        )

    def test_too_much_shared_memory_names_the_limit(self, stub: Stub) -> None:
        stub.fail("cuFuncSetAttribute", 1)
        with pytest.raises(LaunchError) as caught:
            stub.launch("scalars", 1, 64, (on_gpu(1), None, 4, 5, 0.5, 1), 70000)
        assert "cuFuncSetAttribute(MAX_DYNAMIC_SHARED_SIZE_BYTES): CUDA_ERROR_INVALID_VALUE" in str(
            caught.value
        )
        assert "70000 bytes (a block of this GPU can have 65536)" in str(caught.value)


class TestCpuTensors:
    def test_outside_the_emulator(self) -> None:
        with pytest.raises(LaunchError, match=r"titan_kernels\.emulated\(\)"):
            launch("rms_norm", "rms_norm_column_sum_f32", 1, 256, (torch.zeros(4), torch.zeros(4), 1, 4))

    def test_without_any_tensor(self) -> None:
        with pytest.raises(LaunchError, match="no argument is a tensor"):
            launch("rms_norm", "rms_norm_column_sum_f32", 1, 256, (1, 4))

    def test_a_meta_tensor(self) -> None:
        with pytest.raises(LaunchError, match="its tensors are on meta"):
            launch("rms_norm", "rms_norm_column_sum_f32", 1, 256, (torch.zeros(4, device="meta"),))
