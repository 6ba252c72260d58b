"""What an int8 copy of a table is made with."""

from __future__ import annotations

#: The largest number of a row becomes this.
LARGEST = 127
#: Numbers below this count as zero: the scale of a row must not be.
TINY = 1e-30
