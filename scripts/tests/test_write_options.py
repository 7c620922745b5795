"""The list of options in the documentation."""

import write_options

from titan_pretrain.config.fields import options


def test_the_page_in_git_is_up_to_date():
    assert write_options.PAGE.read_text(encoding="utf-8") == write_options.page(), (
        "run scripts/write_options.py and commit docs/options.md"
    )


def test_every_option_stands_in_its_section():
    sections = dict(part.split("]`\n", 1) for part in write_options.page().split("### `[")[1:])
    for option in options().values():
        if option.section is None:
            assert f"\n| `{option.path[-1]}` |" in sections[".".join(option.path[:-1])], option.name
