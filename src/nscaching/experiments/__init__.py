"""Many configurations: comparisons, searches, and the tables of the paper."""
