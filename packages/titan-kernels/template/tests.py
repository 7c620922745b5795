"""What is particular to this operator; test_every_op.py has the rest."""

import pytest
import torch

from titan_kernels import ops


def test_reference_is_pytorchs():
    x = torch.randn(3, 5, dtype=torch.float64)
    torch.testing.assert_close(ops.new_op(x, 0.25), 0.25 * x)


def test_gradients():
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: ops.new_op(x, 0.25), (x,))


def test_integers_are_refused():
    with pytest.raises(ValueError, match=r"x \(torch.int64, shape \(3,\)\): it must be floating point"):
        ops.new_op(torch.arange(3), 0.25)
