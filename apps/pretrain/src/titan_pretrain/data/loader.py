"""The loader: micro-batches for one data-parallel rank."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from titan_pretrain.data.batch import Batch, make_batch
from titan_pretrain.data.packing import Cursor
from titan_pretrain.data.plan import (
    Part,
    Plan,
    check_degree,
    check_not_empty,
    legal_degrees,
    shards_for_training,
)
from titan_pretrain.data.sequences import SequenceDataset, Share
from titan_pretrain.data.source import DocumentSource
from titan_pretrain.data.state import check_fingerprint
from titan_pretrain.data.validation import validation_view
from titan_pretrain.data.workers import SequenceReader
from titan_pretrain.errors import TrainingError
from titan_pretrain.tokenizer import Tokenizer

__all__ = ["TokenLoader"]

_BATCHES_AHEAD = 4
_TOKENS_AT_ONCE = 4096


class TokenLoader:
    """Endless iterator over the micro-batches of one data-parallel rank.

    Sequence g of the run is a function of the dataset, the seed and g alone; rank r of D takes
    g = r, r + D, r + 2D and so on.  The state is exact after every micro-batch, however far the workers
    are ahead, and any number of ranks that divides the number of virtual shards can go on from it.

    Args:
        source: The dataset.
        tokenizer: The tokenizer.
        seq_len: Tokens per sequence, T.
        micro_batch_size: Sequences per batch, B.
        dp_rank: This rank among the data-parallel ranks.
        dp_size: Number of data-parallel ranks, D.
        seed: Seed of the document order.
        shuffle: Shuffle the documents, anew in every epoch.
        document_mask: Keep documents apart (labels, positions, document ids).
        workers: Processes that read ahead; 0 reads in this process.
        num_shards: Virtual shards V of a training; default lcm(48, D).  A loaded state brings its own.
        holdout: Share of documents kept for validation.
        part: ``"train"`` skips the held-out documents, ``"validation"`` reads only them, or all if
            ``holdout`` is 0.

    Raises:
        UsageError: D doesn't divide ``num_shards``, or the hold-out leaves no document.
        DataError: The dataset is empty.
    """

    def __init__(
        self,
        source: DocumentSource,
        tokenizer: Tokenizer,
        *,
        seq_len: int,
        micro_batch_size: int,
        dp_rank: int,
        dp_size: int,
        seed: int,
        shuffle: bool,
        document_mask: bool,
        workers: int,
        num_shards: int | None = None,
        holdout: float = 0.0,
        part: Part = "train",
    ) -> None:
        # The workers are the parallelism; this also keeps the library from warning at every fork.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        self._source = source
        self._identity = source.identity()  # hashes the whole dataset's description: once is enough
        self._tokenizer = tokenizer
        self._seq_len = seq_len
        self._micro_batch_size = micro_batch_size
        self._dp_rank = dp_rank
        self._dp_size = dp_size
        self._document_mask = document_mask
        self._workers = workers
        self._reader: SequenceReader | None = None
        plan = Plan(num_shards or shards_for_training(dp_size), seed, shuffle, holdout, part)
        if part == "validation":
            self._source, plan = validation_view(source, plan)
        check_not_empty(self._source, plan)
        self._begin(plan, consumed=0, cursors={})

    def _begin(self, plan: Plan, consumed: int, cursors: Mapping[int, Cursor]) -> None:
        """Stand behind the first ``consumed`` sequences of all ranks."""
        if plan.part == "train":
            check_degree(plan.num_shards, self._dp_size)
        self._stop()
        self._plan = plan
        self._consumed = consumed
        self._taken = 0
        self._cursors = {shard: cursors.get(shard, Cursor()) for shard in self._share().shards()}

    def _share(self) -> Share:
        """Return the sequences this rank takes from now on."""
        return Share.of_rank(self._plan.num_shards, self._global_sequences, self._dp_rank, self._dp_size)

    @property
    def _global_sequences(self) -> int:
        """Sequences all ranks together have taken, if they have taken as many as this one."""
        return self._consumed + self._taken * self._dp_size

    def __iter__(self) -> TokenLoader:
        """Return itself."""
        return self

    def __next__(self) -> Batch:
        """Return the next micro-batch.

        Raises:
            DataError: The dataset can't be read on, or a worker process died.
        """
        if self._reader is None:
            self._reader = self._start()
        sequences = [next(self._reader) for _ in range(self._micro_batch_size)]
        self._cursors.update((sequence.shard, sequence.cursor) for sequence in sequences)
        self._taken += len(sequences)
        return make_batch(sequences, document_mask=self._document_mask)

    def _start(self) -> SequenceReader:
        # Each worker owns its shards, so the number of workers must divide the number of shards.
        shards = len(self._cursors)
        workers = max((n for n in legal_degrees(shards) if n <= self._workers), default=0)
        # Handing over costs the training process more than a short sequence is worth.
        chunk = max(_TOKENS_AT_ONCE // self._seq_len, 1) if workers else 1
        dataset = SequenceDataset(
            self._source, self._tokenizer, self._plan, self._seq_len, self._share(), self._cursors, chunk
        )
        return SequenceReader(dataset, workers, ahead=-(-_BATCHES_AHEAD * self._micro_batch_size // chunk))

    def state_dict(self) -> dict[str, Any]:
        """Return where this rank stands after the batches it has returned; JSON-able.

        ``merge_states`` makes one state of all ranks' states, which ``load_state_dict`` takes.
        """
        return {
            "num_shards": self._plan.num_shards,
            "sequences": self._taken,
            "global_sequences": self._global_sequences,
            "shards": {str(shard): cursor.to_json() for shard, cursor in sorted(self._cursors.items())},
            "fingerprint": self._fingerprint(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where the merged states of all ranks end.

        Raises:
            UsageError: The state belongs to other data or settings, or the number of ranks doesn't
                divide its virtual shards.
            TrainingError: The state lacks shards of this rank.
        """
        check_fingerprint(state["fingerprint"], self._fingerprint())
        cursors = {int(shard): Cursor.from_json(value) for shard, value in state["shards"].items()}
        plan = replace(self._plan, num_shards=int(state["num_shards"]))
        if len(cursors) != plan.num_shards:
            raise TrainingError(
                f"the data state has {len(cursors)} of {plan.num_shards} virtual shards; "
                "unite the states of all ranks with merge_states"
            )
        self._begin(plan, int(state["global_sequences"]), cursors)

    def _fingerprint(self) -> dict[str, Any]:
        plan = self._plan
        return {
            "source": self._identity,
            "tokenizer": self._tokenizer.fingerprint,
            "seq_len": self._seq_len,
            "seed": plan.seed,
            "shuffle": plan.shuffle,
            "document_mask": self._document_mask,
            "holdout": plan.holdout,
        }

    def close(self) -> None:
        """Stop the workers.

        The loader can be iterated again: from where it stands, or for validation from the beginning,
        so that every validation sees the same sequences.
        """
        self._stop()
        if self._plan.part == "validation":
            self._begin(self._plan, consumed=0, cursors={})

    def _stop(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
