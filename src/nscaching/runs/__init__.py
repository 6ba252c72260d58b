"""Trained runs: the verbs that make them, and the questions they answer."""
