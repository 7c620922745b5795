"""Options that several commands share, and the options of torchrun."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from titan_pretrain.config import LoadedConfig, World

__all__ = ["ConfigChoice", "config_options", "launch_flags", "launch_options"]

Command = TypeVar("Command", bound=Callable[..., Any])

TORCHRUN: dict[str, tuple[type | None, str]] = {
    "nnodes": (str, "Number of nodes, or MIN:MAX."),
    "node-rank": (int, "Number of this node; needed with --master-addr only."),
    "rdzv-endpoint": (str, "HOST:PORT where the nodes meet."),
    "rdzv-backend": (str, "How they meet: c10d, static, etcd-v2."),
    "rdzv-id": (str, "Name of the job, the same on every node."),
    "rdzv-conf": (str, "KEY=VALUE,... for the rendezvous."),
    "max-restarts": (int, "How often failed processes are started again; they continue by themselves."),
    "monitor-interval": (float, "Seconds between two looks at the processes."),
    "master-addr": (str, "Address of node 0, for static rendezvous."),
    "master-port": (int, "Port on node 0, for static rendezvous."),
    "local-addr": (str, "Address of this node."),
    "standalone": (None, "One node, on a free port."),
    "log-dir": (str, "Folder for the processes' output."),
    "redirects": (str, "Streams written to files: 3 is stdout and stderr, 1:3 those of rank 1."),
    "tee": (str, "As --redirects, and on the console too."),
    "local-ranks-filter": (str, "Ranks whose output is shown, such as 0,1."),
    "role": (str, "Name of the processes' role."),
    "numa-binding": (str, "Bind processes to cores near their GPU: node, socket, exclusive, core-complex."),
    "shutdown-timeout": (int, "Seconds a process may take to save and stop."),
}
"""torchrun's options: type (None for a switch) and help.  All are passed on unchanged."""


@dataclass(frozen=True)
class ConfigChoice:
    """The config a command line asks for."""

    config: str
    module: str | None
    overrides: tuple[str, ...]

    def load(self, world: World | None = None) -> LoadedConfig:
        """Read and check it; see :func:`titan_pretrain.config.load_config`."""
        from titan_pretrain.config import load_config

        return load_config(self.config, module=self.module, overrides=self.overrides, world=world)

    def arguments(self) -> list[str]:
        """The options that ask for the same config again."""
        module = ["--module", self.module] if self.module is not None else []
        return ["--config", self.config, *module, *(f"--set={override}" for override in self.overrides)]


def config_options(command: Command) -> Command:
    """``--config``, ``--module`` and ``--set``."""
    for decorator in (
        click.option(
            "--set",
            "overrides",
            multiple=True,
            metavar="KEY=VALUE",
            help="Set an option of the config, such as optim.lr=1e-3. Repeatable; the last wins.",
        ),
        click.option("--module", metavar="NAME", help="Model family of a preset, as torchtitan types it."),
        click.option("--config", metavar="NAME", help="A preset, a TOML file, or module:function."),
    ):
        command = decorator(command)
    return command


def launch_options(command: Command) -> Command:
    """``--nproc`` and torchrun's options."""
    for name, (kind, text) in reversed(TORCHRUN.items()):
        command = click.option(f"--{name}", **_click_settings(name, kind, text))(command)
    nproc = click.option(
        "--nproc",
        "--nproc-per-node",
        "nproc",
        metavar="N",
        envvar="PET_NPROC_PER_NODE",
        help="Processes on this machine: a number, gpu, cpu or auto.  [default: 1]",
    )
    return nproc(command)


def _click_settings(name: str, kind: type | None, text: str) -> dict[str, Any]:
    variable = f"PET_{name.replace('-', '_').upper()}"  # where torchrun looks them up
    if kind is None:
        return {"is_flag": True, "default": None, "envvar": variable, "help": text}
    return {"type": kind, "envvar": variable, "help": text, "metavar": kind.__name__.upper()}


def launch_flags(params: dict[str, Any]) -> dict[str, str | None]:
    """Torchrun's options that were given; the value of a switch is None."""
    given: dict[str, str | None] = {}
    for name, (kind, _) in TORCHRUN.items():
        value = params.get(name.replace("-", "_"))
        if value is not None and value is not False:
            given[f"--{name}"] = None if kind is None else str(value)
    return given
