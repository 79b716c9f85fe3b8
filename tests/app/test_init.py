"""What the page's first import leaves alone."""

import subprocess
import sys

import pytest

_WATCH = """
import sys
stubs = []
sys.addaudithook(lambda event, args: event == "open" and str(args[0]).endswith(".pyi")
                 and stubs.append(args[0]))
import {module}
print(len(stubs))
"""


@pytest.mark.slow
def test_gradio_writes_no_stubs() -> None:
    opened = []
    for module in ("gradio", "showattend.app"):
        code = _WATCH.format(module=module)
        told = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        opened.append(int(told.stdout))
    assert opened[0] > 0  # else Gradio has changed, and showattend.app need not care
    assert opened[1] == 0
