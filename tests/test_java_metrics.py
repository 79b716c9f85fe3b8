"""METEOR's published score where Java is; elsewhere a stand-in for Java, which notes what it is
told, and one clear line for every missing part.
"""

import importlib.util
import json
import os
import shutil
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path

import pycocoevalcap
import pytest

from showattend.corpus import Corpus, make_corpus
from showattend.java_metrics import JavaError, java_tokens, meteor, spice
from showattend.references import read_references
from showattend.results import read_results

PARITY = Path(__file__).parent / "data" / "coco_caption_parity"
INSTALLED = Path(pycocoevalcap.__path__[0])
CORPUS = Corpus(
    images=(1, "b"),
    candidates=[["a", "dog"], []],
    references=[[["one", "dog"], ["|||", "dogs"]], [["a", "cat"]]],
)

SetJava = Callable[[str], Path]


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SetJava:
    """Puts a shell script in Java's place; it may write into the folder $NOTES, which returns."""

    def put(script: str) -> Path:
        program = tmp_path / "bin" / "java"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\necho $$ > $NOTES/pid\n{script}\n", encoding="utf-8")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
        monkeypatch.setenv("NOTES", str(tmp_path))
        return tmp_path

    return put


@pytest.fixture
def complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pycocoevalcap with all that SPICE needs."""
    jars = (
        "spice-1.0.jar",
        "lib/stanford-corenlp-3.6.0.jar",
        "lib/stanford-corenlp-3.6.0-models.jar",
    )
    for jar in jars:
        (tmp_path / "spice" / jar).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "spice" / jar).touch()
    _install(tmp_path, monkeypatch)


def _install(folder: Path | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pycocoevalcap lie in a folder, or be absent."""
    spec = ModuleSpec("pycocoevalcap", None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    found = spec if folder else None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)


# --- A stand-in for Java --------------------------------------------------------------------------

METEOR_STAND_IN = """
while read line; do
  echo "$line" >> $NOTES/heard
  case "$line" in
    SCORE*) echo "1.0 2.0";;
    EVAL*) echo 0.25; echo 0.5; echo 0.375;;
  esac
done
"""


def test_meteor_speaks_with_its_program_as_coco_does(java: SetJava) -> None:
    notes = java(METEOR_STAND_IN)
    score, by_image = meteor(CORPUS)
    assert (score, by_image.tolist()) == (0.375, [0.25, 0.5])
    assert [line.rstrip() for line in (notes / "heard").read_text().splitlines()] == [
        "SCORE ||| one dog |||  dogs ||| a dog",
        "SCORE ||| a cat |||",
        "EVAL ||| 1.0 2.0 ||| 1.0 2.0",
    ]
    _assert_gone(notes)


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("echo 'at line 3' >&2; echo 'no memory' >&2; echo >&2; exit 1", "no memory"),
        ("read line; echo 1.0; exec >&-; exit 0", "it does not say why"),
        ("while read line; do echo what; done", "it does not say why"),
    ],
)
def test_a_meteor_that_fails_is_one_line(java: SetJava, script: str, complaint: str) -> None:
    notes = java(script)
    with pytest.raises(JavaError) as error:
        meteor(CORPUS)
    assert str(error.value) == f"METEOR: Java failed: {complaint}"
    _assert_gone(notes)


def test_an_interrupt_leaves_no_meteor_behind(
    java: SetJava, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: object) -> str:
        raise KeyboardInterrupt

    notes = java("echo ready; read line; sleep 60")
    monkeypatch.setattr("showattend.java_metrics._read", interrupt)
    with pytest.raises(KeyboardInterrupt):
        meteor(CORPUS)
    if (notes / "pid").exists():  # it may be gone before it could write
        _assert_gone(notes)


def _assert_gone(notes: Path) -> None:
    """Not even a zombie is left."""
    with pytest.raises(ProcessLookupError):
        os.kill(int((notes / "pid").read_text()), 0)


def test_the_tokenizer_is_told_a_line_a_caption_and_drops_punctuation(java: SetJava) -> None:
    notes = java(
        'while read line; do echo "$line" >> $NOTES/heard; echo "$line , \'\' 1\u00a01/2 "; done'
    )
    assert java_tokens(["two\u2028lines\r\n", "", "café"]) == [
        ["two", "lines", "1", "1/2"],
        ["1", "1/2"],
        ["café", "1", "1/2"],
    ]
    assert (notes / "heard").read_text(encoding="utf-8") == "two lines\n\ncafé\n"


def test_captions_must_not_get_lost(java: SetJava) -> None:
    java("echo one")
    with pytest.raises(JavaError, match="tokenizer: 2 captions went in, 1 came out"):
        java_tokens(["one", "two"])


def test_a_tokenizer_that_fails_is_one_line(java: SetJava) -> None:
    java("echo 'at line 3' >&2; echo 'no memory' >&2; exit 1")
    with pytest.raises(JavaError) as error:
        java_tokens(["one"])
    assert str(error.value) == "tokenizer: Java failed: no memory"


@pytest.mark.usefixtures("complete")
def test_spice_reads_what_its_program_writes(java: SetJava) -> None:
    """Arguments: -Dfile.encoding=UTF-8 -Xmx8G -jar JAR IN -out OUT -subset -silent."""
    scores = [
        {"image_id": place, "scores": {"All": {"f": f}}} for place, f in ((1, 0.5), (0, 0.25))
    ]
    notes = java(f"cp $5 $NOTES/heard; echo '{json.dumps(scores)}' > $7; echo $4 > $NOTES/jar")
    score, by_image = spice(CORPUS)
    assert (score, by_image.tolist()) == (0.375, [0.25, 0.5])
    assert json.loads((notes / "heard").read_text(encoding="utf-8")) == [
        {"image_id": 0, "test": "a dog", "refs": ["one dog", "||| dogs"]},
        {"image_id": 1, "test": "", "refs": ["a cat"]},
    ]
    assert Path((notes / "jar").read_text().strip()).name == "spice-1.0.jar"


# --- What is missing ------------------------------------------------------------------------------

ASK = [
    ("METEOR", lambda: meteor(CORPUS), "meteor/meteor-1.5.jar"),
    ("SPICE", lambda: spice(CORPUS), "spice/spice-1.0.jar"),
    ("tokenizer", lambda: java_tokens(["a"]), "tokenizer/stanford-corenlp-3.4.1.jar"),
]


@pytest.mark.parametrize(("name", "ask", "jar"), ASK, ids=[name for name, _, _ in ASK])
def test_every_missing_part_is_one_line(
    java: SetJava,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    ask: Callable[[], object],
    jar: str,
) -> None:
    with monkeypatch.context() as patch, pytest.raises(JavaError) as error:
        patch.setenv("PATH", str(tmp_path))
        ask()
    assert str(error.value) == f"{name}: needs Java, and there is no program java; install a JRE"
    java("exit 1")
    _install(None, monkeypatch)
    with pytest.raises(JavaError) as error:
        ask()
    assert str(error.value) == f"{name}: needs pycocoevalcap; pip install 'showattend[java]'"
    _install(tmp_path, monkeypatch)
    with pytest.raises(JavaError) as error:
        ask()
    path = tmp_path / jar
    assert str(error.value) == f"{name}: needs {path.name}, which is not in {path.parent}"


@pytest.mark.usefixtures("complete")
def test_spice_names_the_models_that_pycocoevalcap_lacks(java: SetJava, tmp_path: Path) -> None:
    java("exit 1")
    models = tmp_path / "spice" / "lib" / "stanford-corenlp-3.6.0-models.jar"
    models.unlink()
    with pytest.raises(JavaError) as error:
        spice(CORPUS)
    assert str(error.value) == f"SPICE: needs {models.name}, which is not in {models.parent}"


# --- Java itself ----------------------------------------------------------------------------------

needs_java = pytest.mark.skipif(shutil.which("java") is None, reason="needs Java: no java found")


@pytest.mark.slow
@needs_java
@pytest.mark.timeout(1200)  # 2 GB of Java beside other work
def test_meteor_of_the_parity_set() -> None:
    """coco-caption publishes .195; pycocoevalcap 1.2 gives .1953."""
    before = sorted(INSTALLED.rglob("*"))
    results = read_results(PARITY / "captions_val2014_fakecap_results.json")
    references = read_references(PARITY / "en_captions_val2014.json")
    score, by_image = meteor(make_corpus(results, references))
    assert score == pytest.approx(0.1953, abs=1e-4)
    assert by_image.shape == (1000,)
    assert 0.0 <= by_image.min() < by_image.max() <= 1.0
    assert sorted(INSTALLED.rglob("*")) == before


@pytest.mark.slow
@needs_java
def test_the_official_tokenizer_keeps_captions_apart() -> None:
    before = sorted(INSTALLED.rglob("*"))
    captions = ["", "A man's dog.", "two\u2028lines\x0b\r", " . ", "Café", ""]
    words = [[], ["a", "man", "'s", "dog"], ["two", "lines"], [], ["café"], []]
    assert java_tokens(captions) == words
    assert java_tokens([]) == []
    assert sorted(INSTALLED.rglob("*")) == before
