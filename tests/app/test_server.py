"""What the server never does, and how it looks."""

import asyncio
import logging
from pathlib import Path

import pytest
from gradio import processing_utils
from gradio.processing_utils import sh as safehttpx
from starlette.requests import ClientDisconnect

from showattend.app.server import (
    PasswordError,
    one_line_if_broken_off,
    read_password,
    stay_home,
    theme,
)
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


def test_an_upload_that_breaks_off_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("test of the server")
    log.addFilter(one_line_if_broken_off)
    for error in (ClientDisconnect(), ZeroDivisionError()):
        log.error("Exception in ASGI application\n", exc_info=error)
    broken, bug = caplog.records
    assert (broken.getMessage(), broken.exc_info) == ("an upload broke off", None)
    assert bug.exc_info is not None


def test_a_password_is_a_file_of_one_line(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("ada:pa:ss\n")
    assert read_password(file) == ("ada", "pa:ss")


@pytest.mark.parametrize("content", ["", "ada\n", ":pass\n", "ada:\n", "ada:pass\nbob:word\n"])
def test_another_file_is_no_password(tmp_path: Path, content: str) -> None:
    file = tmp_path / "password"
    file.write_text(content)
    with pytest.raises(PasswordError, match="password: expected one line, NAME:PASSWORD"):
        read_password(file)
