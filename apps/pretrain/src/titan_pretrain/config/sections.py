"""The sections of a run's config, as a user types them.

Every section is a frozen pydantic model that refuses unknown keys and silent conversions: a number
in quotes is a mistake, not a number.  A field's docstring is its documentation:
``titan-pretrain config schema`` prints it.  Rules that involve one field stand here; rules that
involve several fields stand in :mod:`titan_pretrain.config.rules`.

An absent value is Python's ``None``, and ``"none"`` in TOML and on the command line.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

LARGEST_INT = 2**53
"""Whole numbers stop here: up to it, JSON, floats and torch agree on their value."""


class Words(str):
    """Annotation of a field whose rule types and bounds don't say: what to type, in words."""

    __slots__ = ()


def _as_tuple(value: object) -> object:
    """TOML has lists, and one path needs no list."""
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
RUN_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
Positive = Annotated[int, Field(ge=1, le=LARGEST_INT)]
NonNegative = Annotated[int, Field(ge=0, le=LARGEST_INT)]
Text = Annotated[str, Field(min_length=1), Words("text, not empty")]
Texts = Annotated[tuple[Text, ...], BeforeValidator(_as_tuple), Words("text, or a list of texts")]
ShardDegree = Annotated[int, Field(ge=-1, le=LARGEST_INT)]


class Section(BaseModel):
    """Base of all sections: immutable, no unknown keys, documented fields."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        validate_default=True,
        protected_namespaces=(),
    )


class RopeScalingConfig(Section):
    """Llama 3.1 frequency scaling of the rotary embedding."""

    factor: Annotated[float, Field(ge=1.0)] = 8.0
    """How many times longer the context is than `original_max_seq_len`."""
    low_freq_factor: Annotated[float, Field(gt=0.0)] = 1.0
    """Wavelengths longer than `original_max_seq_len / low_freq_factor` are stretched by `factor`."""
    high_freq_factor: Annotated[float, Field(gt=0.0)] = 4.0
    """Wavelengths shorter than `original_max_seq_len / high_freq_factor` stay as they are."""
    original_max_seq_len: Positive = 8192
    """Context length the base model was trained with, in tokens."""


class ModelConfig(Section):
    """A Llama 3 decoder."""

    name: Literal["llama3"] = "llama3"
    """Model family."""
    dim: Positive = 256
    """Width of the residual stream."""
    n_layers: Positive = 6
    """Number of decoder blocks."""
    n_heads: Positive = 8
    """Number of query heads; `dim / n_heads` is the head dimension."""
    n_kv_heads: Positive = 4
    """Number of key and value heads (grouped-query attention)."""
    ffn_dim: Positive = 704
    """Inner width of the SwiGLU feed-forward block."""
    vocab_size: Positive = 4096
    """Rows of the embedding; at least the tokenizer's size."""
    rope_theta: Annotated[float, Field(gt=0.0)] = 500000.0
    """Base of the rotary frequencies."""
    rope_scaling: RopeScalingConfig | None = None
    """Llama 3.1 long-context scaling; absent for Llama 3."""
    norm_eps: Annotated[float, Field(gt=0.0)] = 1e-5
    """Epsilon of RMSNorm."""
    tied_embeddings: bool = False
    """Share the input embedding with the output projection."""
    init_std: Annotated[float, Field(gt=0.0)] = 0.02
    """Standard deviation of the truncated normal the weights start from."""

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.dim // self.n_heads


class DataConfig(Section):
    """Where the text comes from and how it becomes sequences."""

    dataset: Text = "python-stdlib"
    """`python-stdlib`, `text`, `jsonl`, `parquet`, `hf`, `c4`, or `module:function` for your own."""
    path: Texts = ()
    """Files, folders or globs (`text`, `jsonl`, `parquet`), or a local folder or hub name (`hf`)."""
    subset: Text | None = None
    """Configuration name of a Hugging Face dataset."""
    split: Text = "train"
    """Split of a Hugging Face dataset."""
    text_key: Text = "text"
    """Field or column that holds a document's text."""
    streaming: bool = True
    """Stream a Hugging Face dataset instead of preparing it on disk."""
    shuffle: bool = True
    """Shuffle the documents by `training.seed`, anew in every epoch."""
    document_mask: bool = True
    """Keep packed documents apart: attention, positions and loss stop at a document's end."""
    workers: NonNegative = 2
    """Processes per rank that read and tokenize; 0 does it in the training process."""


class TokenizerConfig(Section):
    """How text becomes token ids."""

    path: Text | None = None
    """`tokenizer.json`, a tiktoken or sentencepiece `tokenizer.model`, or a folder with one.
    Absent: a byte-level BPE is trained on the dataset and kept in the run folder."""
    vocab_size: Annotated[int, Field(ge=260, le=LARGEST_INT)] | None = None
    """Size of the BPE trained when `path` is absent; default `model.vocab_size`."""


class LossScalingConfig(Section):
    """Dynamic loss scaling, used with fp16 only."""

    init_scale: Annotated[float, Field(ge=1.0, le=2.0**32)] = 65536.0
    """First scale."""
    growth_factor: Annotated[float, Field(gt=1.0)] = 2.0
    """The scale is multiplied by this after `growth_interval` good steps."""
    backoff_factor: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.5
    """The scale is multiplied by this after a step with a non-finite gradient."""
    growth_interval: Positive = 1000
    """Good steps in a row before the scale grows."""
    max_skips_in_a_row: Positive = 50
    """Stop with a diagnosis after so many skipped steps in a row."""


class TrainingConfig(Section):
    """Length, batch, precision and reproducibility."""

    steps: Positive = 100
    """Optimizer steps of the whole run, including those before a resume."""
    seq_len: Positive = 256
    """Tokens per sequence."""
    micro_batch_size: Positive = 8
    """Sequences per forward pass and data-parallel rank."""
    global_batch_size: Positive | None = None
    """Sequences per optimizer step over all ranks; default one micro-batch per data-parallel rank."""
    seed: NonNegative = 42
    """Seed of weights and data order."""
    deterministic: bool = False
    """Refuse operations whose result may change between two runs on the same machine."""
    precision: Literal["auto", "fp32", "fp16", "bf16"] = "auto"
    """Compute precision; weights and optimizer state stay fp32.  `auto`: fp16 with loss scaling on
    Volta and Turing, bf16 from Ampere on, fp32 on CPU."""
    loss_scaling: LossScalingConfig = LossScalingConfig()
    """Dynamic loss scaling of fp16."""


class OptimConfig(Section):
    """AdamW (Loshchilov and Hutter, arXiv:1711.05101)."""

    lr: Annotated[float, Field(gt=0.0)] = 2e-3
    """Peak learning rate."""
    beta1: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    """Decay of the gradient's running mean."""
    beta2: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.95
    """Decay of the squared gradient's running mean."""
    eps: Annotated[float, Field(gt=0.0)] = 1e-8
    """Added to the denominator."""
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.1
    """Decoupled weight decay."""
    decay_norms_and_embeddings: bool = False
    """Apply weight decay to norm weights and embeddings too."""
    max_grad_norm: Annotated[float, Field(gt=0.0)] | None = 1.0
    """Clip the gradient to this global norm; "none" turns clipping off."""


class LRConfig(Section):
    """Learning-rate schedule: linear warmup, then a decay."""

    schedule: Literal["cosine", "linear", "wsd", "constant"] = "cosine"
    """Shape after the warmup; `wsd` holds the peak and decays over the last `decay_fraction`."""
    warmup_steps: NonNegative = 10
    """Steps of linear warmup."""
    decay_fraction: Fraction = 0.2
    """Share of all steps over which `wsd` decays."""
    min_ratio: Fraction = 0.1
    """Final learning rate as a share of the peak."""


class ParallelConfig(Section):
    """How the ranks are divided."""

    dp_replicate: Positive = 1
    """Data-parallel groups that hold a full copy of the weights each."""
    dp_shard: ShardDegree = -1
    """Ranks over which FSDP2 shards weights, gradients and optimizer state; -1: all that remain."""
    tp: Positive = 1
    """Tensor-parallel degree."""
    pp: Positive = 1
    """Pipeline stages."""
    cp: Positive = 1
    """Context-parallel degree."""
    ep: Positive = 1
    """Expert-parallel degree."""
    reshard_after_forward: bool = True
    """Free gathered weights after the forward pass (less memory, one more all-gather)."""


class ActivationConfig(Section):
    """Activation checkpointing: recompute instead of store."""

    checkpoint: Literal["none", "full", "every_k"] = "none"
    """Which decoder blocks are recomputed in the backward pass."""
    every_k: Positive = 2
    """With `every_k`: every k-th block is recomputed."""


class CompileConfig(Section):
    """torch.compile."""

    enable: bool = False
    """Compile each decoder block (needs a C++ compiler on CPU, Triton on GPU)."""


class CheckpointConfig(Section):
    """Saving and starting points."""

    every: NonNegative = 0
    """Save every so many steps; 0 saves at the end only."""
    keep: Positive = 2
    """How many checkpoints stay on disk."""
    save_last: bool = True
    """Save when the last step is done."""
    on_corrupt: Literal["fail", "previous"] = "fail"
    """What a resume does when the newest checkpoint is damaged: stop, or take the one before."""
    init_from: Text | None = None
    """Start from the weights in `hf:DIR` (safetensors) or from a checkpoint folder."""


class ValidationConfig(Section):
    """Loss on text that is not trained on."""

    every: NonNegative = 0
    """Validate every so many steps; 0 turns validation off."""
    batches: Positive = 8
    """Micro-batches per rank and validation."""
    holdout: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.02
    """Share of documents kept out of training when `data` is not given."""
    data: DataConfig | None = None
    """A dataset of its own; absent: held-out documents of the training dataset."""


class MetricsConfig(Section):
    """What is written while training."""

    every: Positive = 10
    """Log every so many steps."""
    tensorboard: bool = True
    """Write TensorBoard event files."""
    report: bool = True
    """Write report.html at the end."""
    wandb_project: Text | None = None
    """Log to this Weights & Biases project (needs the `wandb` package)."""


class RunConfig(Section):
    """Where the run's files go."""

    dir: Text = "runs"
    """Folder that holds the run folders."""
    name: Annotated[
        str,
        Field(pattern=RUN_NAME, max_length=100),
        Words("a name of up to 100 letters, digits, `.`, `_` and `-` that starts with a letter or digit"),
    ] = "run"
    """First part of the run folder's name; the start time is the second."""
    comm_timeout_s: Positive = 600
    """Seconds a collective may wait for a lost or hanging rank."""


class TrainConfig(Section):
    """A whole run."""

    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    training: TrainingConfig = TrainingConfig()
    optim: OptimConfig = OptimConfig()
    lr: LRConfig = LRConfig()
    parallel: ParallelConfig = ParallelConfig()
    activation: ActivationConfig = ActivationConfig()
    compile: CompileConfig = CompileConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    validation: ValidationConfig = ValidationConfig()
    metrics: MetricsConfig = MetricsConfig()
    run: RunConfig = RunConfig()
