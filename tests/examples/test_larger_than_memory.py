"""The example of a file that is larger than memory, at a small size."""

from __future__ import annotations

import numpy as np
import pytest

from examples import larger_than_memory


def test_a_file_is_worked_on_in_little_memory(capsys: pytest.CaptureFixture[str]) -> None:
    components, first, _, last, kernel = larger_than_memory.run(["--small"])
    for outcome in (components, first, last, kernel):
        assert outcome.plan.peak_bytes <= 600_000
        assert outcome.plan.host_bytes <= 400_000
    variances, axes = components.result
    assert np.all(np.diff(variances) >= 0)
    np.testing.assert_allclose(np.asarray(axes.T @ axes), np.eye(8), atol=1e-5)
    assert last.result[1] < first.result[1]  # k-means gets better
    assert kernel.result.shape == (312_500,)
    assert "312,500 rows of 8 columns" in capsys.readouterr().out
