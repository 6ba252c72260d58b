"""How much memory is free."""

import torch

from nscaching.training.devices import _free_in_container, free_bytes


def test_the_host_says_how_much_is_free():
    free = free_bytes(torch.device("cpu"))
    assert free is None or 2**20 < free < 2**50


def test_the_limit_of_a_container_counts(tmp_path):
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 500\ninactive_file 150\n")
    assert _free_in_container(tmp_path) == 450
    (tmp_path / "memory.max").write_text("max\n")
    assert _free_in_container(tmp_path) is None
    assert _free_in_container(tmp_path / "none") is None
