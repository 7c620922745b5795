"""Facts per card: the lookup finds the right row or none, and the rows agree with each other."""

import subprocess
import sys

import pytest
import torch

from titan_kernels import device
from titan_kernels._cards import CARDS, DeviceFacts

GIB = 2**30


@pytest.mark.parametrize(
    ("name", "capability", "memory_gib", "fp16"),
    [
        ("NVIDIA TITAN V", (7, 0), 11.8, 110.0),
        ("Tesla V100-SXM2-16GB", (7, 0), 15.8, 125.0),
        ("Tesla V100-PCIE-32GB", (7, 0), 31.7, 112.0),
        ("NVIDIA TITAN RTX", (7, 5), 23.6, 130.5),
        ("TITAN RTX", (7, 5), 23.6, 130.5),
        ("GeForce RTX 2080 Ti", (7, 5), 10.8, 53.8),
        ("NVIDIA GeForce RTX 2080 Ti", (7, 5), 10.8, 53.8),
        ("NVIDIA GeForce RTX 2080 SUPER", (7, 5), 7.8, 44.6),
        ("Tesla T4", (7, 5), 14.6, 65.0),
        ("Quadro RTX 8000", (7, 5), 47.5, 130.5),
        ("NVIDIA A100-SXM4-80GB", (8, 0), 79.3, 312.0),
        ("NVIDIA H200", (9, 0), 139.8, 989.0),
    ],
)
def test_lookup_finds_the_card_that_a_driver_names(name, capability, memory_gib, fp16):
    facts = device.lookup(name, capability, int(memory_gib * GIB))
    assert facts is not None
    assert facts.peak_tflops(torch.float16) == fp16


@pytest.mark.parametrize(
    ("name", "capability", "memory_gib"),
    [
        ("NVIDIA GeForce RTX 2080 with Max-Q Design", (7, 5), 7.8),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", (8, 0), 4.75),
        ("NVIDIA A100-SXM4-40GB", (8, 0), 4.75),
        ("NVIDIA GeForce RTX 2060", (7, 5), 11.8),
        ("NVIDIA RTX 6000 Ada Generation", (8, 9), 48.0),
        ("NVIDIA TITAN RTX", (7, 0), 23.6),
        ("", (7, 5), 8.0),
    ],
    ids=["laptop", "mig-by-name", "mig-by-memory", "2060-12gb", "ada", "wrong-capability", "no-name"],
)
def test_lookup_answers_none_rather_than_a_neighbour(name, capability, memory_gib):
    assert device.lookup(name, capability, int(memory_gib * GIB)) is None


def test_every_pattern_names_one_card():
    keys = [(card.name_pattern, card.capability, card.memory_gib) for card in CARDS]
    assert len(set(keys)) == len(keys)
    unmistakable = [card for card in CARDS if "(" not in card.name_pattern]
    assert all(device.lookup(card.name_pattern, card.capability) is card for card in unmistakable)


def _clock_ghz(card: DeviceFacts, tflops: float, flop_per_sm_and_clock: int) -> float:
    return tflops * 1e3 / card.sms / flop_per_sm_and_clock


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name_pattern)
def test_the_peak_rates_of_a_card_imply_one_plausible_clock(card):
    # FLOP per SM and clock are architectural; a typo in a rate shows as a second clock.
    fp32_rate = 128 if card.capability in {(7, 0), (7, 5), (8, 0)} else 256
    clock = _clock_ghz(card, card.fp32_tflops, fp32_rate)
    assert 1.2 < clock < 2.6
    if card.fp16_tflops is None:
        return
    geforce = card.name_pattern.startswith("RTX")  # fp32 accumulation at half rate; int8 has no such limit
    fp16_rate = {(7, 0): 1024, (7, 5): 512 if geforce else 1024, (8, 0): 2048, (9, 0): 4096}
    tensor_clock = _clock_ghz(card, card.fp16_tflops, fp16_rate.get(card.capability, 512))
    assert tensor_clock == pytest.approx(clock, rel=0.09)
    if card.int8_tops is not None:
        int8_per_fp16 = 4 if geforce else 2
        assert card.int8_tops == pytest.approx(int8_per_fp16 * card.fp16_tflops, rel=0.01)


def test_sm_limits_follow_the_capability():
    volta = device.lookup("NVIDIA TITAN V", (7, 0))
    turing = device.lookup("NVIDIA TITAN RTX", (7, 5))
    assert volta is not None
    assert turing is not None
    assert (volta.shared_memory_per_sm_kib, volta.threads_per_sm, volta.registers_per_sm) == (96, 2048, 65536)
    assert (turing.shared_memory_per_sm_kib, turing.threads_per_sm) == (64, 1024)
    assert all(card.shared_memory_per_sm_kib > 0 for card in CARDS)


def test_peak_is_none_where_the_hardware_has_no_unit():
    turing = device.lookup("NVIDIA TITAN RTX", (7, 5))
    gtx = device.lookup("NVIDIA GeForce GTX 1660 Ti", (7, 5))
    assert turing is not None
    assert gtx is not None
    assert turing.peak_tflops(torch.bfloat16) is None
    assert turing.peak_tflops(torch.float64) is None
    assert turing.peak_tflops(torch.float32) == 16.3
    assert turing.peak_tflops(torch.int8) == 261.0
    assert gtx.peak_tflops(torch.float16) is None


@pytest.mark.parametrize(
    ("name", "capability", "expected"),
    [
        ("NVIDIA TITAN V", (7, 0), True),
        ("Tesla T4", (7, 5), True),
        ("NVIDIA GeForce RTX 2060", (7, 5), True),
        ("NVIDIA GeForce GTX 1650", (7, 5), False),
        ("NVIDIA GeForce GTX 1660 Ti", (7, 5), False),
        ("NVIDIA T1000 8GB", (7, 5), False),
        ("Quadro T2000", (7, 5), False),
        ("NVIDIA GeForce MX450", (7, 5), False),
        ("NVIDIA GeForce GTX 1080 Ti", (6, 1), False),
        ("NVIDIA A100-SXM4-40GB", (8, 0), True),
    ],
)
def test_tensor_cores_go_by_name_on_turing(name, capability, expected):
    assert device.has_tensor_cores(name, capability) is expected


def test_native_bf16_starts_at_ampere():
    assert not device.native_bf16((7, 0))
    assert not device.native_bf16((7, 5))
    assert device.native_bf16((8, 0))
    assert device.native_bf16((9, 0))


def test_current_is_none_for_a_cpu():
    assert device.current(torch.device("cpu")) is None


def test_import_starts_no_cuda_context():
    code = "import titan_kernels.device, torch; raise SystemExit(torch.cuda.is_initialized())"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.gpu
def test_current_describes_the_device_that_is_present():
    facts = device.current()
    assert facts is None or facts.capability == torch.cuda.get_device_capability()
