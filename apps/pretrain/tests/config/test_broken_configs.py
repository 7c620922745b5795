"""Every kind of mistake a user can make in a config, with the words he reads."""

# ruff: noqa: E501 - messages are quoted whole

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Complain = Callable[..., list[str]]

KINDS = '"python-stdlib", "text", "jsonl", "parquet", "hf", "c4"'
DP = "use 1 and let parallel.dp_shard spread the weights"

# (name, TOML, every message); a message's second line is its hint.
BROKEN: list[tuple[str, str, list[str]]] = [
    ("typo_key", "[optim]\nlrr = 1", ["run.toml:2: unknown key `optim.lrr`\ndid you mean `optim.lr`?"]),
    (
        "key_of_another_section",
        "[optim]\nwarmup_steps = 1",
        ["run.toml:2: unknown key `optim.warmup_steps`\ndid you mean `lr.warmup_steps`?"],
    ),
    ("key_without_section", "steps = 5", ["run.toml:1: unknown key `steps`\ndid you mean `training.steps`?"]),
    (
        "key_in_several_sections",
        "[optim]\nevery = 5",
        [
            "run.toml:2: unknown key `optim.every`\n"
            "did you mean `checkpoint.every` or `validation.every` or `metrics.every`?"
        ],
    ),
    (
        "name_of_another_trainer",
        "[parallelism]\ntp = 2\n[training]\nlocal_batch_size = 2",
        [
            "run.toml:1: unknown section [parallelism]\ndid you mean `parallel`?",
            "run.toml:4: unknown key `training.local_batch_size`\ndid you mean `training.micro_batch_size`?",
        ],
    ),
    (
        "unknown_key_like_nothing",
        "[compile]\nxyzzy = 1",
        ["run.toml:2: unknown key `compile.xyzzy`\nkeys of [compile]: enable"],
    ),
    ("typo_section", "[modle]\ndim = 8", ["run.toml:1: unknown section [modle]\ndid you mean `model`?"]),
    (
        "section_is_a_number",
        "optim = 3",
        ["run.toml:1: optim (3): must be a section with keys such as `optim.lr`"],
    ),
    (
        "number_in_quotes",
        '[training]\nsteps = "100"',
        ['run.toml:2: training.steps ("100"): must be a whole number, at least 1\nwrite 100, without quotes'],
    ),
    (
        "text_for_a_number",
        '[optim]\nlr = "fast"',
        ['run.toml:2: optim.lr ("fast"): must be a number above 0'],
    ),
    (
        "fraction_for_a_count",
        "[training]\nsteps = 1e3",
        ["run.toml:2: training.steps (1000.0): must be a whole number, at least 1\nwrite 1000"],
    ),
    (
        "number_for_a_text",
        "[run]\ndir = 7",
        ['run.toml:2: run.dir (7): must be text, not empty\nwrite it in quotes: "7"'],
    ),
    (
        "text_for_a_switch",
        '[compile]\nenable = "True"',
        [
            'run.toml:2: compile.enable ("True"): must be true or false\n'
            "write true, in small letters and without quotes"
        ],
    ),
    ("switch_for_a_number", "[optim]\nlr = true", ["run.toml:2: optim.lr (true): must be a number above 0"]),
    (
        "zero",
        "[training]\nseq_len = 0",
        ["run.toml:2: training.seq_len (0): must be a whole number, at least 1"],
    ),
    (
        "negative",
        "[training]\nsteps = -5",
        ["run.toml:2: training.steps (-5): must be a whole number, at least 1"],
    ),
    ("not_finite", "[optim]\nlr = inf", ["run.toml:2: optim.lr (inf): must be a number above 0 and finite"]),
    (
        "out_of_range",
        "[lr]\nmin_ratio = 1.5",
        ["run.toml:2: lr.min_ratio (1.5): must be a number, at least 0 and at most 1"],
    ),
    (
        "too_large",
        "[training]\nsteps = 1" + "0" * 30,
        [f"run.toml:2: training.steps (1{'0' * 30}): too large"],
    ),
    (
        "enum",
        '[lr]\nschedule = "cosin"',
        [
            'run.toml:2: lr.schedule ("cosin"): must be "cosine", "linear", "wsd" or "constant"\n'
            'did you mean "cosine"?'
        ],
    ),
    (
        "list_with_a_number",
        '[data]\ndataset = "text"\npath = ["a", 3]',
        ['run.toml:3: data.path (["a", 3]): must be text, or a list of texts'],
    ),
    ("empty_text", '[run]\ndir = ""', ['run.toml:2: run.dir (""): must be text, not empty']),
    (
        "bad_name",
        '[run]\nname = "a/b"',
        [
            'run.toml:2: run.name ("a/b"): must be a name of up to 100 letters, digits, `.`, `_` and `-` '
            "that starts with a letter or digit"
        ],
    ),
    (
        "optional",
        '[training]\nglobal_batch_size = "all"',
        ['run.toml:2: training.global_batch_size ("all"): must be a whole number, at least 1, or "none"'],
    ),
    (
        "unknown_preset",
        'preset = "llama3_debugmodel"\n[optim]\nlr = 0',
        [
            'run.toml:1: preset ("llama3_debugmodel"): no such preset\ndid you mean "llama3_debug"?',
            "run.toml:3: optim.lr (0): must be a number above 0",
        ],
    ),
    (
        "heads",
        "[model]\nn_heads = 7",
        [
            "run.toml:2: model.n_heads (7): must divide model.dim (256); use 4 or 8",
            "run.toml:2: model.n_kv_heads (4): must divide model.n_heads (7); use 1 or 7",
        ],
    ),
    (
        "kv_heads",
        "[model]\nn_kv_heads = 3",
        ["run.toml:2: model.n_kv_heads (3): must divide model.n_heads (8); use 2 or 4"],
    ),
    (
        "odd_head_dim",
        "[model]\ndim = 24",
        [
            "run.toml:2: model.n_heads (8): gives a head dimension of 3, but RoPE needs an even one; use 6 or 12"
        ],
    ),
    (
        "rope_factors",
        "[model.rope_scaling]\nlow_freq_factor = 4",
        [
            "run.toml:2: model.rope_scaling.low_freq_factor (4.0): must be below "
            "model.rope_scaling.high_freq_factor (4.0); Llama 3.1 uses 1.0 and 4.0"
        ],
    ),
    (
        "wsd_without_decay",
        '[lr]\nschedule = "wsd"\ndecay_fraction = 0.0',
        [
            'run.toml:3: lr.decay_fraction (0.0): must be above 0 with lr.schedule "wsd"; '
            'for no decay use lr.schedule = "constant"'
        ],
    ),
    (
        "batch",
        "[training]\nglobal_batch_size = 20",
        [
            "run.toml:2: training.global_batch_size (20): must be divisible by training.micro_batch_size (8); "
            "use 16 or 24"
        ],
    ),
    (
        "batch_over_ranks",
        "[training]\nglobal_batch_size = 24\n[parallel]\ndp_replicate = 2",
        [
            "run.toml:2: training.global_batch_size (24): must be divisible by training.micro_batch_size (8) "
            "* data-parallel ranks (2); use 16 or 32"
        ],
    ),
    (
        "vocabulary",
        "[tokenizer]\nvocab_size = 8000",
        [
            "run.toml:2: tokenizer.vocab_size (8000): must be at most model.vocab_size (4096); use 4096 or fewer"
        ],
    ),
    (
        "two_vocabularies",
        '[tokenizer]\npath = "t.json"\nvocab_size = 300',
        [
            "run.toml:3: tokenizer.vocab_size (300): has no effect with tokenizer.path, whose file has its own "
            "size; leave out one of the two"
        ],
    ),
    (
        "small_vocabulary",
        "[model]\nvocab_size = 100",
        [
            "run.toml:2: model.vocab_size (100): must be at least 260 for the byte-level BPE that is trained; "
            "use 260, or give tokenizer.path"
        ],
    ),
    (
        "loss_scaling",
        '[training]\nprecision = "bf16"\nloss_scaling.init_scale = 8.0',
        [
            'run.toml:3: [training.loss_scaling]: has no effect with training.precision "bf16"; '
            'leave it out, or use "fp16" or "auto"'
        ],
    ),
    (
        "every_k",
        '[activation]\ncheckpoint = "every_k"\nevery_k = 7',
        ["run.toml:3: activation.every_k (7): must be at most model.n_layers (6); use 6 or fewer"],
    ),
    (
        "dataset",
        '[data]\ndataset = "txt"',
        [
            f'run.toml:2: data.dataset ("txt"): must be one of {KINDS} or module:function; '
            'did you mean "text"?'
        ],
    ),
    (
        "missing_path",
        '[data]\ndataset = "jsonl"',
        [
            'run.toml:2: data.path ([]): is required by data.dataset "jsonl"; '
            'give files, folders or globs: data.path = "..."'
        ],
    ),
    (
        "useless_path",
        '[data]\npath = "a.txt"',
        [
            'run.toml:2: data.path (["a.txt"]): has no effect with data.dataset "python-stdlib"; '
            'for files use dataset "text", "jsonl" or "parquet"'
        ],
    ),
    (
        "useless_path_of_a_function",
        '[data]\ndataset = "my.module:texts"\npath = "a.txt"',
        [
            'run.toml:3: data.path (["a.txt"]): has no effect with data.dataset "my.module:texts"; '
            'for files use dataset "text", "jsonl" or "parquet"'
        ],
    ),
    (
        "two_hub_names",
        '[data]\ndataset = "hf"\npath = ["a", "b"]',
        ['run.toml:3: data.path (["a", "b"]): must be one name with data.dataset "hf"; keep one'],
    ),
    (
        "useless_subset",
        '[data]\nsubset = "en"',
        ['run.toml:2: data.subset ("en"): has no effect with data.dataset "python-stdlib"; leave it out'],
    ),
    (
        "validation_never_runs",
        '[validation.data]\ndataset = "text"',
        [
            "run.toml:1: validation.every (0): must be at least 1 when [validation.data] is given; "
            "set it, or leave out [validation.data]",
            'run.toml:2: validation.data.path ([]): is required by validation.data.dataset "text"; '
            'give files, folders or globs: validation.data.path = "..."',
        ],
    ),
    (
        "init_from",
        '[checkpoint]\ninit_from = "https://hub/model"',
        [
            'run.toml:2: checkpoint.init_from ("https://hub/model"): must be "hf:DIR" or a checkpoint folder; '
            "download the folder first"
        ],
    ),
    (
        "init_from_nothing",
        '[checkpoint]\ninit_from = "hf:"',
        [
            'run.toml:2: checkpoint.init_from ("hf:"): must be "hf:DIR" or a checkpoint folder; '
            'such as "hf:models/llama"'
        ],
    ),
    (
        "shard_degree",
        "[parallel]\ndp_shard = 0",
        [
            "run.toml:2: parallel.dp_shard (0): must be at least 1, or -1; "
            "-1 takes all ranks that remain, 1 shards nothing"
        ],
    ),
    (
        "tensor_parallel",
        "[parallel]\ntp = 2",
        [f"run.toml:2: parallel.tp (2): tensor parallelism is not in this release; {DP}"],
    ),
    (
        "tensor_parallel_heads",
        "[model]\nn_kv_heads = 2\n[parallel]\ntp = 4",
        [
            f"run.toml:4: parallel.tp (4): tensor parallelism is not in this release; {DP}",
            "run.toml:4: parallel.tp (4): must divide model.n_kv_heads (2); use 2",
        ],
    ),
    (
        "tensor_parallel_sequence",
        "[training]\nseq_len = 255\n[parallel]\ntp = 2",
        [
            "run.toml:2: training.seq_len (255): must be divisible by parallel.tp (2); use 254 or 256",
            f"run.toml:4: parallel.tp (2): tensor parallelism is not in this release; {DP}",
        ],
    ),
    (
        "pipeline",
        "[parallel]\npp = 8",
        [
            f"run.toml:2: parallel.pp (8): pipeline parallelism is not in this release; {DP}",
            "run.toml:2: parallel.pp (8): must be at most model.n_layers (6); use 6 or fewer",
            "run.toml:2: parallel.pp (8): must be at most the micro-batches per step and rank, 1; "
            "use training.global_batch_size = 64",
        ],
    ),
    (
        "context_parallel",
        "[training]\nseq_len = 100\n[parallel]\ncp = 4",
        [
            "run.toml:2: training.seq_len (100): must be divisible by 2 * parallel.cp (8); use 96 or 104",
            f"run.toml:4: parallel.cp (4): context parallelism is not in this release; {DP}",
        ],
    ),
    (
        "experts",
        "[parallel]\nep = 2",
        [
            'run.toml:2: parallel.ep (2): needs a mixture-of-experts model, and model.name "llama3" is dense; '
            "use 1"
        ],
    ),
]


@pytest.mark.parametrize(("text", "expected"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_message(complaints: Complain, text: str, expected: list[str]) -> None:
    Path("run.toml").write_text(text)
    assert complaints("run.toml") == expected


def test_the_table_is_long_enough() -> None:
    assert len(BROKEN) >= 30


def test_all_mistakes_at_once_in_reading_order(complaints: Complain) -> None:
    text = '[optim]\nlrr = 1\nbeta1 = 2\n[training]\nsteps = "5"\nglobal_batch_size = 9\n[modle]\n[model]\nn_heads = 3'
    Path("run.toml").write_text(text)
    first_lines = [message.partition("\n")[0] for message in complaints("run.toml", ["optim.lr=x", "seed=1"])]
    assert [line.partition(" ")[0] for line in first_lines] == [
        *(f"run.toml:{line}:" for line in (2, 3, 5, 6, 7, 9, 9)),
        *["--set"] * 2,
    ]


def test_a_rule_is_silent_about_an_option_that_is_already_wrong(complaints: Complain) -> None:
    """`n_heads` falls back to 8 while it is broken, and 3 does not divide 8: not what the user did."""
    Path("run.toml").write_text('[model]\nn_heads = "6"\nn_kv_heads = 3')
    assert complaints("run.toml") == [
        'run.toml:2: model.n_heads ("6"): must be a whole number, at least 1\nwrite 6, without quotes'
    ]


def test_a_rule_names_what_was_typed_last(complaints: Complain) -> None:
    Path("run.toml").write_text("[model]\nn_heads = 8\n")
    (message,) = complaints("run.toml", ["model.n_kv_heads=3"])
    assert message.startswith("--set model.n_kv_heads=3: model.n_kv_heads (3): must divide")
    Path("run.toml").write_text("[model]\nn_kv_heads = 4\n")
    (message,) = complaints("run.toml", ["model.n_heads=2"])
    assert message.startswith("--set model.n_heads=2: model.n_kv_heads (4): must divide model.n_heads (2)")


def test_a_wrong_value_is_told_even_when_a_later_one_is_right(complaints: Complain) -> None:
    Path("run.toml").write_text("[optim]\nlr = -1")
    assert complaints("run.toml", ["optim.lr=1.0"]) == ["run.toml:2: optim.lr (-1): must be a number above 0"]
