"""The web page: a photograph in, its captions and where the model looked for every word."""

import inspect
from typing import NoReturn
from unittest.mock import patch


def _no_source(_: object) -> NoReturn:
    raise OSError("not looked for")


# At each import Gradio parses its own source and writes type stubs beside it: a fifth of the time
# from the command to the page. It makes none of what has no source.
with patch.object(inspect, "getfile", _no_source):
    import gradio  # noqa: F401
