"""Commands that the documentation gives to install a package."""

import re
from pathlib import Path

import pytest
from choose_torch import VERSION

ROOT = Path(__file__).parents[2]
PAGES = [
    path
    for pattern in ("*.md", "docs/*.md", "packages/*/README.md", "apps/*/README.md")
    for path in sorted(ROOT.glob(pattern))
]
INSTALLS = re.compile(r"pip (?:install|wheel)\b[^`\n]*\bpackages/titan-[^`\n]*")
FIRST = f"pip install torch=={VERSION} --index-url https://download.pytorch.org/whl/cu126"


def commands():
    found = [(page, match) for page in PAGES for match in INSTALLS.finditer(page.read_text(encoding="utf-8"))]
    return [
        pytest.param(page, match, id=f"{page.parent.name}/{page.name}: {match[0]}") for page, match in found
    ]


def test_commands_are_found():
    assert len(commands()) > 5


@pytest.mark.parametrize(("page", "command"), commands())
def test_pip_fetches_no_other_pytorch(page, command):
    """By itself it takes PyPI's newest, whose CUDA has no kernels for Volta."""
    if "--no-deps" in command[0]:
        return
    assert re.search(r"--constraint (constraints.txt|\S+/titan-constraints.txt)", command[0])
    before = page.read_text(encoding="utf-8")[: command.start()]
    assert FIRST in before or "./run_train.sh --help" in before
