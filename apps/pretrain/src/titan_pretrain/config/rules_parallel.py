"""Rules about how the processes are divided."""

from __future__ import annotations

from math import prod

from titan_pretrain.config.rules import Findings, World, broken, nearest, rule, start_rule
from titan_pretrain.config.sections import TrainConfig

NOT_IN_THIS_RELEASE = {
    "tp": "tensor parallelism",
    "pp": "pipeline parallelism",
    "cp": "context parallelism",
}
"""Degrees that must be 1 until their engine is there; a release that brings it deletes the row."""

DEGREES = ("dp_replicate", "tp", "pp", "cp")
DP = ("parallel.dp_shard", "parallel.dp_replicate")
BATCH = ("training.global_batch_size", "training.micro_batch_size", *DP)


@rule(*(f"parallel.{degree}" for degree in NOT_IN_THIS_RELEASE))
def degree_is_implemented(config: TrainConfig) -> Findings:
    """Refuse what this release can't do, rather than ignore it."""
    for degree, engine in NOT_IN_THIS_RELEASE.items():
        if getattr(config.parallel, degree) > 1:
            way_out = "use 1 and let parallel.dp_shard spread the weights"
            yield broken(config, f"parallel.{degree}", f"{engine} is not in this release", way_out)


@rule("parallel.ep", "model.name")
def experts_exist(config: TrainConfig) -> Findings:
    """Expert parallelism divides experts."""
    if config.parallel.ep > 1:
        must = f'needs a mixture-of-experts model, and model.name "{config.model.name}" is dense'
        yield broken(config, "parallel.ep", must, "use 1")


@rule("parallel.dp_shard")
def shard_degree_is_legal(config: TrainConfig) -> Findings:
    """Nothing can be sharded over no rank."""
    if config.parallel.dp_shard == 0:
        way_out = "-1 takes all ranks that remain, 1 shards nothing"
        yield broken(config, "parallel.dp_shard", "must be at least 1, or -1", way_out)


@rule("parallel.tp", "model.n_heads", "model.n_kv_heads")
def tp_divides_heads(config: TrainConfig) -> Findings:
    """Attention heads are divided whole."""
    tp, model = config.parallel.tp, config.model
    for name, heads in (("n_heads", model.n_heads), ("n_kv_heads", model.n_kv_heads)):
        if heads % tp:
            way_out = nearest(tp, lambda n: model.n_heads % n == model.n_kv_heads % n == 0, high=heads)
            yield broken(config, "parallel.tp", f"must divide model.{name} ({heads})", way_out)


@rule("training.seq_len", "parallel.tp")
def tp_divides_sequence(config: TrainConfig) -> Findings:
    """Between the blocks the sequence is sharded over the tensor-parallel ranks."""
    tp, length = config.parallel.tp, config.training.seq_len
    if length % tp:
        way_out = nearest(length, lambda n: n % tp == 0)
        yield broken(config, "training.seq_len", f"must be divisible by parallel.tp ({tp})", way_out)


@rule("training.seq_len", "parallel.cp")
def cp_divides_sequence(config: TrainConfig) -> Findings:
    """Each rank holds two chunks, an early and a late one, so that causal work is even."""
    cp, length = config.parallel.cp, config.training.seq_len
    if cp > 1 and length % (2 * cp):
        must = f"must be divisible by 2 * parallel.cp ({2 * cp})"
        yield broken(config, "training.seq_len", must, nearest(length, lambda n: n % (2 * cp) == 0))


@rule("parallel.pp", "model.n_layers")
def stages_have_layers(config: TrainConfig) -> Findings:
    """Every pipeline stage holds at least one block."""
    layers = config.model.n_layers
    if config.parallel.pp > layers:
        must = f"must be at most model.n_layers ({layers})"
        yield broken(config, "parallel.pp", must, f"use {layers} or fewer")


@rule("parallel.pp", *BATCH)
def microbatches_fill_stages(config: TrainConfig) -> Findings:
    """Fewer micro-batches than stages leave stages idle, and the schedules refuse them."""
    pp, dp = config.parallel.pp, max(1, config.parallel.dp_shard) * config.parallel.dp_replicate
    micro = config.training.micro_batch_size * dp
    count = (config.training.global_batch_size or micro) // micro
    if pp > max(1, count):
        must = f"must be at most the micro-batches per step and rank, {max(1, count)}"
        yield broken(config, "parallel.pp", must, f"use training.global_batch_size = {pp * micro}")


@rule(*BATCH)
def batch_divides_evenly(config: TrainConfig) -> Findings:
    """What can be said without the number of processes; see also :func:`batch_divides_over_world`."""
    yield from _uneven_batch(config, max(1, config.parallel.dp_shard) * config.parallel.dp_replicate)


@start_rule("parallel.dp_replicate", *(f"parallel.{name}" for name in ("dp_shard", "tp", "pp", "cp")))
def degrees_fill_world(config: TrainConfig, world: World) -> Findings:
    """The degrees' product is the number of processes."""
    shard = config.parallel.dp_shard
    if shard == 0:
        return
    taken = _product(config)
    if shard == -1 and world.size % taken == 0:
        return
    total = taken * max(1, shard)
    if total == world.size:
        return
    names = [*DEGREES, *(["dp_shard"] if shard != -1 else [])]
    used = [name for name in names if getattr(config.parallel, name) > 1] or ["dp_shard"]
    verb = "must divide" if shard == -1 else "must be"
    product = " * ".join(f"parallel.{name}" for name in used)
    must = f"the degrees' product {f'{product} = {total} ' if len(used) > 1 else ''}{verb} "
    must += f"the number of processes, {world.size}"
    yield broken(config, f"parallel.{used[0]}", must, _world_way_out(config, world), origin=world.origin)


def _product(config: TrainConfig) -> int:
    return prod(getattr(config.parallel, degree) for degree in DEGREES)


def _world_way_out(config: TrainConfig, world: World) -> str:
    taken, shard = _product(config), config.parallel.dp_shard
    if shard != -1 and world.size % taken == 0:
        return f"use parallel.dp_shard = {world.size // taken}, or -1 for all that remain"
    if shard != -1:
        return f"start {taken * shard} processes, or change the degrees"
    return nearest(world.size, lambda n: n % taken == 0, way_out="start {} processes")


@start_rule(*BATCH, "parallel.tp", "parallel.pp", "parallel.cp", sharpens="batch_divides_evenly")
def batch_divides_over_world(config: TrainConfig, world: World) -> Findings:
    """Every data-parallel rank does the same number of micro-batches."""
    taken, shard = _product(config), config.parallel.dp_shard
    if shard == -1 and world.size % taken == 0:
        yield from _uneven_batch(config, config.parallel.dp_replicate * (world.size // taken))


def _uneven_batch(config: TrainConfig, dp: int) -> Findings:
    batch, micro = config.training.global_batch_size, config.training.micro_batch_size
    if batch is not None and batch % (micro * dp):
        ranks = f" * data-parallel ranks ({dp})" if dp > 1 else ""
        must = f"must be divisible by training.micro_batch_size ({micro}){ranks}"
        way_out = nearest(batch, lambda n: n % (micro * dp) == 0)
        yield broken(config, "training.global_batch_size", must, way_out or f"use {micro * dp}")
