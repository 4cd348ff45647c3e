"""Every program in examples/ prints what it prints with PyTorch, from the same seed."""

import contextlib
import io
import re
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PROGRAMS = "tensors autograd house_prices_by_hand house_prices mlp data_loader".split()


def printed(name, lib):
    """What a program prints when its library is `lib`."""
    source = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    source = re.sub(r"^import flambeau as torch$", f"import {lib} as torch", source, flags=re.M)
    source = re.sub(r"^(import|from) flambeau\.", rf"\1 {lib}.", source, flags=re.M)
    if lib != "flambeau":
        assert "flambeau" not in source
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        exec(compile(source, f"{name}.py", "exec"), {"__name__": "__main__"})
    return written.getvalue()


@pytest.mark.parametrize("name", PROGRAMS)
def test_prints_what_torch_prints(name):
    expected = printed(name, "torch")
    assert len(expected.splitlines()) > 5
    assert printed(name, "flambeau") == expected
