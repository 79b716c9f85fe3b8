"""What the server never does, and how it looks."""

import asyncio
from pathlib import Path

import pytest
from gradio import processing_utils
from gradio.processing_utils import sh as safehttpx

from showattend.app.server import stay_home, theme
from showattend.app.viewer import style


@pytest.mark.usefixtures("no_network")
def test_the_server_fetches_no_url(tmp_path: Path) -> None:
    stay_home()
    url, download = "https://example.org/a.jpg", processing_utils.async_ssrf_protected_download
    for fetch in (safehttpx.async_validate_url("example.org"), download(url, str(tmp_path))):
        with pytest.raises(ValueError, match="fetches no URL"):
            asyncio.run(fetch)


def test_the_fonts_are_the_systems_own() -> None:
    assert theme()._stylesheets == []
    assert "@font-face" not in theme()._get_theme_css()
    assert "system-ui" in theme().font
    assert "url(" not in style() and "@import" not in style()
