"""The choice between implementations: automatic, by name, and explained."""

import contextlib
import importlib.util
import json
import subprocess
import sys
import threading
import types

import pytest
import torch
from torch.autograd import forward_ad

import titan_kernels
from titan_kernels import explain, prefer
from titan_kernels import ops as rooms
from titan_kernels.errors import TitanKernelsError, UnsupportedError
from titan_kernels.ops import rms_norm
from titan_kernels.platforms import triton_implementation
from titan_kernels.preferences import preferred
from titan_kernels.registry import ops

X = torch.ones(2, 8)
ARGS = (X, None, 1e-5)


@pytest.fixture(autouse=True)
def _no_preference(monkeypatch):
    monkeypatch.delenv("TITAN_PREFER", raising=False)


def test_explanation_as_text_and_json():
    explanation = explain("rms_norm", *ARGS)
    lines = str(explanation).splitlines()
    assert lines[0] == "titan::rms_norm -> triton"  # interpreted, in these tests
    assert lines[1].startswith(
        "  cuda       no: the tensors are on the CPU, where CUDA kernels run only under"
    )
    data = json.loads(explanation.to_json())
    assert data["chosen"] == "triton"
    assert [each["name"] for each in data["implementations"]] == ["cuda", "triton", "reference"]
    assert [each["ok"] for each in data["implementations"]] == [False, True, True]


def test_emulation_makes_the_kernels_eligible():
    with titan_kernels.emulated():
        assert explain("rms_norm", *ARGS).chosen == "cuda"


def test_float64_is_left_to_the_reference():
    explanation = explain("rms_norm", X.double(), None, 1e-5)
    assert explanation.chosen == "reference"
    assert "float64" in str(explanation)


def test_unknown_operator():
    with pytest.raises(TitanKernelsError, match=r"op \('rmsnorm'\): no such operator; there are .*rms_norm"):
        explain("rmsnorm", X)


def test_explanation_takes_arguments_by_name():
    assert str(explain("rms_norm", X, eps=1e-5, weight=None)) == str(explain("rms_norm", *ARGS))


@pytest.mark.parametrize(
    ("args", "kwargs"), [((X,), {}), ((*ARGS, 1), {}), (ARGS, {"x": X}), (ARGS[:2], {"epsilon": 1e-5})]
)
def test_explanation_says_which_arguments_there_are(args, kwargs):
    with pytest.raises(TitanKernelsError, match=r"titan::rms_norm takes \(x, weight, eps\), all of them"):
        explain("rms_norm", *args, **kwargs)


def test_preference_for_all_and_for_one():
    with prefer("reference"):
        assert explain("rms_norm", *ARGS).chosen == "reference"
        with prefer(rms_norm="triton"):
            assert explain("rms_norm", *ARGS).chosen == "triton"
            assert explain("layer_norm", X, None, None, 1e-5).chosen == "reference"
        assert explain("rms_norm", *ARGS).chosen == "reference"
    assert explain("rms_norm", *ARGS).preferred is None


def served_by():
    """The preferred implementation of every operator that has one."""
    chosen = {
        name: preferred(op.names, {each.name for each in op.implementations}) for name, op in ops().items()
    }
    return {name: implementation for name, implementation in chosen.items() if implementation}


@pytest.mark.parametrize(
    ("name", "operators"),
    [
        ("rms_norm", "rms_norm add_rms_norm rms_norm_backward"),
        ("rms_norm_backward", "rms_norm_backward"),
        ("swiglu", "glu glu_backward"),
        ("relu2", "relu2 relu2_backward"),
        ("glu", "glu glu_backward relu2 relu2_backward"),
        ("rope", "rope rope_"),
        ("rope_qk", "rope rope_"),
        ("embedding_gradient", "embedding_backward"),
        ("var_mean", "var_mean"),
        ("reduce", "reduce var_mean"),
        ("multi_tensor", "multi_tensor_norm multi_tensor_cast"),
        ("cross_entropy_shard_gradient", "cross_entropy_backward cross_entropy_backward_inplace"),
    ],
)
def test_preference_for_a_function_covers_what_it_runs(name, operators):
    with prefer(**{name: "reference"}):
        assert served_by() == dict.fromkeys(operators.split(), "reference")


def test_preferred_function_has_its_backward_too():
    x = X.clone().requires_grad_()
    with titan_kernels.emulated() as session:
        with prefer(rms_norm="reference"):
            rms_norm(x, residual=x)[0].sum().backward()
        assert not session.launches
        with prefer(rms_norm="reference", rms_norm_backward="cuda"):
            rms_norm(x).sum().backward()
        assert [each.kernel for each in session.launches] == ["rms_norm_backward_f32_aligned"]


def test_every_public_function_can_be_preferred():
    names = {each for op in ops().values() for each in op.names}
    runs_none = {"cross_entropy_from_partial", "merge_partials"}
    functions = {each for each in rooms.__all__ if not isinstance(getattr(rooms, each), type)}
    assert functions - runs_none <= names


def test_function_is_covered_where_it_has_the_implementation(monkeypatch):
    monkeypatch.setattr(ops()["rope_"], "implementations", ops()["rope_"].implementations[-1:])
    with prefer(rope="triton"):
        assert served_by() == {"rope": "triton"}
    with prefer("reference"), prefer(rope="triton"):
        assert served_by()["rope_"] == "reference"


def test_leaving_one_of_two_equal_preferences_leaves_the_inner_one():
    with prefer("triton"), prefer("reference"):
        with prefer("triton"):
            pass
        assert explain("rms_norm", *ARGS).preferred == "reference"


def test_preference_that_cannot_serve_raises():
    with prefer("cuda"), pytest.raises(UnsupportedError, match=r"'cuda' was asked for, but .* CPU"):
        rms_norm(X)
    with prefer("cutlass"), pytest.raises(UnsupportedError, match=r"has no implementation 'cutlass'; it has"):
        rms_norm(X)
    with pytest.raises(TitanKernelsError, match="no such operator: rmsnorm"), prefer(rmsnorm="triton"):
        pass
    words = "prefer: swiglu has no implementation 'cutlass'; it has cuda, triton, reference"
    with pytest.raises(TitanKernelsError, match=words), prefer(swiglu="cutlass"):
        pass


def test_preference_ends_with_an_error():
    with pytest.raises(KeyError), prefer("reference"):
        raise KeyError
    assert explain("rms_norm", *ARGS).preferred is None


def test_preference_holds_in_other_threads():
    seen = []
    with prefer("reference"):
        thread = threading.Thread(target=lambda: seen.append(explain("rms_norm", *ARGS).chosen))
        thread.start()
        thread.join()
    assert seen == ["reference"]


@pytest.mark.parametrize(
    ("text", "rms", "add"),
    [
        ("reference", "reference", "reference"),
        ("rms_norm=reference", "reference", "reference"),
        ("rms_norm=reference, add_rms_norm=triton", "reference", "triton"),
        ("reference, rms_norm=triton", "triton", "triton"),
    ],
)
def test_environment(monkeypatch, text, rms, add):
    monkeypatch.setenv("TITAN_PREFER", text)
    assert explain("rms_norm", *ARGS).chosen == rms
    assert explain("add_rms_norm", X, X, None, 1e-5).chosen == add
    with prefer("triton"):
        assert explain("rms_norm", *ARGS).chosen == "triton"


def test_environment_that_cannot_serve_raises(monkeypatch):
    monkeypatch.setenv("TITAN_PREFER", "cuda")
    with pytest.raises(UnsupportedError, match="TITAN_PREFER"):
        rms_norm(X)


@pytest.mark.parametrize("text", ["rmsnorm=triton", "triton, rmsnorm=reference", "rmsnorm="])
def test_environment_that_names_no_operator_raises(monkeypatch, text):
    monkeypatch.setenv("TITAN_PREFER", text)
    with pytest.raises(TitanKernelsError, match=r"TITAN_PREFER \(.*\): no such operator: rmsnorm; there are"):
        rms_norm(X)


def test_forward_mode_is_refused_not_taken_for_zero():
    with pytest.raises(UnsupportedError, match="titan::rms_norm has no forward-mode derivative"):
        torch.func.jvp(rms_norm, (X,), (X,))
    with forward_ad.dual_level():
        tangents = [forward_ad.unpack_dual(y).tangent for y in (rms_norm(X), X * forward_ad.make_dual(X, X))]
    assert tangents[0] is None
    assert tangents[1] is not None


def test_tensors_on_two_devices():
    explanation = explain("rms_norm", X, torch.ones(8, device="meta"), 1e-5)
    assert "different devices (cpu, meta)" in str(explanation)


def test_no_tensors_at_all():
    explanation = explain("multi_tensor_norm", [], False)
    assert explanation.chosen == "reference"
    assert "there are no tensors" in str(explanation)


@pytest.mark.parametrize("op", ["rms_norm", "layer_norm", "softmax"])
def test_rows_that_no_program_can_hold_are_left_to_the_reference(op):
    rest = {
        "rms_norm": (None, 1e-5),
        "layer_norm": (None, None, 1e-5),
        "softmax": (None, 1.0, None, False, None),
    }
    explanation = explain(op, torch.ones(1, 65537), *rest[op])
    assert explanation.chosen == "reference"
    assert "rows of 65537 elements are longer than 65536" in str(explanation)


def test_triton_runs_on_the_device_of_the_tensors(monkeypatch):
    class Elsewhere(torch.Tensor):
        device = property(lambda self: torch.device("cuda", 1))

    current = [torch.device("cuda", 0)]

    @contextlib.contextmanager
    def on(device):
        current.append(device)
        yield
        current.pop()

    monkeypatch.setattr(torch.cuda, "device", on)
    monkeypatch.setitem(sys.modules, "a_room", types.SimpleNamespace(where=lambda x, factor: current[-1]))
    run = triton_implementation("a_room", "where").run
    assert run(X.as_subclass(Elsewhere), 2.0) == torch.device("cuda", 1)
    assert run(X, 2.0) == torch.device("cuda", 0)


def test_every_operator_ends_with_the_reference():
    for op in ops().values():
        assert op.implementations[-1].name == "reference", op.name


WITHOUT = """
import sys
for name in ("triton", "cuda"):
    sys.modules[name] = None
import torch, titan_kernels
from titan_kernels import ops
y = ops.rms_norm(torch.ones(2, 8))
text = str(titan_kernels.explain("rms_norm", torch.ones(2, 8), None, 1e-5))
assert "triton is not installed" in text, text
assert "rms_norm -> reference" in text, text
"""


def test_works_without_triton_and_driver(monkeypatch):
    monkeypatch.setenv("TITAN_CUDA_DRIVER", "/nowhere/libcuda.so.1")
    subprocess.run([sys.executable, "-c", WITHOUT], check=True)


def test_missing_triton_is_no_reason_on_a_cpu(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "triton is not installed" in str(explain("rms_norm", *ARGS))
    monkeypatch.delenv("TRITON_INTERPRET")
    text = str(explain("rms_norm", *ARGS))
    assert "Triton runs only interpreted" in text
    assert "not installed" not in text


def test_import_starts_neither_pytorch_nor_triton():
    code = "import sys, titan_kernels; assert not {'torch', 'triton'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
