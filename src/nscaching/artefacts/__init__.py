"""Everything that is written to disk and read back: files that are whole, folders that are ours."""

from __future__ import annotations

from nscaching.artefacts.folder import MARKER, ArtefactFolder, artefact_id
from nscaching.artefacts.lock import FolderLock

__all__ = ["MARKER", "ArtefactFolder", "FolderLock", "artefact_id"]
