"""environment.json: what a reader needs to reproduce a run."""

import json
import platform

import torch

from titan_pretrain.metrics.environment import environment_facts, save_environment


def test_the_facts_name_machine_versions_and_run():
    facts = environment_facts(torch.device("cpu"), world_size=2, precision="fp16")
    assert facts["processes"] == "2"
    assert facts["precision"] == "fp16"
    assert facts["device"] == "cpu"
    assert platform.python_version() in facts["Python"]
    assert torch.__version__ in facts["torch"]
    assert "GiB" in facts["RAM"]
    assert "torch-titan-pretrain" in facts
    assert "torch-titan-kernels" in facts
    assert all(isinstance(value, str) and value for value in facts.values())


def test_a_resume_describes_the_machine_it_runs_on(tmp_path):
    save_environment(tmp_path, {"device": "cpu"})
    save_environment(tmp_path, {"device": "NVIDIA TITAN V"})
    assert json.loads((tmp_path / "environment.json").read_text()) == {"device": "NVIDIA TITAN V"}
    assert [path.name for path in tmp_path.iterdir()] == ["environment.json"]
