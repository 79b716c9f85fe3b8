"""The built wheel has all that a user without a checkout needs."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PHOTOGRAPH = ROOT / "showattend" / "examples"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return path


def test_what_is_in_it(wheel: Path) -> None:
    files = zipfile.ZipFile(wheel).infolist()
    names = {file.filename for file in files}
    assert {
        "showattend/py.typed",
        "showattend/__init__.pyi",
        "showattend/configs/shapes_soft.yaml",
        "showattend/checkpoints/soft/model.safetensors",
        "showattend/checkpoints/soft/config.json",
        "showattend/checkpoints/rewarded/model.safetensors",
        "showattend/examples/CREDITS.md",
    } <= names
    assert not [name for name in names if name.startswith("tests/")]
    assert max(file.file_size for file in files) < 25e6
    assert sum(f.file_size for f in files if f.filename.endswith(".safetensors")) < 60e6


def test_it_captions_a_photograph_from_another_folder(wheel: Path, tmp_path: Path) -> None:
    """The dependencies are those of this environment; the package is the wheel's alone."""
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", str(site)]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True)
    photograph = next(PHOTOGRAPH.glob("*.jpg"))
    result = subprocess.run(
        [sys.executable, "-m", "showattend", "caption", str(photograph)],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
    )
    path, _, caption = result.stdout.strip().partition("\t")
    assert path == str(photograph)
    assert len(caption.split()) >= 3
    where = subprocess.run(
        [sys.executable, "-c", "import showattend; print(showattend.__file__)"],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
    )
    assert Path(where.stdout.strip()).is_relative_to(site)
