"""The rules that need to know the processes and the machine, and the registry itself."""

# ruff: noqa: E501 - messages are quoted whole

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import BaseModel

from titan_pretrain.config import TrainConfig, World, load_config, rules
from titan_pretrain.config.fields import find_option
from titan_pretrain.config.rules import check, nearest
from titan_pretrain.config.rules_parallel import NOT_IN_THIS_RELEASE
from titan_pretrain.config.sections import ParallelConfig

Complain = Callable[..., list[str]]


@pytest.mark.parametrize(
    ("sets", "world", "message"),
    [
        (
            ["parallel.dp_replicate=2"],
            3,
            "--set parallel.dp_replicate=2: parallel.dp_replicate (2): the degrees' product must divide the "
            "number of processes, 3; start 2 or 4 processes",
        ),
        (
            ["parallel.dp_shard=2"],
            4,
            "--set parallel.dp_shard=2: parallel.dp_shard (2): the degrees' product must be the number of "
            "processes, 4; use parallel.dp_shard = 4, or -1 for all that remain",
        ),
        (
            ["parallel.dp_shard=1"],
            2,
            "--set parallel.dp_shard=1: parallel.dp_shard (1): the degrees' product must be the number of "
            "processes, 2; use parallel.dp_shard = 2, or -1 for all that remain",
        ),
        (
            ["parallel.dp_replicate=2", "parallel.dp_shard=2"],
            3,
            "--set parallel.dp_shard=2: parallel.dp_replicate (2): the degrees' product parallel.dp_replicate * "
            "parallel.dp_shard = 4 must be the number of processes, 3; start 4 processes, or change the degrees",
        ),
        (
            ["training.micro_batch_size=8", "training.global_batch_size=16"],
            3,
            "--set training.global_batch_size=16: training.global_batch_size (16): must be divisible by "
            "training.micro_batch_size (8) * data-parallel ranks (3); use 24",
        ),
        (
            ["training.micro_batch_size=8", "training.global_batch_size=12"],
            2,
            "--set training.global_batch_size=12: training.global_batch_size (12): must be divisible by "
            "training.micro_batch_size (8) * data-parallel ranks (2); use 16",
        ),
        (
            ["tokenizer.path=nowhere"],
            1,
            '--set tokenizer.path=nowhere: tokenizer.path ("nowhere"): no such file or folder; give a '
            'tokenizer.json or tokenizer.model, or "none" to train a BPE on the data',
        ),
        (
            ["checkpoint.init_from=hf:nowhere"],
            1,
            '--set checkpoint.init_from=hf:nowhere: checkpoint.init_from ("hf:nowhere"): no such folder',
        ),
        (
            ["data.dataset=text", "data.path=no/*.txt"],
            1,
            '--set data.path=no/*.txt: data.path (["no/*.txt"]): no file matches no/*.txt; relative paths '
            "start at the current folder",
        ),
    ],
)
def test_start_rules(complaints: Complain, sets: list[str], world: int, message: str) -> None:
    assert complaints("llama3_debug", sets, world=world) == [message]


def test_start_rules_wait_for_a_start() -> None:
    sets = ["parallel.dp_replicate=2", "tokenizer.path=nowhere"]
    assert load_config("llama3_debug", overrides=sets).config.parallel.dp_replicate == 2


def test_a_rule_about_processes_alone_names_where_their_number_comes_from() -> None:
    config = TrainConfig(parallel=ParallelConfig(dp_shard=2))
    (finding,) = check(config, World(3, "--nproc 3"))
    assert finding.origin == "--nproc 3"


def test_packages(complaints: Complain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("titan_pretrain.config.rules_data.find_spec", lambda name: None)
    sets = ["metrics.wandb_project=p", "data.dataset=c4"]
    assert complaints("llama3_debug", sets, world=1) == [
        '--set metrics.wandb_project=p: metrics.wandb_project ("p"): needs the wandb package; pip install wandb',
        '--set data.dataset=c4: data.dataset ("c4"): needs the datasets package; pip install datasets',
    ]


def test_files_that_exist_are_fine() -> None:
    Path("texts").mkdir()
    Path("texts/a.txt").write_text("a")
    Path("init").mkdir()
    sets = [
        "data.dataset=text",
        'data.path=["texts", "texts/*.txt", "texts/a.txt"]',
        "checkpoint.init_from=hf:init",
    ]
    load_config("llama3_debug", overrides=sets, world=World(2, "--nproc 2"))


def test_dataset_names_are_those_that_can_be_opened() -> None:
    from titan_pretrain.config.rules_data import KINDS
    from titan_pretrain.data.build import DATASETS

    assert KINDS == DATASETS


def test_local_c4_may_be_several_files_and_needs_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("titan_pretrain.config.rules_data.find_spec", lambda name: None)
    for name in ("a.json.gz", "b.json.gz"):
        Path(name).touch()
    sets = ["data.dataset=c4", 'data.path=["a.json.gz", "b.json.gz"]']
    load_config("llama3_debug", overrides=sets, world=World(1, "--nproc 1"))


def test_own_dataset_needs_no_package_and_no_path() -> None:
    load_config("llama3_debug", overrides=["data.dataset=my.module:texts"], world=World(1, "--nproc 1"))


@pytest.mark.parametrize("degree", NOT_IN_THIS_RELEASE)
def test_every_missing_engine_is_refused_and_names_a_degree(degree: str) -> None:
    assert degree in ParallelConfig.model_fields
    config = TrainConfig(parallel=ParallelConfig(**{degree: 2}))
    assert any("not in this release" in finding.text for finding in check(config))


def test_rules_read_options_that_exist() -> None:
    check(TrainConfig())
    registered = [*rules.RULES.values(), *rules.START_RULES.values()]
    names = {name for reads, _ in registered for name in reads}
    assert len(registered) > 20
    assert [name for name in names if find_option(tuple(name.split("."))) is None] == []


def test_a_rule_reads_no_other_option() -> None:
    """A rule that looks at more than it says would speak about defaults while the option is broken."""
    for reads, function in rules.RULES.values():
        seen: set[str] = set()
        list(function(_Spy(TrainConfig(), "", seen)))  # type: ignore[arg-type]
        plain = {name for name in seen if _is_plain(name)}
        assert {name for name in plain if not any(_covers(read, name) for read in reads)} == set(), function


class _Spy:
    """A config that remembers what was read from it."""

    def __init__(self, node: BaseModel, prefix: str, seen: set[str]) -> None:
        self._node, self._prefix, self._seen = node, prefix, seen

    def __getattr__(self, name: str) -> object:
        value = getattr(self._node, name)
        path = f"{self._prefix}{name}"
        if not callable(value):
            self._seen.add(path)
        return _Spy(value, f"{path}.", self._seen) if isinstance(value, BaseModel) else value

    def __eq__(self, other: object) -> bool:
        return self._node == other

    __hash__ = None  # type: ignore[assignment]


def _is_plain(name: str) -> bool:
    option = find_option(tuple(name.split(".")))
    return option is not None and option.section is None


def _covers(read: str, name: str) -> bool:
    return name == read or name.startswith(f"{read}.")


@pytest.mark.parametrize(
    ("value", "divisor_of", "high", "expected"),
    [(7, 256, None, "use 4 or 8"), (7, 7, 7, "use 1"), (2, 1, None, "use 1"), (1, 4, None, "use 2")],
)
def test_nearest(value: int, divisor_of: int, high: int | None, expected: str) -> None:
    assert nearest(value, lambda n: divisor_of % n == 0, high=high) == expected


def test_nearest_gives_up_in_finite_time() -> None:
    assert nearest(2**50 + 1, lambda n: False) == ""
