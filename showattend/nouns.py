"""Which words of a caption name a thing: COCO's 80 categories, and plurals.

Words are PTB tokens (lower case). The rules are simple on purpose: a table and a way to fold
plurals, no parser.
"""

from collections.abc import Collection, Sequence

#: Names in captions of each category of COCO (Lin et al. 2014): its own name, and then words that
#: mean nothing else in most captions. Left out are words that often do: "light" (of no traffic),
#: "glass", "board", "computer" (a laptop or not), "plate" (no category), "toy", "animal".
#: Our own list, not that of CHAIR (Rohrbach et al. 2018): figures made with the two do not compare.
COCO_NOUNS: dict[str, tuple[str, ...]] = {
    "person": (
        "man", "woman", "boy", "girl", "child", "kid", "baby", "toddler", "infant", "guy", "lady",
        "gentleman", "adult", "teenager", "teen", "friend", "crowd", "player", "batter", "pitcher",
        "catcher", "umpire", "referee", "skier", "snowboarder", "skateboarder", "skater", "surfer",
        "rider", "biker", "cyclist", "bicyclist", "motorcyclist", "swimmer", "climber", "runner",
        "worker", "officer", "policeman", "soldier", "chef", "passenger", "pedestrian",
        "family", "mother", "father", "bride", "groom", "mom", "dad", "brother", "sister", "son",
        "daughter", "cowboy", "dancer", "performer", "spectator",
    ),
    "bicycle": ("bike", "tricycle"),
    "car": ("taxi", "cab", "suv", "sedan", "minivan", "automobile"),
    "motorcycle": ("motorbike", "scooter", "moped", "dirtbike", "dirt bike"),
    "airplane": ("plane", "aeroplane", "jet", "airliner", "aircraft"),
    "bus": ("minibus",),
    "train": ("locomotive",),
    "truck": ("lorry", "pickup"),
    "boat": ("ship", "canoe", "kayak", "sailboat", "rowboat", "raft", "ferry", "yacht"),
    "traffic light": ("traffic signal", "stoplight", "stop light"),
    "fire hydrant": ("hydrant",),
    "stop sign": ("stopsign",),
    "parking meter": (),
    "bench": (),
    "bird": ("pigeon", "seagull", "gull", "duck", "goose", "parrot", "owl", "swan"),
    "cat": ("kitten", "kitty"),
    "dog": (
        "puppy", "pup", "doggy", "poodle", "terrier", "retriever", "greyhound", "dachshund",
        "collie", "beagle", "dalmatian",
    ),
    "horse": ("pony", "foal"),
    "sheep": ("lamb", "ram", "ewe"),
    "cow": ("cattle", "bull", "ox"),
    "elephant": (),
    "bear": ("cub", "panda"),
    "zebra": (),
    "giraffe": (),
    "backpack": ("rucksack", "knapsack"),
    "umbrella": ("parasol",),
    "handbag": ("purse", "hand bag"),
    "tie": ("necktie",),
    "suitcase": ("luggage", "briefcase"),
    "frisbee": (),
    "skis": ("ski",),
    "snowboard": (),
    "sports ball": (
        "ball", "soccer ball", "tennis ball", "football", "basketball", "baseball", "volleyball",
    ),
    "kite": (),
    "baseball bat": ("bat",),
    "baseball glove": ("mitt",),
    "skateboard": ("skate board",),
    "surfboard": ("surf board",),
    "tennis racket": ("racket", "racquet", "tennis racquet"),
    "bottle": (),
    "wine glass": ("wineglass",),
    "cup": ("mug",),
    "fork": (),
    "knife": (),
    "spoon": (),
    "bowl": (),
    "banana": (),
    "apple": (),
    "sandwich": ("burger", "hamburger"),
    "orange": (),
    "broccoli": (),
    "carrot": (),
    "hot dog": ("hotdog",),
    "pizza": (),
    "donut": ("doughnut",),
    "cake": ("cupcake",),
    "chair": ("armchair", "stool"),
    "couch": ("sofa", "loveseat"),
    "potted plant": ("houseplant", "plant"),
    "bed": (),
    "dining table": ("table", "dinner table"),
    "toilet": (),
    "tv": ("television", "tv set"),
    "laptop": ("laptop computer",),
    "mouse": ("computer mouse",),
    "remote": ("remote control", "wii remote"),
    "keyboard": (),
    "cell phone": ("cellphone", "phone", "mobile phone", "smartphone"),
    "microwave": ("microwave oven",),
    "oven": ("stove",),
    "toaster": (),
    "sink": (),
    "refrigerator": ("fridge",),
    "book": (),
    "clock": (),
    "vase": (),
    "scissors": (),
    "teddy bear": ("teddy",),
    "hair drier": ("hair dryer", "hairdryer", "blow dryer"),
    "toothbrush": ("tooth brush",),
}  # fmt: skip

#: A colour far more often than a fruit. "oranges" are fruit.
_NOT_NAMES = frozenset({"orange"})

_IRREGULAR = {
    "people": "person", "men": "man", "women": "woman", "children": "child", "feet": "foot",
    "teeth": "tooth", "mice": "mouse", "geese": "goose", "oxen": "ox", "knives": "knife",
    "wolves": "wolf", "leaves": "leaf", "calves": "calf", "scarves": "scarf", "shelves": "shelf",
    "loaves": "loaf", "halves": "half", "buses": "bus", "potatoes": "potato",
    "tomatoes": "tomato", "movies": "movie", "cookies": "cookie", "hoodies": "hoodie",
    "collies": "collie",
}  # fmt: skip


def singular(word: str) -> str:
    """A noun without its plural: dogs -> dog, puppies -> puppy, benches -> bench, men -> man.

    Made to compare words, so that one that is no plural may lose its s too (pants -> pant).
    """
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if word.endswith("men") and len(word) > len("women"):
        return word.removesuffix("men") + "man"
    if word.endswith("ies") and len(word) > len("ties"):
        return word.removesuffix("ies") + "y"
    if word.endswith(("sses", "xes", "ches", "shes")):
        return word.removesuffix("es")
    if word.endswith("s") and not word.endswith(("ss", "us", "is", "'s")):
        return word.removesuffix("s")
    return word


def coco_nouns(words: Sequence[str]) -> list[tuple[int, str]]:
    """The categories of COCO that a caption names: (position of the name's last word, category).

    The longest name counts: "hot dog" names no dog.
    """
    found = []
    position = 0
    while position < len(words):
        length, category = _name_at(words, position)
        if category:
            found.append((position + length - 1, category))
        position += length
    return found


def known_nouns(words: Sequence[str], nouns: Collection[str]) -> list[tuple[int, str]]:
    """The words of a caption whose singular is one of ``nouns``: (position, singular)."""
    folded = [(position, singular(word)) for position, word in enumerate(words)]
    return [(position, word) for position, word in folded if word in nouns]


def _folded(name: Sequence[str]) -> tuple[str, ...]:
    return (*name[:-1], singular(name[-1]))


_CATEGORIES = {
    _folded(name.split()): category
    for category, others in COCO_NOUNS.items()
    for name in (category, *others)
}
_LONGEST = max(map(len, _CATEGORIES))


def _name_at(words: Sequence[str], position: int) -> tuple[int, str | None]:
    """The longest name that begins at a word: how many words it has, and its category."""
    for length in range(min(_LONGEST, len(words) - position), 0, -1):
        name = words[position : position + length]
        category = _CATEGORIES.get(_folded(name))
        if category and " ".join(name) not in _NOT_NAMES:
            return length, category
    return 1, None
