"""Caption text to words, as the official COCO caption scorer splits it, without Java.

The COCO scorer (Chen et al. 2015, arXiv 1504.00325, sec. 3) runs Stanford's PTBTokenizer 3.4.1 with
`-preserveLines -lowerCase` and then drops punctuation. Published scores are on these words, so ours
must be too. The rules below were written by watching what that program does with captions; the
tests hold captions with its own answers, and ask it again wherever Java is present.
"""

import re

# What the COCO scorer drops. The list names round brackets in capitals, but is looked up after
# lower-casing, so that brackets stay, as `-lrb-`. Runs such as `?!` are not on it and stay too.
PUNCTUATION = frozenset((
    "''", "'", "``", "`", "-LRB-", "-RRB-", "-LCB-", "-RCB-",
    ".", "?", "!", ",", ":", "-", "--", "...", ";",
))  # fmt: skip

# The Penn Treebank's spellings of marks that its own format reserves, or that it lacks.
TREEBANK_SPELLING = {
    "(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-",
    '"': "''", "“": "``", "”": "''", "‘": "`", "«": "``", "»": "''", "&quot;": "''",
    "–": "--", "—": "--", "---": "--", "----": "--", "…": "...",
    "½": "1/2", "¼": "1/4", "¾": "3/4", "⅓": "1/3", "⅔": "2/3",
    "€": "$", "£": "#", "¢": "cents", "&amp;": "&", "&lt;": "<", "&gt;": ">",
}  # fmt: skip

# A full stop after these belongs to the word wherever it stands: "mr.", but "man" ".".
ABBREVIATIONS = (
    "mr mrs ms messrs dr drs prof pres gov sen sens rep reps rev hon msgr mme mlle atty supt insp "
    "adm brig capt cmdr col cpl gen lt maj pvt pfc sgt spc jr sr esq "  # people
    "jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thurs fri "  # dates
    "st rd rt ave blvd mt ft ct sq ste bldg dept univ ext "  # places
    "ala ariz calif colo conn dak fla ga ind kan kans ky md mich minn mo mont neb nev okla penn "
    "tenn va vt wis wisc wyo "  # states
    "assn assoc bros co corp cos inc intl ltd mfg natl plc "  # companies
    "adj adv al asst cf det elec est etc mtg ph seq sys tel vs alex wm ph.d"  # other
)
# These are words too, so the capital decides: "Mass.", but "a mass" ".".
CAPITAL_ABBREVIATIONS = "ark az del ill la mass miss ore pa tex wash"
# These are words too, so the number behind decides: "no. 5", but "says no" ".".
NUMBER_ABBREVIATIONS = "art ca fig figs no nos op pp prop"


def _any_of(words: str) -> str:
    return f"(?:{'|'.join(map(re.escape, words.split()))})"


LETTER = r"[^\W\d_½¼¾⅓⅔]"
ALNUM = r"[^\W_½¼¾⅓⅔]"
COMPOUND = rf"{ALNUM}+(?:[-_]{ALNUM}+)*"
END = rf"(?!{ALNUM})"
# PTBTokenizer 3.4.1 skips zero-width marks and all beyond 16 bits, which is where emoji lie.
UNSEEN = r"\u200b-\u200f\ufe0e\ufe0f\ufeff\U00010000-\U0010ffff"

# The first alternative that matches wins, so the order is part of the rules: what keeps a mark
# inside a word, or parts a word in two, comes before plain words, and those before single marks.
TOKEN = re.compile(
    rf"""
    # The Penn Treebank parts words that speech has run together; the second half is a word below.
      (?:can(?=not)|gon(?=na)|wan(?=na)|got(?=ta)|gim(?=me)|lem(?=me))(?=\w{{2,3}}(?![\w-]))
    | {LETTER}+(?!\S)                               # most words: first for speed alone

    # Names of the net, and special words such as <unk>.
    | </?{LETTER}[^<>]*>
    | https?://[^\s"<>()]+(?<![.,;:!?])             # the last stop is the sentence's
    | \w[\w.+-]*@{COMPOUND}(?:\.{COMPOUND})*

    # An apostrophe starts a contraction ...
    | {ALNUM}+?(?=n't{END}) | n't{END}              # do n't, ca n't
    | '(?:s|m|d|ll|re|ve|em|till?|cause){END}       # dog 's
    | 't(?=(?:is|was){END}) | y'(?={LETTER}{{2}})   # 't was, y' all
    | 'n(?:'|{END}) | '\d\d(?:s{END}|(?![\w'"]))     # rock 'n' roll, the '90s
    # ... or stands inside a name (O'Neill) or a clipped word (o'clock); elsewhere it ends a word.
    | (?:(?-i:[A-Z])|[dlno])'(?!(?:ll|re|ve){END}){LETTER}{{2,}}
    | (?:ma'am|c'mon|e'er|ne'er|s'mores|li'l|nat'l|ol'){END}

    # A full stop inside a word.
    | (?:[a-z]\.)+(?!{LETTER})(?:-{COMPOUND})?      # u.s., u.s.-made, and a single p.
    | (?:{_any_of(ABBREVIATIONS)}|(?-i:(?=[A-Z])){_any_of(CAPITAL_ABBREVIATIONS)})\.(?!{LETTER})
    | {_any_of(NUMBER_ABBREVIATIONS)}\.(?=\s?\d)
    | {COMPOUND}\.(?=[,;:])                         # "etc.,": a comma makes any word short
    | {LETTER}{ALNUM}*(?:[.?!]{LETTER}{ALNUM}*)+    # no space after the stop: a web site's name

    # Numbers.
    | [+-]\d+(?:[.,:]\d+)*                          # -5, +1,000
    | \d*(?:[.,:]\d+)+(?:-{COMPOUND})?              # 3.5, 7,000, 12:30, .5, 1.5-inch

    # Words.
    | (?-i:[A-Z]+(?:&[A-Z]+)+)                      # AT&T, but m & m
    | {COMPOUND}(?:/{COMPOUND})*                    # t-shirt, black/white, 1/2, 10-year-old
    | \#{LETTER}+ | @{LETTER}\w*                    # #tag, @user

    # Marks.
    | -[lr][rsc]b-                                  # already in the Treebank's spelling
    | [:;=]['-]?[()DP]{END}                         # a smiley
    | [?!]{{2,}} | --+ | \*+ | _+ | &(?:amp|quot|[lg]t);
    | [^\s{UNSEEN}]
    """,
    re.VERBOSE | re.IGNORECASE,
)


def ptb_tokens(text: str) -> list[str]:
    """Split one caption into the lower-case words that the official COCO caption scorer counts.

    `text` is a raw caption; a line break in it is a space. Words come in order, without
    punctuation: "A man's dog isn't here." -> ["a", "man", "'s", "dog", "is", "n't", "here"].
    Text of words joined by spaces comes back as the same words, save that a full stop may go.

    Source: Stanford PTBTokenizer 3.4.1 as called by coco-caption (Chen et al. 2015). Telephone
    numbers, sums of money with a letter (US$5), file paths and misplaced apostrophes may differ.
    """
    return [word for word, _, _ in ptb_spans(text)]


def ptb_spans(text: str) -> list[tuple[str, int, int]]:
    """The words of `ptb_tokens`, each with the characters it came from: text[start:end]."""
    words = (
        (_treebank_spelling(match.group()).lower(), *match.span())
        for match in TOKEN.finditer(text.replace("’", "'"))  # as long as before
    )
    # A tag may hold spaces: <a b>.
    return [
        (part, start, end)
        for word, start, end in words
        if word not in PUNCTUATION
        for part in word.split()
    ]


def _treebank_spelling(token: str) -> str:
    if token[0] in ":;=":  # a smiley's mouth is a bracket
        return token.replace("(", "-lrb-").replace(")", "-rrb-")
    return TREEBANK_SPELLING.get(token, token)
