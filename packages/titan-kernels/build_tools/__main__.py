"""Runs the build's command when this folder is given to Python: ``python build_tools --help``."""

from kernel_build.command import main

if __name__ == "__main__":  # worker processes import this file
    raise SystemExit(main())
