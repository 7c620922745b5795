from __future__ import annotations

import pytest

from titan_pretrain.data.files import data_files
from titan_pretrain.errors import DataError, UsageError

ENDINGS = (".txt",)


@pytest.fixture
def folder(tmp_path):
    for name in ("b.txt", "a.txt", "deep/er/c.txt", "other.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (["."], ["a.txt", "b.txt", "deep/er/c.txt"]),
        (["*.txt"], ["a.txt", "b.txt"]),
        (["**/c.txt"], ["deep/er/c.txt"]),
        (["b.txt", "a.txt", "b.txt"], ["a.txt", "b.txt"]),
        (["other.csv"], ["other.csv"]),  # a file that is named is taken whatever its ending
    ],
)
def test_files_folders_and_globs(patterns, names, folder, monkeypatch):
    monkeypatch.chdir(folder)
    for base in ("", f"{folder}/"):
        files = data_files("text", [base + pattern for pattern in patterns], ENDINGS)
        assert [file.resolve().relative_to(folder).as_posix() for file in files] == names


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("missing.txt", r"data.path \(missing.txt\) doesn't exist; relative paths start at"),
        ("*.nothing", r"data.path \(\*.nothing\) matches no file"),
        ("empty", r"data.path \(empty\): the folder has no .txt file"),
    ],
)
def test_paths_that_name_nothing(pattern, message, folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "empty").mkdir()
    with pytest.raises(UsageError, match=message):
        data_files("text", [pattern], ENDINGS)


def test_no_path():
    with pytest.raises(UsageError, match=r"data.path is missing: data.dataset \(text\)"):
        data_files("text", [], ENDINGS)


def test_unreadable_file(folder, monkeypatch):
    def refuse(self, *args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)  # chmod doesn't stop root
    with pytest.raises(DataError, match=r"a.txt\) can't be read: Permission denied"):
        data_files("text", [f"{folder}/a.txt"], ENDINGS)


def test_links_to_one_file_count_once(folder):
    (folder / "deep" / "link.txt").symlink_to(folder / "b.txt")
    (folder / "z").symlink_to(folder / "deep")
    files = data_files("text", [str(folder), f"{folder}/z/er/*.txt", f"{folder}/deep/../a.txt"], ENDINGS)
    assert [file.relative_to(folder).as_posix() for file in files] == ["a.txt", "b.txt", "deep/er/c.txt"]


@pytest.mark.parametrize("pattern", ["", "/**/*.txt", "/**"])
def test_loops_of_links_end(pattern, folder):
    for name in ("one", "two", "deep/three"):  # two loops alone are 2 ** 40 names to a naive glob
        (folder / name).symlink_to(folder)
    (folder / "other.csv").unlink()
    files = data_files("text", [f"{folder}{pattern}"], ENDINGS)
    assert [file.relative_to(folder).as_posix() for file in files] == ["a.txt", "b.txt", "deep/er/c.txt"]


def test_linked_folders_are_read(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "d.txt").write_text("d")
    (folder / "part").symlink_to(elsewhere)
    for pattern in (f"{folder}", f"{folder}/**/*.txt", f"{folder}/*/d.txt"):
        assert folder / "part" / "d.txt" in data_files("text", [pattern], ENDINGS)


def test_globs_pass_over_hidden_folders(folder):
    (folder / ".cache").mkdir()
    (folder / ".cache" / "e.txt").write_text("e")
    assert len(data_files("text", [f"{folder}/**/*.txt"], ENDINGS)) == 3


def test_unreadable_folder(folder, monkeypatch):
    def refuse(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.iterdir", refuse)
    with pytest.raises(DataError, match=rf"folder \({folder}\) can't be read: Permission denied"):
        data_files("text", [str(folder)], ENDINGS)
