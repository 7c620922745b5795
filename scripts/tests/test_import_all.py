"""import_all finds every module and names the one that can't be imported."""

import sys

import import_all
import pytest


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "some_package"
    (folder / "inner").mkdir(parents=True)
    for name in ("__init__", "good", "__main__", "inner/__init__", "inner/deep"):
        (folder / f"{name}.py").write_text("")
    (folder / "__main__.py").write_text("raise SystemExit('must not run')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("sys.argv", ["import_all.py", "some_package"])
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "some_package"]:
        del sys.modules[name]


def test_all_modules_but_main_are_imported(package):
    names = import_all.module_names("some_package")
    assert names == ["some_package", "some_package.good", "some_package.inner", "some_package.inner.deep"]
    assert import_all.main() == 0


def test_modules_for_what_is_not_installed_are_left_out(package, monkeypatch):
    (package / "nowhere_installed.py").write_text("import nowhere_installed")
    monkeypatch.setattr(import_all, "OPTIONAL", ("nowhere_installed",))
    assert "some_package.nowhere_installed" not in import_all.module_names("some_package")
    assert import_all.main() == 0


def test_an_undeclared_dependency_is_named(package, capsys):
    (package / "inner/deep.py").write_text("import a_package_nobody_declared")
    assert import_all.main() == 1
    assert "some_package.inner.deep: No module named 'a_package_nobody_declared'" in capsys.readouterr().out
