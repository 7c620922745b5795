"""Operators and their implementations: which one serves a call, and why the others do not.

An :class:`Op` is a ``torch.library`` operator ``titan::<name>`` with implementations in order of
preference.  Each says for the arguments of a call whether it can serve it (a :class:`Verdict`); the
first that can, runs.  The last one is the reference in plain PyTorch, which serves everything.  Users
choose by name instead with :mod:`titan_kernels.preferences`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.utils import _pytree as pytree

from titan_kernels.cases import Case
from titan_kernels.derivatives import once, refuse_tangents
from titan_kernels.errors import TitanKernelsError, UnsupportedError
from titan_kernels.preferences import VARIABLE, prefer, preferred

__all__ = ["YES", "Explanation", "Implementation", "Op", "Verdict", "explain", "no", "ops", "prefer"]

_LIBRARY = torch.library.Library("titan", "FRAGMENT")
_OPS: dict[str, Op] = {}


@dataclass(frozen=True)
class Verdict:
    """Whether an implementation can serve a call, and why not."""

    ok: bool
    reason: str = ""


YES = Verdict(True)


def no(reason: str) -> Verdict:
    """The verdict that turns a call down."""
    return Verdict(False, reason)


@dataclass(frozen=True)
class Implementation:
    """One way to compute an operator; both functions take the operator's arguments."""

    name: str
    supports: Callable[..., Verdict]
    run: Callable[..., Any]


@dataclass(frozen=True)
class Explanation:
    """Every implementation's verdict on one call, in order of preference."""

    op: str
    verdicts: tuple[tuple[str, Verdict], ...]
    chosen: str | None
    preferred: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data, for JSON."""
        return {
            "op": self.op,
            "chosen": self.chosen,
            "preferred": self.preferred,
            "implementations": [{"name": n, "ok": v.ok, "reason": v.reason} for n, v in self.verdicts],
        }

    def to_json(self) -> str:
        """The same as JSON text."""
        return json.dumps(self.to_dict(), indent=2)

    def __str__(self) -> str:
        source = f" (asked for: {self.preferred})" if self.preferred else ""
        lines = [f"titan::{self.op} -> {self.chosen or 'none'}{source}"]
        for name, verdict in self.verdicts:
            lines.append(f"  {name:<10} {'yes' if verdict.ok else 'no: ' + verdict.reason}")
        return "\n".join(lines)


@dataclass(eq=False)
class Op:
    """An operator ``titan::<name>``, registered with ``torch.library`` when it is made.

    Args:
        schema: Name, arguments and returns in PyTorch's schema language.
        fake: The outputs' shapes and dtypes, as ``torch.library.register_fake`` wants it.
        implementations: In order of preference, the reference last.
        cases: Arguments that the tests, the counters and the benchmarks share.
        functions: Public functions of other names that run it, forward or backward.
        minimum_bytes: Least traffic of a call, where it is not "read every input once, write every
            output once"; takes the arguments and the outputs.
        declined: By implementation, the labels of the cases that it leaves to the others.
        occupancy: Promised by the CUDA kernels: by architecture, the least share of a multiprocessor's
            warps that a launch of a realistic case keeps resident.

    Attributes:
        name: The operator's name, from the schema.
        names: What users can prefer it by: its name, the functions, and the folder of its reference.
        packet: The ``torch.library`` overload, ``torch.ops.titan.<name>.default``.
        differentiable: Whether it has a derivative.
        twice: Whether that has one too.
    """

    schema: str
    fake: Callable[..., Any]
    implementations: tuple[Implementation, ...]
    cases: Callable[[], Sequence[Case]]
    functions: Sequence[str] = ()
    minimum_bytes: Callable[[tuple[Any, ...], Any], int] | None = None
    declined: Mapping[str, Sequence[str]] = field(default_factory=dict)
    occupancy: Mapping[str, float] = field(default_factory=lambda: {"sm_70": 0.25, "sm_75": 0.5})
    name: str = field(init=False)
    names: tuple[str, ...] = field(init=False)
    packet: Any = field(init=False)
    differentiable: bool = field(init=False, default=False)
    twice: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.name = self.schema.partition("(")[0]
        room = self.implementations[-1].run.__module__.split(".")[-2]
        self.names = tuple(dict.fromkeys((self.name, *self.functions, room)))
        _LIBRARY.define(self.schema, tags=(torch.Tag.pt2_compliant_tag,))
        for key in ("CPU", "CUDA"):
            _LIBRARY.impl(self.name, self.run, key)
        torch.library.register_fake(f"titan::{self.name}", self.fake, lib=_LIBRARY)
        # Now, not at the first call: that may be under torch.compile, which cannot trace the lookup.
        self.packet = getattr(torch.ops.titan, self.name).default
        _OPS[self.name] = self

    def register_autograd(
        self, backward: Callable[..., Any], setup_context: Callable[..., None], *, twice: bool = False
    ) -> None:
        """Give the operator a derivative, see ``torch.library.register_autograd``.

        Args:
            backward: Gradients of the arguments.
            setup_context: Keeps what it needs.
            twice: Whether all that it computes is differentiable; if not, second derivatives raise.
        """
        self.differentiable, self.twice = True, twice
        derivative = backward if twice else once(self.name, backward)
        torch.library.register_autograd(
            f"titan::{self.name}", derivative, setup_context=setup_context, lib=_LIBRARY
        )

    def register_autograd_kernel(self, kernel: Callable[..., Any], differentiable: bool = True) -> None:
        """Give an operator that writes into its arguments a derivative, which PyTorch has no formula for.

        Args:
            kernel: Takes the operator's arguments, runs it below autograd and records what it did.
            differentiable: Whether what it records is a derivative.
        """
        self.differentiable = differentiable
        _LIBRARY.impl(self.name, kernel, "Autograd")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call through PyTorch's dispatcher, with autograd.

        Raises:
            UnsupportedError: An argument has a forward-mode derivative, which PyTorch would leave out.
        """
        if forward_ad._current_level >= 0:
            refuse_tangents(self.name, args, kwargs)
        return self.packet(*args, **kwargs)

    @property
    def schema_arguments(self) -> Sequence[Any]:
        """The arguments' types and aliases, as PyTorch parsed them from the schema."""
        arguments: Sequence[Any] = self.packet._schema.arguments
        return arguments

    @property
    def mutates(self) -> bool:
        """Whether it writes into its arguments."""
        return any(each.alias_info is not None and each.alias_info.is_write for each in self.schema_arguments)

    def minimum_bytes_of(self, args: tuple[Any, ...], outputs: Any) -> int:
        """Least memory traffic of a call in bytes, counting what it writes in place twice."""
        if self.minimum_bytes is not None:
            return self.minimum_bytes(args, outputs)
        written = [
            value
            for value, argument in zip(args, self.schema_arguments, strict=False)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        leaves = pytree.tree_leaves([args, outputs, written])
        return sum(x.numel() * x.element_size() for x in leaves if isinstance(x, torch.Tensor))

    @functools.cached_property
    def _by_name(self) -> dict[str, Implementation]:
        return {each.name: each for each in self.implementations}

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run the implementation that serves this call, below autograd."""
        return self.choose(*args, **kwargs).run(*args, **kwargs)

    def choose(self, *args: Any, **kwargs: Any) -> Implementation:
        """The implementation that serves this call.

        Raises:
            UnsupportedError: The preferred implementation cannot serve it, or none can.
        """
        name = preferred(self.names, self._by_name)
        if name is not None:
            return self._choose_named(name, args, kwargs)
        for each in self.implementations:
            if each.supports(*args, **kwargs).ok:
                return each
        raise UnsupportedError(str(self.explain(*args, **kwargs)))

    def _choose_named(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Implementation:
        if name not in self._by_name:
            raise UnsupportedError(
                f"titan::{self.name} has no implementation {name!r}; it has {', '.join(self._by_name)}"
            )
        verdict = self._by_name[name].supports(*args, **kwargs)
        if not verdict.ok:
            raise UnsupportedError(
                f"titan::{self.name}: {name!r} was asked for, but {verdict.reason}; "
                f"leave out prefer() and {VARIABLE} to use what can serve the call"
            )
        return self._by_name[name]

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """Every implementation's verdict on a call with these arguments; runs nothing.

        Raises:
            TitanKernelsError: They are not the operator's arguments.
        """
        given = self._in_order(args, kwargs)
        verdicts = tuple((each.name, each.supports(*given)) for each in self.implementations)
        asked_for = preferred(self.names, self._by_name)
        willing = (name for name, verdict in verdicts if verdict.ok and asked_for in (None, name))
        return Explanation(self.name, verdicts, next(willing, None), asked_for)

    def _in_order(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """All arguments by position, as the dispatcher hands them to an implementation."""
        names = [argument.name for argument in self.schema_arguments]
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        if len(args) + len(kwargs) != len(names) or set(given) != set(names):
            raise TitanKernelsError(
                f"titan::{self.name} takes ({', '.join(names)}), all of them: it got {len(args)} by position "
                f"and {', '.join(kwargs) or 'none'} by name"
            )
        return [given[name] for name in names]


def ops() -> dict[str, Op]:
    """All operators by name."""
    import titan_kernels.ops  # noqa: F401  # the rooms register themselves on import

    return dict(_OPS)


def explain(op: str, *args: Any, **kwargs: Any) -> Explanation:
    """Which implementation would serve ``titan::<op>`` for these arguments, and why not the others.

    ``str()`` of the result is a table; ``to_dict()`` gives plain data and ``to_json()`` JSON.

    Raises:
        TitanKernelsError: There is no such operator, or the arguments are not those of its schema.
    """
    known = ops()
    if op not in known:
        raise TitanKernelsError(f"op ({op!r}): no such operator; there are {', '.join(sorted(known))}")
    return known[op].explain(*args, **kwargs)
