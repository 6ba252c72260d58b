"""TransE: ``-||h + r - t||_p``."""

from __future__ import annotations

from nscaching.models.families import Translational


class TransE(Translational):
    """Bordes et al. 2013. The relation moves the head to the tail."""

    name = "transe"
