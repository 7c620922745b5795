"""``python -m titan_bench`` and the ``titan-bench`` script."""

from __future__ import annotations

import sys
from typing import NoReturn

from titan_bench.cli import run

__all__ = ["main"]


def main() -> NoReturn:
    """Run the command line and end the process with its exit code."""
    code = run(sys.argv[1:])
    if "torch.distributed" in sys.modules:
        from titan_parallel.runtime import leave

        leave(code)  # a normal exit may abort in gloo's threads, after all work is done
    sys.exit(code)


if __name__ == "__main__":
    main()
