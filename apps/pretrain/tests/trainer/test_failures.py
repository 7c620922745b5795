import pytest
import torch
import torch.distributed as dist

from titan_parallel.errors import RankError
from titan_parallel.runtime import Runtime
from titan_pretrain.config.run_folder import newest_checkpoint
from titan_pretrain.config.sections import TrainConfig
from titan_pretrain.errors import DataError
from titan_pretrain.trainer.failures import explain

RANK = Runtime(3, 4, 3, torch.device("cpu"))


def config(**sections):
    return TrainConfig.model_validate(sections)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nand much more"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: 9 bytes"
        ),
    ],
)
def test_out_of_memory_names_the_ways_out_with_their_present_values(error):
    known = explain(error, config(training={"micro_batch_size": 8, "seq_len": 2048}), RANK)
    assert known is not None
    assert known.message.startswith("rank 3: out of memory on cpu: ")
    assert "\n" not in known.message
    assert known.hint is not None
    for words in (
        "micro_batch_size = 4 (now 8)",
        'activation.checkpoint = "full" (now "none")',
        "seq_len (now 2048)",
    ):
        assert words in known.hint


def test_ways_out_that_are_taken_already_are_not_named():
    taken = config(training={"micro_batch_size": 1, "seq_len": 128}, activation={"checkpoint": "full"})
    known = explain(torch.OutOfMemoryError("CUDA out of memory."), taken, RANK)
    assert known is not None
    assert known.hint is not None
    assert known.hint.startswith("try, in this order: more processes")


def test_real_allocation_failure_is_recognised():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60)
    assert explain(caught.value, config(), RANK) is not None


def test_lost_peer_names_the_timeout():
    lost = RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer")
    known = explain(lost, config(run={"comm_timeout_s": 7}), RANK)
    assert known is not None
    assert "run.comm_timeout_s (7)" in known.message


def test_bugs_stay_bugs():
    assert explain(RuntimeError("shapes do not match"), config(), RANK) is None


class Failing:
    """A loader whose dataset breaks on one rank after some batches."""

    def __init__(self, loader, batches):
        self._loader, self._left = loader, batches

    def __next__(self):
        self._left -= 1
        if self._left < 0 and dist.get_rank() == 1:
            raise DataError("a.jsonl:7 is broken")
        return next(self._loader)

    def __getattr__(self, name):
        return getattr(self._loader, name)


@pytest.mark.slow
def test_data_that_breaks_on_one_rank_loses_nothing(train, rows, tiny, tmp_path):
    def break_data(loop):
        loop.state.loader = Failing(loop.state.loader, 5)

    train(tiny(), 2, tmp_path / "straight")
    with pytest.raises(RankError, match=r"(?s)another rank can't read its data.*a.jsonl:7 is broken"):
        train(tiny(), 2, tmp_path / "run", tamper=break_data)
    assert newest_checkpoint(tmp_path / "run").name == "step-00000005"
    train(tiny(), 2, tmp_path / "run")
    one, other = rows(tmp_path / "straight"), rows(tmp_path / "run")
    assert [row["loss"] for row in one.values()] == [row["loss"] for row in other.values()]
