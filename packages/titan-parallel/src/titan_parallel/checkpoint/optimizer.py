"""An optimizer's state under the names of its parameters, independent of sharding and groups' order.

``torch.distributed.checkpoint.state_dict.get_optimizer_state_dict`` isn't used: on an optimizer
without state it *runs a step* to create it (AdamW then counts one step too many, for good), and it
stores every hyperparameter of every parameter as a pickle of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from titan_parallel.checkpoint.state import clean_name, listed
from titan_parallel.errors import CheckpointError, CheckpointMismatchError

__all__ = ["OptimizerRecord", "OptimizerTargets", "merge_records", "optimizer_state"]

# How a machine runs the optimizer, not what it computes: the live optimizer's choice stands.
_SWITCHES = frozenset({"foreach", "fused", "capturable", "differentiable"})


@dataclass
class OptimizerRecord:
    """What of an optimizer is not in a tensor; plain data that ``torch.load`` reads with ``weights_only``.

    Attributes:
        kind: class name.
        defaults: names of the class's hyperparameters.
        groups: per parameter group its ``params`` (names) and ``options``.
        state: per parameter the keys of its state tensors.
        values: per parameter its state that is no tensor.
    """

    kind: str
    defaults: list[str] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    state: dict[str, list[str]] = field(default_factory=dict)
    values: dict[str, dict[str, Any]] = field(default_factory=dict)


def merge_records(records: Sequence[OptimizerRecord]) -> OptimizerRecord:
    """One record of all ranks' parameters, which differ between pipeline stages only."""
    merged = OptimizerRecord(records[0].kind, records[0].defaults)
    for record in records:
        merged.groups += [group for group in record.groups if group["params"] not in _names_of(merged)]
        merged.state.update(record.state)
        merged.values.update(record.values)
    return merged


def _names_of(record: OptimizerRecord) -> list[list[str]]:
    return [group["params"] for group in record.groups]


def _parameter_names(model: nn.Module, optimizer: Optimizer) -> dict[Tensor, str]:
    """Names of the optimizer's parameters."""
    names: dict[Tensor, str] = {p: clean_name(name, model) for name, p in model.named_parameters()}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter not in names:
                raise CheckpointError(
                    f"optimizer ({type(optimizer).__name__}) holds a parameter of shape "
                    f"{list(parameter.shape)} that isn't the model's; build it from model.parameters() "
                    "after sharding"
                )
    return names


def optimizer_state(model: nn.Module, optimizer: Optimizer) -> tuple[dict[str, Tensor], OptimizerRecord]:
    """Split an optimizer into tensors named ``<parameter>.<key>`` and a record of the rest.

    Raises:
        CheckpointError: a parameter of the optimizer isn't the model's.
    """
    names = _parameter_names(model, optimizer)
    record = OptimizerRecord(type(optimizer).__name__, defaults=sorted(optimizer.defaults))
    tensors: dict[str, Tensor] = {}
    for group in optimizer.param_groups:
        options = {key: _to_cpu(value) for key, value in group.items() if key != "params"}
        record.groups.append({"params": [names[p] for p in group["params"]], "options": options})
        for parameter in group["params"]:
            name = names[parameter]
            for key, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, Tensor):
                    record.state.setdefault(name, []).append(key)
                    tensors[f"{name}.{key}"] = value
                else:
                    record.values.setdefault(name, {})[key] = value
    return tensors, record


def _to_cpu(value: Any) -> Any:
    return value.detach().cpu() if isinstance(value, Tensor) else value


Shapes = Mapping[str, tuple[torch.Size, torch.dtype]]


class OptimizerTargets:
    """Where a checkpoint's optimizer state goes: tensors to fill, and :meth:`commit` when they are.

    Args:
        model: the live model.
        optimizer: the live optimizer, with or without state; unchanged until :meth:`commit`.
        record: the checkpoint's record.
        shapes: full shape and dtype of each saved state tensor by ``<parameter>.<key>``.

    Attributes:
        tensors: by ``<parameter>.<key>``, sharded like the parameters, to be filled in place.

    Raises:
        CheckpointMismatchError: the checkpoint is of another kind of optimizer or other parameters.
    """

    def __init__(
        self, model: nn.Module, optimizer: Optimizer, record: OptimizerRecord, shapes: Shapes
    ) -> None:
        self._optimizer = optimizer
        self._record = record
        names = _parameter_names(model, optimizer)
        self._names = {p: names[p] for group in optimizer.param_groups for p in group["params"]}
        self._options = {name: g["options"] for g in record.groups for name in g["params"]}
        self._compare()
        self._state = {
            parameter: self._entries(parameter, group, shapes)
            for group in optimizer.param_groups
            for parameter in group["params"]
        }
        self.tensors: dict[str, Tensor] = {
            f"{self._names[parameter]}.{key}": value
            for parameter, entries in self._state.items()
            for key, value in entries.items()
            if isinstance(value, Tensor)
        }

    def commit(self) -> None:
        """Hand the filled tensors, values and hyperparameters to the optimizer."""
        for parameter, entries in self._state.items():
            if entries:
                self._optimizer.state[parameter] = entries
            else:
                self._optimizer.state.pop(parameter, None)
        for group in self._optimizer.param_groups:
            if group["params"]:
                _apply_options(group, self._options[self._names[group["params"][0]]])

    def _entries(self, parameter: Tensor, group: Mapping[str, Any], shapes: Shapes) -> dict[str, Any]:
        name = self._names[parameter]
        existing = self._optimizer.state.get(parameter, {})
        tensors = {
            key: _target(parameter, key, group, existing.get(key), *shapes[f"{name}.{key}"])
            for key in self._record.state.get(name, [])
        }
        return {**tensors, **self._record.values.get(name, {})}

    def _compare(self) -> None:
        kind = type(self._optimizer).__name__
        unknown = sorted(set(self._record.defaults) - set(self._optimizer.defaults) - _SWITCHES)
        if unknown:
            raise CheckpointMismatchError(
                f"checkpoint of another optimizer: {self._record.kind} with {', '.join(unknown)}, but this "
                f"is {kind}; use the same optimizer or start from the weights only"
            )
        absent = [name for name in self._names.values() if name not in self._options]
        if absent:
            raise CheckpointMismatchError(
                f"checkpoint of another optimizer: it has nothing for {len(absent)} parameters "
                f"({listed(absent)}); use the config it was made with or start from the weights only"
            )
        for group in self._optimizer.param_groups:
            if len({repr(self._options[self._names[p]]) for p in group["params"]}) > 1:
                raise CheckpointMismatchError(
                    "checkpoint of an optimizer with other parameter groups: one group here has parameters "
                    "with different hyperparameters there; use the config it was made with"
                )


def _target(
    parameter: Tensor,
    key: str,
    group: Mapping[str, Any],
    existing: Any,
    shape: torch.Size,
    dtype: torch.dtype,
) -> Tensor:
    if isinstance(existing, Tensor) and existing.shape == shape and existing.dtype == dtype:
        return existing
    if key != "step" and shape == parameter.shape:
        return torch.empty_like(parameter, dtype=dtype, requires_grad=False)
    # PyTorch's rule (Optimizer._process_value_according_to_param_policy): step counters live on the CPU
    # unless the kernel itself reads them.
    on_device = key != "step" or group.get("fused") or group.get("capturable")
    return torch.empty(shape, dtype=dtype, device=parameter.device if on_device else "cpu")


def _apply_options(group: dict[str, Any], options: Mapping[str, Any]) -> None:
    for key, value in options.items():
        if key in _SWITCHES:
            continue
        current = group.get(key)
        if isinstance(current, Tensor):
            current.fill_(value)  # a graph capture may hold this very tensor
        else:
            group[key] = value
