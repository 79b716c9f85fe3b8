"""What only Java programs give: METEOR, SPICE and the official tokenizer.

The jars come with the PyPI package pycocoevalcap. Its Python code is not called, since it writes
into its own folder, which may be read-only or shared, and fetches models over the network; the jars
are run as it runs them, through pipes, with files in the system's temporary folder alone.
"""

import contextlib
import importlib.util
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from showattend.corpus import Corpus, Tokens
from showattend.tokenizer import PUNCTUATION

_METEOR = "meteor/meteor-1.5.jar"
_TOKENIZER = "tokenizer/stanford-corenlp-3.4.1.jar"
_SPICE = "spice/spice-1.0.jar"
_SPICE_MODELS = tuple(f"spice/lib/stanford-corenlp-3.6.0{part}.jar" for part in ("", "-models"))
#: Before version 18, Java reads and writes in the encoding of the user's locale.
_UTF8 = "-Dfile.encoding=UTF-8"


class JavaError(ValueError):
    """Java, or a part that a score needs, is missing or failed: one clear line naming the score."""


def java_tokens(captions: Sequence[str]) -> list[list[str]]:
    """The words of every caption by Stanford's PTBTokenizer 3.4.1 itself; see `tokenizer`.

    Raises:
        JavaError: see there.
    """
    jar = _part("tokenizer", _TOKENIZER)
    # A line a caption, so that no caption may hold a break of its own.
    lines = [f"{' '.join(caption.splitlines())}\n" for caption in captions]
    program = ["-cp", str(jar), "edu.stanford.nlp.process.PTBTokenizer"]
    answer = _run("tokenizer", [*program, "-preserveLines", "-lowerCase"], "".join(lines))
    said = answer.split("\n")[:-1]
    if len(said) != len(captions):
        raise JavaError(f"tokenizer: {len(captions)} captions went in, {len(said)} came out")
    kept = ([word for word in line.split(" ") if word not in PUNCTUATION] for line in said)
    return [" ".join(words).split() for words in kept]


def meteor(corpus: Corpus) -> tuple[float, np.ndarray]:
    """METEOR 1.5 for English of a corpus and of every image, in 0..1 (Denkowski and Lavie 2014).

    The corpus' score is computed from summed statistics, so it is not the mean of the images'.

    Returns:
        The corpus' score, and the images', shape (B,), float64.

    Raises:
        JavaError: see there.
    """
    jar = _part("METEOR", _METEOR)
    program = ["-Xmx2G", "-jar", str(jar), "-", "-", "-stdio", "-l", "en", "-norm"]
    with _conversation("METEOR", program) as (say, hear):
        statistics = []
        for candidate, references in zip(corpus.candidates, corpus.references, strict=True):
            _write(say, "SCORE", *map(_joined, references), _joined(candidate))
            statistics.append(_read(hear))
        _write(say, "EVAL", *statistics)
        scores_B = np.array([float(_read(hear)) for _ in corpus.candidates])
        return float(_read(hear)), scores_B


def spice(corpus: Corpus) -> tuple[float, np.ndarray]:
    """SPICE of a corpus and of every image, in 0..1 (Anderson et al. 2016).

    Returns:
        The mean over images, and the scores themselves, shape (B,), float64.

    Raises:
        JavaError: see there; as published, pycocoevalcap lacks the parser's models.
    """
    jar, *_ = (_part("SPICE", part) for part in (_SPICE, *_SPICE_MODELS))
    pairs = enumerate(zip(corpus.candidates, corpus.references, strict=True))
    task = [
        {"image_id": place, "test": " ".join(words), "refs": [" ".join(said) for said in captions]}
        for place, (words, captions) in pairs
    ]
    with tempfile.TemporaryDirectory() as folder:
        question, answer = Path(folder, "in.json"), Path(folder, "out.json")
        question.write_text(json.dumps(task), encoding="utf-8")
        program = ["-Xmx8G", "-jar", str(jar), str(question), "-out", str(answer)]
        _run("SPICE", [*program, "-subset", "-silent"], "")
        entries = json.loads(answer.read_text(encoding="utf-8"))
    by_place = {entry["image_id"]: entry["scores"]["All"]["f"] for entry in entries}
    scores_B = np.array([by_place[place] for place in range(len(task))], dtype=np.float64)
    return float(scores_B.mean()), scores_B


def _joined(words: Tokens) -> str:
    return " ".join(words).replace("|||", "")  # which parts the fields of METEOR's lines


# --- Java -----------------------------------------------------------------------------------------


def _part(score: str, name: str) -> Path:
    """A jar of pycocoevalcap's."""
    if shutil.which("java") is None:
        raise JavaError(f"{score}: needs Java, and there is no program java; install a JRE")
    package = importlib.util.find_spec("pycocoevalcap")
    if package is None or not package.submodule_search_locations:
        raise JavaError(f"{score}: needs pycocoevalcap; pip install 'showattend[java]'")
    jar = Path(package.submodule_search_locations[0], name)
    if not jar.is_file():
        raise JavaError(f"{score}: needs {jar.name}, which is not in {jar.parent}")
    return jar


def _run(score: str, program: Sequence[str], text: str) -> str:
    """What a program answers to a text."""
    command = ["java", _UTF8, *program]
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    if done.returncode:
        raise JavaError(f"{score}: Java failed: {_last_line(done.stderr)}")
    return done.stdout.decode()


@contextlib.contextmanager
def _conversation(score: str, program: Sequence[str]) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """The two ends of a program that answers line by line; it is gone afterwards, come what may."""
    with tempfile.TemporaryFile() as complaints:  # a pipe that nobody reads would fill up
        process = subprocess.Popen(
            ["java", _UTF8, *program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
        )
        assert process.stdin is not None and process.stdout is not None  # they are pipes
        try:
            yield process.stdin, process.stdout
        except (OSError, EOFError, ValueError):  # it ended before we did, or answers no number
            complaints.seek(0)
            raise JavaError(f"{score}: Java failed: {_last_line(complaints.read())}") from None
        finally:
            process.kill()
            process.communicate()  # closes the pipes, and leaves no zombie


def _write(say: IO[bytes], *fields: str) -> None:
    say.write(f"{' ||| '.join(fields)}\n".encode())
    say.flush()


def _read(hear: IO[bytes]) -> str:
    line = hear.readline()
    if not line:
        raise EOFError
    return line.decode().strip()


def _last_line(complaints: bytes) -> str:
    lines = complaints.decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it does not say why")
