"""Fetching a file over HTTP so that what ends up under its name is whole and right."""

from __future__ import annotations

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from nscaching.errors import NSCachingError

Progress = Callable[[int, int | None, str], None]
"""Called with the bytes done, the bytes in total if known, and the file's name."""
TIMEOUT = 30.0
BLOCK = 1 << 18


class DownloadError(NSCachingError):
    """One address did not deliver; another may."""


class ChecksumError(DownloadError):
    """The bytes are not those that were pinned."""


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def settle(part: Path, target: Path, sha256: str | None) -> None:
    """Give a finished part its name, or delete it when its checksum is wrong."""
    try:
        if sha256 is not None and sha256_of(part) != sha256:
            part.unlink()
            raise ChecksumError("the checksum is wrong")
        part.replace(target)
    except OSError as error:
        raise DownloadError(f"{part.name} could not be renamed ({error.strerror})") from error


def download_file(
    url: str,
    target: Path,
    sha256: str | None = None,
    *,
    timeout: float = TIMEOUT,
    progress: Progress | None = None,
) -> None:
    """Download to ``<target>.part`` and rename when it is complete and has the right checksum.

    A part left by an interruption is continued where the server allows it. When the continued file
    turns out wrong, the old bytes may be to blame, so it is fetched once more from the start.
    """
    part = target.with_name(target.name + ".part")
    resumed = part.exists() and part.stat().st_size > 0
    try:
        _transfer(url, part, target.name, timeout, progress)
        settle(part, target, sha256)
    except ChecksumError:
        if not resumed:
            raise
        _transfer(url, part, target.name, timeout, progress)
        settle(part, target, sha256)


def _transfer(url: str, part: Path, label: str, timeout: float, progress: Progress | None) -> None:
    """Bring ``part`` up to the full length of what the address serves."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "nscaching"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            start = _start_of(response, have)
            length = response.headers.get("Content-Length")
            total = start + int(length) if length and length.isdigit() else None
            _copy(response, part, start, total, label, progress)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:
            return  # Nothing is left to send: the part is complete, or its checksum will tell.
        raise DownloadError(f"HTTP {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error or type(error).__name__
        raise DownloadError(str(reason)) from error


def _start_of(response: http.client.HTTPResponse, have: int) -> int:
    """Return where the answer's first byte belongs: after what we have, or at the beginning."""
    content_range = response.headers.get("Content-Range", "")
    if response.status == 206 and content_range.startswith(f"bytes {have}-"):
        return have
    if response.status == 206:
        raise DownloadError(f"the server sent another range than asked for ({content_range})")
    return 0


def _copy(
    response: http.client.HTTPResponse,
    part: Path,
    start: int,
    total: int | None,
    label: str,
    progress: Progress | None,
) -> None:
    """Write the answer to ``part`` from ``start`` on; a short answer is a failure."""
    done = start
    with part.open("r+b" if start else "wb") as out:
        out.seek(start)
        while block := response.read(BLOCK):
            out.write(block)
            done += len(block)
            if progress is not None:
                progress(done, total, label)
    if total is not None and done < total:
        raise DownloadError(f"the connection ended after {done:,} of {total:,} bytes")
