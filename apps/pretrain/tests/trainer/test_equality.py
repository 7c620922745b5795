"""Every data-parallel layout trains like one process."""

import pytest

STEPS = 10


@pytest.fixture(scope="module")
def losses(train, rows, tiny, tmp_path_factory):
    def run(world_size, *, micro, **parallel):
        training = {"steps": STEPS, "seq_len": 32, "micro_batch_size": micro, "global_batch_size": 16}
        config = tiny(training=training, parallel=parallel)
        folder = tmp_path_factory.mktemp("run")
        results = train(config, world_size, folder)
        table = rows(folder)
        assert sorted(table) == list(range(1, STEPS + 1))
        return [(table[step]["loss"], table[step]["grad_norm"]) for step in table], results

    return run


@pytest.fixture(scope="module")
def single(losses):
    """Losses and norms of one process, which all layouts are compared with."""
    return losses(1, micro=16)[0]


@pytest.mark.slow
@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize(
    ("world_size", "parallel"),
    [
        (2, {}),
        (4, {}),
        (2, {"dp_replicate": 2}),
        (4, {"dp_replicate": 2}),
        (2, {"reshard_after_forward": False}),
    ],
    ids=["fsdp2", "fsdp4", "replicate2", "hsdp2x2", "fsdp2-no-reshard"],
)
def test_losses_and_norms_equal_one_process(losses, single, world_size, parallel, accumulation):
    several, results = losses(world_size, micro=16 // world_size // accumulation, **parallel)
    for step, ((loss, norm), (same_loss, same_norm)) in enumerate(zip(several, single, strict=True), 1):
        assert loss == pytest.approx(same_loss, abs=1e-5), step
        assert norm == pytest.approx(same_norm, rel=1e-4), step
    valid_by_rank = [sum(result.valid[:accumulation]) for result in results]
    assert len(set(valid_by_rank)) > 1, "the ranks' valid tokens must differ for this test to say anything"
    assert single[0][0] - single[-1][0] > 0.3, "the model must learn for this test to say anything"
