"""Files as URLs that hold them, so that a page of HTML fetches nothing."""

import base64
import io

from PIL import Image


def data_url(content: bytes, kind: str) -> str:
    """A file's content as a URL; `kind` is its media type, such as ``image/png``."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def jpeg_url(picture: Image.Image, quality: int) -> str:
    """An RGB picture as a URL that holds it as JPEG; a quality of 0 to 95."""
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=quality)
    return data_url(file.getvalue(), "image/jpeg")
