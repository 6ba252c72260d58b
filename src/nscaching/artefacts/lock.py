"""The lock of a folder: while one process writes there, no other does."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from nscaching.artefacts.files import explained_writes
from nscaching.errors import CHOOSE_ANOTHER, UserError, shown

LOCK_FILE = ".nscaching.lock"
#: How long another process may hold a lock to see whether it is free.
_PROBE_SECONDS = 0.1
_BUSY = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK)


class FolderLock:
    """The lock of a folder that is being written; :meth:`acquire` makes it where there is none.

    The operating system holds the lock and drops it when the process ends, however it ends: the
    lock of a dead process is free. The lock file says who holds it, and is removed with the lock.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / LOCK_FILE
        self._handle: int | None = None
        self._made: list[Path] = []  #: folders that were not there before

    def acquire(self) -> None:
        """Take the lock; raise :class:`UserError` with the holder's name where it is taken."""
        with explained_writes(self.folder):
            above = (self.folder, *self.folder.parents)
            self._made = [folder for folder in above if not folder.exists()]
            self.folder.mkdir(parents=True, exist_ok=True)
            handle = self._locked_handle()
            if handle is None:  # perhaps it was only looked whether it is free
                time.sleep(_PROBE_SECONDS)
                handle = self._locked_handle()
        if handle is None:
            raise UserError(
                f"{self.folder} is being written by {describe(self.holder())}. Wait until it has "
                f"ended, or {CHOOSE_ANOTHER}"
            )
        self._handle = handle
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
        with contextlib.suppress(OSError):  # the lock holds even where the disk is full
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(holder).encode(), 0)

    def release(self) -> None:
        """Give the lock back, and folders made for it that nothing was put into."""
        if self._handle is None:
            return
        handle, self._handle = self._handle, None
        with contextlib.suppress(OSError):
            self.file.unlink()
        os.close(handle)
        with contextlib.suppress(OSError):  # it holds something
            for folder in self._made:
                folder.rmdir()

    def is_free(self) -> bool:
        """Tell whether no other process writes here."""
        if self._handle is not None or not os.path.lexists(self.file):
            return True
        try:
            handle = os.open(self.file, os.O_RDWR | _NO_LINK)
        except OSError:
            return True
        try:
            holder = self.holder()
            ours = holder.get("pid"), holder.get("host")
            return _try_lock(handle) or ours == (os.getpid(), socket.gethostname())
        finally:
            os.close(handle)

    def writer(self) -> str | None:
        """Say which other process writes here; None where there is none."""
        return None if self.is_free() else describe(self.holder())

    def holder(self) -> dict[str, Any]:
        """Return what the lock file says of its holder; nothing where it cannot be read."""
        try:
            told = json.loads(self.file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return told if isinstance(told, dict) else {}

    def _locked_handle(self) -> int | None:
        """Return the locked file, or None where another process has it."""
        while True:
            handle = os.open(self.file, os.O_RDWR | os.O_CREAT | _NO_LINK, 0o666)
            if not _try_lock(handle):
                os.close(handle)
                return None
            with contextlib.suppress(OSError):
                if os.path.samestat(os.fstat(handle), os.lstat(self.file)):
                    return handle
            os.close(handle)  # its holder removed it in between: this is no lock any more


def describe(holder: dict[str, Any]) -> str:
    """Say who holds a lock."""
    pid, host, since = (holder.get(key) for key in ("pid", "host", "since"))
    if not isinstance(pid, int):
        return "another process"
    told = f"process {pid}"
    if isinstance(host, str) and host != socket.gethostname():
        told += f" on {shown(host)}"
    if isinstance(since, int | float) and 0 < since < 1e11:
        told += f" since {time.strftime('%H:%M on %d %B', time.localtime(since))}"
    return told


_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)

if sys.platform == "win32":
    import msvcrt

    def _try_lock(handle: int) -> bool:
        os.lseek(handle, 1 << 30, os.SEEK_SET)  # far behind the text, which others may read
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
else:
    import fcntl

    def _try_lock(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno not in _BUSY  # a file system without locks goes without
        return True
