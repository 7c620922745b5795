"""``python -m titan_pretrain``, the processes of torchrun, and the ``titan-pretrain`` script."""

from __future__ import annotations

import sys
from typing import NoReturn

from titan_pretrain.cli.app import main as run_command_line

__all__ = ["main"]


def main() -> NoReturn:
    """Run the command line and end the process with its exit code."""
    code = run_command_line()
    if "torch.distributed" in sys.modules:
        from titan_parallel.runtime import leave

        leave(code)  # a normal exit may abort in gloo's threads, after all work is done
    sys.exit(code)


if __name__ == "__main__":
    main()
