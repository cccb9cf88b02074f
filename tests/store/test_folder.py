from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from everyturn.audit.group import Group
from everyturn.store.base import StoreRefused
from everyturn.store.sqlite import SqliteStore
from tests.support.store_records import a_turn

HOLDER = """
import sys
from everyturn.store.sqlite import SqliteStore
store = SqliteStore(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""


def mode_of(path: Path) -> int:
    """The permission bits of a file."""
    return stat.S_IMODE(path.stat().st_mode)


def test_folder_and_files_are_their_owners_alone(tmp_path: Path) -> None:
    """Whatever the umask, the folder is 0700 and each file in it 0600, the log's among them."""
    folder = tmp_path / "some" / "data"
    before = os.umask(0)
    try:
        store = SqliteStore(folder)
        store.append([Group((a_turn(),))])
    finally:
        os.umask(before)

    modes = {path.name: mode_of(path) for path in folder.iterdir()}
    store.close()

    assert mode_of(folder) == 0o700
    assert {"everyturn.db", "everyturn.db-wal", "everyturn.db-shm", "gateway.lock"} <= set(modes)
    assert set(modes.values()) == {0o600}


def test_a_folder_that_others_may_use_is_refused(tmp_path: Path) -> None:
    """It is not narrowed for its owner: it may have been named by mistake."""
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o755)

    with pytest.raises(StoreRefused, match="chmod 700"):
        SqliteStore(folder)

    assert mode_of(folder) == 0o755
    assert list(folder.iterdir()) == []


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    """A database that was opened to others is named, with what to do."""
    folder = tmp_path / "data"
    SqliteStore(folder).close()
    (folder / "everyturn.db").chmod(0o644)

    with pytest.raises(StoreRefused, match="chmod 600"):
        SqliteStore(folder)


def test_two_gateways_never_share_a_folder(tmp_path: Path) -> None:
    """The second is refused with the process of the first; when that ends, the folder is free."""
    folder = tmp_path / "data"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"

        with pytest.raises(StoreRefused, match=f"process {holder.pid}"):
            SqliteStore(folder)

        holder.kill()
        holder.wait(timeout=60)
    SqliteStore(folder).close()


def test_one_process_cannot_open_a_folder_twice(tmp_path: Path) -> None:
    """The lock holds inside a process too, and closing gives it back."""
    store = SqliteStore(tmp_path / "data")

    with pytest.raises(StoreRefused, match="Another gateway"):
        SqliteStore(tmp_path / "data")

    store.close()
    SqliteStore(tmp_path / "data").close()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    """A file in its place is no folder."""
    (tmp_path / "data").write_text("a file")

    with pytest.raises(StoreRefused, match="cannot be made"):
        SqliteStore(tmp_path / "data")


def test_a_folder_whose_path_is_no_utf_8_is_refused(tmp_path: Path) -> None:
    """SQLite cannot be told such a path; nothing is made there."""
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/records-\xff"))

    with pytest.raises(StoreRefused, match=r"records-\\udcff: .*not UTF-8"):
        SqliteStore(folder)
    assert not folder.exists()


def test_a_store_that_is_refused_gives_the_lock_back(tmp_path: Path) -> None:
    """What failed while opening does not keep the next from trying."""
    folder = tmp_path / "data"
    SqliteStore(folder).close()
    path = folder / "everyturn.db"
    good = path.read_bytes()
    path.write_bytes(b"no database " * 1000)
    with pytest.raises(StoreRefused):
        SqliteStore(folder)

    path.write_bytes(good)

    SqliteStore(folder).close()
