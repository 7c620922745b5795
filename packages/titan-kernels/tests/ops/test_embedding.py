"""Embedding: PyTorch's results, a deterministic gradient, indices out of range."""

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from titan_kernels import emulated, explain
from titan_kernels.ops import embedding, embedding_gradient
from titan_kernels.ops.embedding.segments import TILE, Segments
from titan_kernels.testing import DEVICE, running

IMPLEMENTATIONS = ("cuda", "triton", "reference")


def inputs(shape=(4, 5), rows=7, columns=24, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    indices = torch.randint(rows, shape, generator=generator)
    weight = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    return indices.to(DEVICE), weight.to(DEVICE, dtype).requires_grad_()


def gradient(out, weight):
    """With a gradient of the result that differs at every position."""
    grad = torch.linspace(-1, 1, out.numel(), device=DEVICE, dtype=out.dtype).view(out.shape)
    return torch.autograd.grad(out, weight, grad)[0]


@pytest.mark.parametrize("padding_idx", [None, 3, -2])
@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
def test_is_pytorchs_embedding(padding_idx, index_dtype):
    indices, weight = inputs()
    ours = embedding(indices.to(index_dtype), weight, padding_idx)
    theirs = F.embedding(indices, weight, padding_idx)
    assert torch.equal(ours, theirs)
    torch.testing.assert_close(gradient(ours, weight), gradient(theirs, weight))


def test_gradcheck():
    indices, weight = inputs(columns=3)
    assert torch.autograd.gradcheck(lambda w: embedding(indices, w, scale=1.7), weight)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_scale_is_rounded_once(implementation):
    indices, weight = inputs(dtype=torch.float16)
    with running(implementation):
        out = embedding(indices, weight, scale=27.71)
    factor = torch.tensor(27.71, device=DEVICE, dtype=torch.float32)
    assert torch.equal(out, F.embedding(indices, weight.float() * factor).half())


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("columns", [24, 13])
def test_rows_move_unchanged(implementation, columns):
    indices, weight = inputs(columns=columns, dtype=torch.float16)
    with running(implementation):
        assert torch.equal(embedding(indices, weight), F.embedding(indices, weight))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_gradient_of_rows_without_positions_is_zero(implementation):
    indices, weight = inputs(rows=70, dtype=torch.float32)
    with running(implementation):
        grad = gradient(embedding(indices, weight, padding_idx=int(indices[0, 0])), weight)
    used = torch.zeros(70, dtype=torch.bool, device=DEVICE)
    used[indices.flatten()] = True
    used[indices[0, 0]] = False
    assert torch.equal(grad.any(-1), used)


@pytest.mark.parametrize("implementation", ["cuda", "triton"])
def test_sums_follow_the_order_of_positions(implementation):
    """In fp32, bit by bit: for segments of up to a tile of positions."""
    indices = torch.tensor([1, 0, 1, 2, 1] * 20, device=DEVICE)
    grad = torch.randn(100, 40, generator=torch.Generator().manual_seed(3)).to(DEVICE)
    expected = torch.zeros(3, 40, device=DEVICE)
    for position, row in enumerate(indices.tolist()):
        expected[row] += grad[position]
    with running(implementation, seed=5):
        assert torch.equal(embedding_gradient(grad, indices, 3), expected)


@pytest.mark.parametrize("implementation", ["cuda", "triton"])
@pytest.mark.parametrize(
    "counts", [(1000,), (TILE, TILE + 1, 3 * TILE), (5, 300, 1, 0, 200, 2), (129, 127, 256)]
)
@pytest.mark.parametrize("columns", [24, 13])
def test_long_segments_at_any_place(implementation, counts, columns):
    rows = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    indices = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))].to(DEVICE)
    grad = torch.randn(len(rows), columns, generator=torch.Generator().manual_seed(2)).to(DEVICE)
    with running(implementation, seed=7):
        got = embedding_gradient(grad, indices, len(counts))
    exact = torch.zeros(len(counts), columns, dtype=torch.float64, device=DEVICE)
    exact.index_add_(0, indices, grad.double())
    torch.testing.assert_close(got, exact.float(), rtol=1e-5, atol=2e-5)


@pytest.mark.skipif(DEVICE.type != "cpu", reason="looks at emulated launches")
def test_repeated_row_is_shared_by_many_blocks():
    indices, grad = torch.full((20000,), 2), torch.ones(20000, 8)
    with running("cuda", count=True) as session:
        got = embedding_gradient(grad, indices, 4)
    assert torch.equal(got, torch.tensor([0.0, 0.0, 20000.0, 0.0])[:, None].expand(4, 8))
    pieces, rows = session.launches
    assert pieces.grid[0] == -(-20000 // TILE)
    assert rows.counters.global_load_bytes < grad.nbytes / 10, "the rows' kernel adds pieces only"


@pytest.mark.parametrize("implementation", ["cuda", "triton"])
@pytest.mark.parametrize("wrong", [7, -1, 2**40, -(2**40)])
def test_index_out_of_range_where_a_check_would_wait(implementation, wrong):
    indices, weight = inputs(dtype=torch.float32)
    good = gradient(embedding(indices, weight), weight)
    dropped = torch.linspace(-1, 1, 4 * 5 * 24, device=DEVICE).view(4, 5, 24)[1, 2]
    row = int(indices[1, 2])
    indices[1, 2] = wrong
    with running(implementation):
        out = embedding(indices, weight)
        grad = gradient(out, weight)
    bad = torch.zeros(4, 5, dtype=torch.bool, device=DEVICE)
    bad[1, 2] = True
    assert torch.equal(out.isnan().all(-1), bad)
    assert torch.equal(out.isnan().any(-1), bad)
    good[row] -= dropped
    torch.testing.assert_close(grad, good)


@pytest.mark.parametrize("implementation", ["cuda", "triton"])
@pytest.mark.parametrize("wrong", [-1, 3])
def test_many_indices_out_of_range(implementation, wrong):
    indices = torch.full((400,), wrong, device=DEVICE)
    with running(implementation):
        assert not embedding_gradient(torch.ones(400, 8, device=DEVICE), indices, 3).any()


@pytest.mark.skipif(DEVICE.type != "cpu", reason="GPUs don't check")
@pytest.mark.parametrize("wrong", [7, -1])
def test_index_out_of_range_is_an_error_on_a_cpu(wrong):
    indices, weight = inputs()
    indices[1, 2] = wrong
    with pytest.raises(
        IndexError, match=rf"indices \({wrong}\): they must be rows of the table, from 0 to 6"
    ):
        embedding(indices, weight)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_fp32_gradient_of_16_bit_rows(implementation):
    indices, _ = inputs()
    grad = torch.randn(4, 5, 24, generator=torch.Generator().manual_seed(4)).to(DEVICE, torch.float16)
    with running(implementation):
        wide = embedding_gradient(grad, indices, 7, scale=3.0, fp32=True)
        narrow = embedding_gradient(grad, indices, 7, scale=3.0)
    assert wide.dtype == torch.float32
    assert torch.equal(wide.half(), narrow)
    assert not torch.equal(wide, narrow.float())


def test_segments():
    segments = Segments.of(torch.tensor([3, 1, 9, 3, -1, 0]), 5)
    assert segments.order.tolist() == [4, 5, 1, 0, 3, 2]
    assert segments.starts.tolist() == [1, 2, 3, 3, 5, 5]
    assert segments.tiles == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda i, w: embedding(i.float(), w), r"indices \(torch.float32\): they must be int64 or int32"),
        (lambda i, w: embedding(i, w[0]), r"weight \(torch.float64, shape \(24,\)\): it must be a table"),
        (lambda i, w: embedding(i, w.long()), r"weight \(torch.int64"),
        (lambda i, w: embedding(i, w, padding_idx=7), r"padding_idx \(7\): it must be from -7 to 6"),
        (lambda i, w: embedding_gradient(w, i, 7), r"grad \(shape \(7, 24\)\): it must be like the indices"),
        (lambda i, w: embedding_gradient(w.new_empty(4, 5, 3), i, 7, -8), r"padding_idx \(-8\)"),
    ],
)
def test_argument_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call(*inputs())


def test_compiles_without_graph_breaks():
    indices, weight = inputs(dtype=torch.float32)

    def f(weight):
        return embedding(indices, weight, padding_idx=1, scale=2.0)

    compiled = torch.compile(f, backend="aot_eager", fullgraph=True)(weight)
    torch.testing.assert_close(compiled, f(weight))
    torch.testing.assert_close(gradient(compiled, weight), gradient(f(weight), weight))


def test_more_positions_than_the_kernels_count():
    indices = torch.zeros(1, dtype=torch.int64).expand(2**31 - TILE)
    with emulated():
        for count, ok in ((2**31 - TILE, False), (2**31 - 1 - TILE, True)):
            grad = torch.zeros(1, 1).expand(count, 1)
            explanation = explain("embedding_backward", grad, indices[:count], 3, -1, 1.0, False)
            assert dict(explanation.verdicts)["cuda"].ok is ok


def test_activation_checkpointing():
    indices, weight = inputs(dtype=torch.float32)

    def f(weight):
        return embedding(indices, weight).square()

    assert torch.equal(
        gradient(checkpoint(f, weight, use_reentrant=False), weight), gradient(f(weight), weight)
    )


def test_autocast_leaves_the_dtype_alone():
    indices, weight = inputs(dtype=torch.float32)
    with torch.autocast(DEVICE.type, dtype=torch.bfloat16):
        assert embedding(indices, weight).dtype == torch.float32


@pytest.mark.gpu
def test_nothing_waits_for_the_gpu():
    indices, weight = inputs(dtype=torch.float32)
    gradient(embedding(indices, weight), weight)
    torch.cuda.set_sync_debug_mode("error")
    try:
        gradient(embedding(indices, weight), weight)
    finally:
        torch.cuda.set_sync_debug_mode("default")
