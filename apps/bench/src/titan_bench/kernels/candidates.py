"""Who takes part in the comparison of an operator: our implementations and their counterparts."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from titan_bench.kernels.errors import NoCounterpartError
from titan_bench.kernels.peers import PEERS, Derivative, Peer
from titan_kernels.registry import Op, prefer
from titan_kernels.testing import Truth, clone, results

__all__ = ["Arguments", "Candidate", "candidates", "own_names"]

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


class Arguments:
    """An operator's arguments, shared by all candidates, that can be restored after one wrote into them."""

    def __init__(self, values: tuple[Any, ...]) -> None:
        self.values = values
        self._saved = clone(values)

    def restore(self) -> None:
        """Put the first values back."""
        for x, saved in zip(pytree.tree_leaves(self.values), pytree.tree_leaves(self._saved), strict=True):
            if isinstance(x, Tensor):
                x.untyped_storage().copy_(saved.untyped_storage())


class Candidate(abc.ABC):
    """One way to compute an operator.

    Making it raises :class:`NoCounterpartError` where it can't serve the arguments; a counterpart's
    library may raise anything.

    Attributes:
        own: Whether it is one of our implementations, which must be right.
    """

    own = False

    def before(self) -> None:  # noqa: B027  # most need nothing
        """What each call needs and nobody times."""

    @abc.abstractmethod
    def run(self) -> Any:
        """The call to time."""

    def results(self) -> list[Tensor]:
        """Run once; the first of the operator's results."""
        self.before()
        return [x for x in pytree.tree_leaves(self.run()) if isinstance(x, Tensor)]

    def problems(self, truth: Truth, factor: float, ulps: float) -> list[str]:
        """Where the results are further from the exact ones than the bounds of ``Truth`` allow."""
        return truth.problems(self.results(), factor, ulps)


class _Own(Candidate):
    """An implementation of the registry, called as a user calls it."""

    own = True

    def __init__(self, op: Op, name: str, args: Arguments) -> None:
        verdict = dict(op.explain(*args.values).verdicts)[name]
        if not verdict.ok:
            raise NoCounterpartError(verdict.reason)
        self._op, self._name, self._args = op, name, args

    def before(self) -> None:
        self._args.restore()

    def run(self) -> Any:
        with prefer(self._name):
            return self._op(*self._args.values)

    def results(self) -> list[Tensor]:
        self.before()
        with prefer(self._name):
            return results(self._op, self._args.values)


class _Peer(Candidate):
    """A function of a counterpart; its inputs share memory with the operator's, so are restored too."""

    def __init__(self, peer: Peer, function: Callable[..., Any], args: Arguments) -> None:
        self._peer, self._function, self._args = peer, function, args

    def problems(self, truth: Truth, factor: float, ulps: float) -> list[str]:
        got = self.results()
        if not got:
            return ["no results"]
        if self._peer.truth is not None:
            truth = self._peer.truth(self._args.values, got)
        # A loss in fp16, say, is held to what fp16 can tell.
        reference = [each.to(x.dtype) for each, x in zip(truth.reference, got, strict=False)]
        return Truth(truth.exact[: len(got)], reference).problems(got, factor, ulps)


class _Forward(_Peer):
    """The function itself."""

    def __init__(
        self, peer: Peer, function: Callable[..., Any], args: Arguments, inputs: tuple[Any, ...]
    ) -> None:
        super().__init__(peer, function, args)
        self._inputs = inputs

    def before(self) -> None:
        self._args.restore()

    def run(self) -> Any:
        with torch.no_grad():
            return self._function(*self._inputs)


class _Backward(_Peer):
    """The function's derivative, by autograd."""

    def __init__(
        self, peer: Peer, function: Callable[..., Any], args: Arguments, derivative: Derivative
    ) -> None:
        super().__init__(peer, function, args)
        self._derivative = derivative
        self._leaves: list[Tensor] = []
        self._outputs: list[Tensor] = []
        self._grads: list[Tensor] = []

    def before(self) -> None:
        """The forward: what it saves is used up by each backward."""
        self._args.restore()
        derivative = self._derivative
        inputs = [
            x.detach().requires_grad_(i in derivative.by) if isinstance(x, Tensor) else x
            for i, x in enumerate(derivative.arguments)
        ]
        self._leaves = [inputs[i] for i in derivative.by]
        outputs = pytree.tree_leaves(self._function(*inputs))
        used = [(y, dy) for y, dy in zip(outputs, derivative.grads, strict=False) if dy is not None]
        self._outputs, self._grads = [y for y, _ in used], [dy for _, dy in used]

    def run(self) -> Any:
        return torch.autograd.grad(self._outputs, self._leaves, self._grads)


def own_names(op: Op) -> list[str]:
    """Our implementations; the last one is the reference, which is no contender."""
    return [each.name for each in op.implementations[:-1]]


def candidates(op: Op, args: Arguments, compiler: Compile) -> Iterator[tuple[str, Callable[[], Candidate]]]:
    """Names and makers of all candidates.

    Args:
        op: The operator.
        args: Its arguments.
        compiler: Makes the "compile" candidate from PyTorch's function.
    """
    peer = PEERS.get(op.name, "no counterpart is listed in titan_bench.kernels.peers")
    for name in own_names(op):
        yield name, functools.partial(_Own, op, name, args)
    for name in ("eager", "compile", "liger"):
        yield name, functools.partial(_peer, name, peer, args, compiler)


def _peer(name: str, peer: Peer | str, args: Arguments, compiler: Compile) -> Candidate:
    if isinstance(peer, str):
        raise NoCounterpartError(peer)
    if name == "liger" and peer.liger is None:
        raise NoCounterpartError("liger-kernel has no such operator")
    function = peer.liger if name == "liger" and peer.liger is not None else peer.eager
    function = compiler(function) if name == "compile" else function
    inputs = peer.arguments(*args.values)
    if isinstance(inputs, Derivative):
        return _Backward(peer, function, args, inputs)
    return _Forward(peer, function, args, inputs)
