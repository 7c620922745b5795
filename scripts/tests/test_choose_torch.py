"""The choice of a PyTorch build, from made-up facts about machines."""

import choose_torch
import pytest
from choose_torch import Facts, Gpu, Torch, TorchChoiceError

TITAN_V = Gpu("NVIDIA TITAN V", (7, 0))
TITAN_RTX = Gpu("NVIDIA TITAN RTX", (7, 5))
H100 = Gpu("NVIDIA H100 PCIe", (9, 0))
RTX_5090 = Gpu("NVIDIA GeForce RTX 5090", (12, 0))
GTX_1080 = Gpu("NVIDIA GeForce GTX 1080", (6, 1))
CPU_TORCH = Torch("2.13.0+cpu", None)
CU126_TORCH = Torch("2.13.0+cu126", "12.6")
PYPI_TORCH = Torch("2.13.0", "13.0")


@pytest.mark.parametrize(
    ("gpus", "driver", "build"),
    [
        ((), None, "cpu"),
        ((TITAN_V,), 580, "cu126"),
        ((TITAN_V,), 535, "cu126"),
        ((TITAN_RTX,), 535, "cu126"),
        ((TITAN_RTX,), 580, "default"),
        ((H100,), 570, "cu126"),
        ((TITAN_RTX, TITAN_V), 580, "cu126"),
        ((H100, TITAN_V), 580, "cu126"),
        ((RTX_5090,), 580, "default"),
        ((RTX_5090, TITAN_RTX), 590, "default"),
        ((GTX_1080, TITAN_RTX), 535, "cu126"),
    ],
)
def test_the_build_follows_the_oldest_usable_card_and_the_driver(gpus, driver, build):
    assert choose_torch.needed_build(Facts(gpus, driver)) == build


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (Facts((GTX_1080,), 580), ["GTX 1080", "6.1", "older than Volta", "TITAN_TORCH=cpu"]),
        (Facts((), 470), ["driver (470)", "525", "TITAN_TORCH=cpu"]),
        (Facts((TITAN_V,), 515), ["driver (515)", "525"]),
        (Facts((RTX_5090,), 570), ["RTX 5090", "CUDA 13", "580", "570"]),
        (Facts((TITAN_V, RTX_5090), 580), ["TITAN V", "RTX 5090", "in common", "CUDA_VISIBLE_DEVICES"]),
        (Facts(override="cu118"), ["TITAN_TORCH (cu118)", "cpu, cu126, default or keep"]),
    ],
    ids=["pascal", "ancient-driver", "old-driver", "blackwell", "volta-and-blackwell", "bad-override"],
)
def test_what_no_build_serves_is_refused_with_a_way_out(facts, words):
    with pytest.raises(TorchChoiceError) as caught:
        choose_torch.needed_build(facts)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize("override", ["cpu", "cu126", "default"])
def test_the_override_wins(override):
    assert choose_torch.needed_build(Facts((GTX_1080,), 400, override=override)) == override


def test_pip_arguments_name_one_exact_release():
    cu126 = choose_torch.pip_arguments("cu126", wheels_reachable=False)
    assert cu126 == ["torch==2.13.0+cu126", "--index-url", "https://download.pytorch.org/whl/cu126"]
    reachable = choose_torch.pip_arguments("cpu", wheels_reachable=True)
    assert reachable == ["torch==2.13.0", "--extra-index-url", "https://download.pytorch.org/whl/cpu"]
    assert choose_torch.pip_arguments("cpu", wheels_reachable=False) == ["torch==2.13.0"]
    assert choose_torch.pip_arguments("default", wheels_reachable=True) == ["torch==2.13.0"]


def test_the_pinned_release_is_that_of_the_constraints(pytestconfig):
    constraints = (pytestconfig.rootpath / "constraints.txt").read_text().splitlines()
    assert f"torch=={choose_torch.VERSION}" in constraints


@pytest.mark.parametrize(
    "facts",
    [
        Facts(installed=CPU_TORCH),
        Facts(installed=PYPI_TORCH),
        Facts(installed=Torch("2.11.0", "12.8")),
        Facts((TITAN_V,), 580, CU126_TORCH),
        Facts((TITAN_V,), 580, Torch("2.14.1+cu126", "12.6")),
        Facts((TITAN_RTX,), 580, CU126_TORCH),
        Facts((TITAN_RTX,), 580, PYPI_TORCH),
        Facts((TITAN_RTX,), 570, Torch("2.11.0+cu128", "12.8")),
        Facts((H100,), 580, Torch("2.15.0", "13.2")),
        Facts((TITAN_V,), 580, CPU_TORCH, override="cpu"),
        Facts((TITAN_V,), 580, Torch("2.7.0", None), override="keep"),
    ],
)
def test_a_fitting_torch_is_accepted(facts):
    choose_torch.check_installed(facts, "/venv/bin/python")


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (Facts((TITAN_V,), 580, CPU_TORCH), ["CPU build", "TITAN V", "torch==2.13.0+cu126", "whl/cu126"]),
        (Facts((TITAN_V,), 580, PYPI_TORCH), ["CUDA 13.0", "no kernels", "TITAN V", "whl/cu126"]),
        (Facts((TITAN_V,), 580, Torch("2.11.0+cu128", "12.8")), ["CUDA 12.8", "Volta needs"]),
        (Facts((TITAN_RTX, TITAN_V), 580, Torch("2.15.0", "13.2")), ["TITAN V", "whl/cu126"]),
        (Facts((TITAN_RTX,), 535, PYPI_TORCH), ["CUDA 13.0", "driver 580", "535"]),
        (Facts((RTX_5090,), 580, CU126_TORCH), ["CUDA 12.6", "no kernels", "RTX 5090"]),
        (Facts(installed=Torch("2.9.1+cpu", None)), ["2.9.1+cpu", "2.11 to 2.15", "torch==2.13.0"]),
        (Facts((TITAN_RTX,), 580, Torch("2.16.0", "13.2")), ["2.16.0", "2.11 to 2.15"]),
    ],
)
def test_a_wrong_torch_is_refused_with_the_command_that_mends_it(facts, words):
    with pytest.raises(TorchChoiceError) as caught:
        choose_torch.check_installed(facts, "/my venv/bin/python")
    message = str(caught.value)
    assert all(word in message for word in words)
    assert "'/my venv/bin/python' -m pip install --force-reinstall torch==2.13.0" in message
    assert "TITAN_TORCH=keep" in message


def test_nvidia_smi_is_parsed():
    text = "580.95.05, 7.0, NVIDIA TITAN V\n580.95.05, 7.5, NVIDIA TITAN RTX\n"
    assert choose_torch.parse_nvidia_smi(text) == ((TITAN_V, TITAN_RTX), 580)


@pytest.mark.parametrize(
    ("answers", "driver", "warning"),
    [
        (['Field "compute_cap" is not a valid field to query.\n', "470.82.01\n"], 470, ""),
        (["NVIDIA-SMI has failed because it couldn't communicate\n", ""], None, "couldn't communicate"),
        (["", ""], None, "no answer"),
    ],
    ids=["old-driver", "driver-not-loaded", "silent"],
)
def test_a_failing_nvidia_smi_is_never_taken_for_a_gpu(monkeypatch, capsys, answers, driver, warning):
    monkeypatch.setattr(choose_torch.shutil, "which", lambda _: "/usr/bin/nvidia-smi")
    monkeypatch.setattr(choose_torch, "_query", lambda _: answers.pop(0))
    monkeypatch.setattr(choose_torch, "_installed_torch", lambda: CPU_TORCH)
    facts = choose_torch.gather()
    assert (facts.gpus, facts.driver) == ((), driver)
    assert warning in capsys.readouterr().err


def test_the_installed_torch_is_found_without_importing_it():
    torch = pytest.importorskip("torch")
    found = choose_torch._installed_torch()
    assert found == Torch(torch.__version__, torch.version.cuda)
