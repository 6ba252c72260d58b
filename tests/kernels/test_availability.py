"""What is said of kernels on disk."""

import pytest

from nscaching.kernels import adagrad_cpu, adam_cpu
from nscaching.kernels.availability import cpu_kernels_are_compiled


@pytest.mark.parametrize("kernel", [adam_cpu.move, adagrad_cpu._move])
def test_kernels_count_as_compiled_whichever_optimiser_moved_the_tables(
    tmp_path, monkeypatch, kernel
):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert not cpu_kernels_are_compiled()
    module = kernel.py_func.__module__.rsplit(".", 1)[1]
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / f"{module}.{kernel.py_func.__qualname__}-85.py311.nbi").touch()
    assert cpu_kernels_are_compiled()
