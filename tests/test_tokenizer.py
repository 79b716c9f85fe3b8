"""The words of the official COCO scorer: literal answers, the parity set, Java where it is."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from showattend.java_metrics import java_tokens
from showattend.tokenizer import PUNCTUATION, ptb_tokens

PARITY = Path(__file__).parent / "data" / "coco_caption_parity"
FLICKR8K = Path(__file__).parents[2] / "shared" / "flickr8k" / "Flickr8k.token.txt"

# Right: what PTBTokenizer 3.4.1 and the COCO scorer's punctuation list gave for the left.
OFFICIAL = [
    # Contractions and possessives.
    ("A man's dog isn't here.", "a man 's dog is n't here"),
    ("The boys' ball , and the girl's .", "the boys ball and the girl 's"),
    ("I can't , won't and cannot go", "i ca n't wo n't and can not go"),
    ("We're gonna wanna gotta gimme lemme", "we 're gon na wan na got ta gim me lem me"),
    ("the gonna-be and cannots", "the gonna-be and cannots"),
    ("It'll be what they've said he'd do , I'm", "it 'll be what they 've said he 'd do i 'm"),
    ("'Tis the season , 'twas said , y'all", "'t is the season 't was said y' all"),
    ("It’s the dog’s bone", "it 's the dog 's bone"),
    ("jack-o'-lantern , mother's-day , can't-miss", "jack-o lantern mother 's day ca n't miss"),
    # Other apostrophes and quotes.
    ("rock'n'roll and rock 'n' roll", "rock 'n' roll and rock 'n' roll"),
    ("Shooting 'em up 'til dawn in the '90s", "shooting 'em up 'til dawn in the '90s"),
    ("The 1950's diner in the 50s", "the 1950 's diner in the 50s"),
    ("O'Neill's five o'clock tea , ma'am", "o'neill 's five o'clock tea ma'am"),
    ("Old men hangin' out", "old men hangin out"),
    ("a 'good' \"boy\" said “hello” ‘there’", "a good boy said hello there"),
    # Full stops.
    (
        "Mr. Smith and Dr. Jones Jr. on St. James Rd.",
        "mr. smith and dr. jones jr. on st. james rd.",
    ),
    ("The U.S. team , the D.C. mall , a T.V. set", "the u.s. team the d.c. mall a t.v. set"),
    ("a letter P. and a u.s.-made car at 3 p.m.", "a letter p. and a u.s.-made car at 3 p.m."),
    ("One near miss. One mass. No.", "one near miss one mass no"),
    ("Boston Mass. has room No. 5 , fig. 3", "boston mass. has room no. 5 fig. 3"),
    ("A player is ready to bat., then runs", "a player is ready to bat. then runs"),
    ("the end.Two dogs run.", "the end.two dogs run"),
    ("what?yes!no", "what?yes!no"),
    ("visit avrovulcan.com or http://dogs.com/a .", "visit avrovulcan.com or http://dogs.com/a"),
    # Numbers.
    ("3.5 miles , 7,000 people , 12:30pm , .5", "3.5 miles 7,000 people 12:30 pm .5"),
    ("-5 degrees , +5", "-5 degrees +5"),
    ("1/2 a black/white and/or w/o w/ dog", "1/2 a black/white and/or w/o w / dog"),
    ("5:55 on the clock , 10-year-old with 4x4", "5:55 on the clock 10-year-old with 4x4"),
    ("A 1.5-inch bug , 5-6 feet", "a 1.5-inch bug 5-6 feet"),
    ("$5 5% #1 # 7 5' 6\" 5'11\"", "$ 5 5 % # 1 # 7 5 6 5 11"),
    ("a ½ cup , 1½ , €5 and £5 , 25¢ , 90°", "a 1/2 cup 1 1/2 $ 5 and # 5 25 cents 90 °"),
    # Marks between words, and marks that are words.
    ("a t-shirt , tri-colored , merry-go-round", "a t-shirt tri-colored merry-go-round"),
    ("mid- -air - a--b --- c ---- d ----- e", "mid air a b c d ----- e"),
    ("the --5 dogs", "the 5 dogs"),
    ("a_b __ ** a*b a+b a=b a~b", "a_b __ ** a * b a + b a = b a ~ b"),
    ("A&B at AT&T , R&B , m & m , rock&roll", "a&b at at&t r&b m & m rock & roll"),
    ("A &amp; B", "a & b"),
    ("a (b) [c] {d} -lrb-", "a -lrb- b -rrb- -lsb- c -rsb- -lcb- d -rcb- -lrb-"),
    ("a :) b ;) c :-(", "a :-rrb- b ;-rrb- c :--lrb-"),
    ("hello?? there !! what ?! end ... end .... end. . .", "hello ?? there !! what ?! end end end"),
    ("a <unk> dog <start> </s> <br />", "a <unk> dog <start> </s> <br />"),
    ("#dog @man a@b.com", "#dog @man a@b.com"),
    # Beyond ASCII, and beyond words.
    ("Café naïve jalapeño über-cool", "café naïve jalapeño über-cool"),
    ("a – b — c… d", "a b c d"),
    ("a 😀 b ❤️ c", "a b ❤ c"),
    ("   spaces\tand tabs ", "spaces and tabs"),
    ("two\nlines", "two lines"),
    ("", ""),
    (".", ""),
]


@pytest.mark.parametrize(("caption", "words"), OFFICIAL)
def test_gives_the_official_words(caption: str, words: str) -> None:
    assert ptb_tokens(caption) == words.split()


def _json(name: str) -> Any:
    return json.loads((PARITY / name).read_text(encoding="utf-8"))


def test_every_caption_of_the_parity_set_has_the_official_words() -> None:
    official_references = _json("en_captions_val2014_references_after_tokenization.json")
    official_results = _json("en_captions_val2014_results_after_tokenization.json")
    ours: dict[str, list[str]] = {}
    for annotation in _json("en_captions_val2014.json")["annotations"]:
        words = " ".join(ptb_tokens(annotation["caption"]))
        ours.setdefault(str(annotation["image_id"]), []).append(words)
    results = {
        str(result["image_id"]): [" ".join(ptb_tokens(result["caption"]))]
        for result in _json("captions_val2014_fakecap_results.json")
    }
    assert sum(map(len, ours.values())) == 5005
    assert {image: sorted(captions) for image, captions in ours.items()} == {
        image: sorted(captions) for image, captions in official_references.items()
    }
    assert results == official_results


@given(st.text(alphabet=st.characters(exclude_characters="<"), max_size=60))
def test_words_are_lower_case_and_free_of_spaces_and_punctuation(text: str) -> None:
    for word in ptb_tokens(text):
        assert word.split() == [word]
        assert word == word.lower()
        assert word not in PUNCTUATION


WORDS = (
    "a dog 's n't ca can not gon na -lrb- -rrb- t-shirt o'clock 'n' '90s 3.5 7,000 1/2 u.s. mr. "
    "<unk>"
)


@given(st.lists(st.sampled_from(WORDS.split()), max_size=12))
def test_words_joined_by_spaces_come_back_unchanged(words: list[str]) -> None:
    """A decoder writes words joined by spaces; scoring them must not split or join any."""
    assert ptb_tokens(" ".join(words)) == words


needs_java = pytest.mark.skipif(shutil.which("java") is None, reason="needs Java: no java found")


@pytest.mark.slow
@needs_java
def test_java_gives_the_literal_answers() -> None:
    official = java_tokens([caption for caption, _ in OFFICIAL])
    assert official == [words.split() for _, words in OFFICIAL]


@pytest.mark.slow
@needs_java
@pytest.mark.skipif(not FLICKR8K.exists(), reason=f"needs Flickr8k's captions at {FLICKR8K}")
def test_every_caption_of_flickr8k_has_the_official_words() -> None:
    lines = FLICKR8K.read_text(encoding="utf-8").splitlines()
    captions = [line.split("\t")[1] for line in lines]
    assert len(captions) == 35000
    assert _different(captions) == []


@pytest.mark.slow
@needs_java
def test_java_agrees_on_every_raw_caption_of_the_parity_set() -> None:
    """The published words above were split by whoever published them; these are split here."""
    references = _json("en_captions_val2014.json")["annotations"]
    results = _json("captions_val2014_fakecap_results.json")
    captions = [entry["caption"] for entry in (*references, *results)]
    assert len(captions) == 6005
    assert _different(captions) == []


def _different(captions: list[str]) -> list[str]:
    """The captions that we split in another way than Java does."""
    official = java_tokens(captions)
    different = [c for c, w in zip(captions, official, strict=True) if ptb_tokens(c) != w]
    print(f"{len(different)} of {len(captions)} captions differ from the official words")
    return different


MARKS = """ . , ; : ! ? ' " - -- / ( ) & ... 's 1 2 50 # % * = ” “ – é U.S. mr. St. 3:30 7,000 """


@pytest.mark.slow
@needs_java
def test_captions_with_marks_thrown_in_seldom_differ() -> None:
    """Typing mistakes, far denser than people make them: at most 2 captions in 100 may differ."""
    rng = random.Random(0)
    captions = []
    for annotation in _json("en_captions_val2014.json")["annotations"]:
        words = annotation["caption"].split()
        for _ in range(2):
            place, mark = rng.randrange(len(words)), rng.choice(MARKS.split())
            spacing = rng.choice(["{0}{1}", "{1}{0}", "{0} {1}"])
            words[place] = spacing.format(words[place], mark)
        captions.append(" ".join(words))
    different = _different(captions)
    assert len(different) <= 0.02 * len(captions), different[:20]
