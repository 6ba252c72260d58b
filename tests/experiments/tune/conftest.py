"""Searches on a tiny graph; without SMAC there is nothing to test here."""

import pytest

pytest.importorskip("smac")
