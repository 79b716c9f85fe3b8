"""Typed settings of a run: YAML plus ``section.key=value`` overrides, checked before it starts.

A settings file is complete in itself: no inheritance, no defaults hidden in code paths. Every key
has a type and a range; an unknown key is refused with the nearest valid name.
"""

import difflib
from collections.abc import Hashable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar, get_args

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator


def _odd(side: int) -> int:
    if side % 2 == 0:
        raise ValueError("a window around a cell has an odd side, such as 1 or 3")
    return side


Resize = Literal["squash", "crop", "pad"]
Attention = Literal["argmax", "sample", "expectation"]
ScoreName = Literal["additive", "dot", "scaled_dot", "cosine", "general", "location"]
Probability = Annotated[float, Field(ge=0.0, lt=1.0)]
Chance = Annotated[float, Field(ge=0.0, le=1.0)]
Count = Annotated[int, Field(strict=True, ge=1)]  # strict: `yes` is not 1
#: Beyond these no machine's memory reaches, and a slip of the hand is likelier.
Width = Annotated[int, Field(strict=True, ge=1, le=65_536)]
MOST_WORDS = 1_000
Words = Annotated[int, Field(strict=True, ge=1, le=MOST_WORDS)]
Odd = Annotated[int, Field(strict=True, ge=1, le=63), AfterValidator(_odd)]
Layers = Annotated[int, Field(strict=True, ge=1, le=24)]
Mean = Annotated[float, Field(ge=0.0, le=1.0)]
Deviation = Annotated[float, Field(ge=0.001, le=10.0)]
Positive = Annotated[float, Field(gt=0.0)]
Temperature = Annotated[float, Field(ge=0.01, le=100.0)]
Model = TypeVar("Model", bound=BaseModel)

#: ``encoder.name`` of a model without a CNN: it looks at regions whose features a file brings.
REGIONS = "regions"
#: What belongs to a CNN, its grid or a photograph's pixels. Regions leave all of it as it is.
_OF_CNNS = ("stage", "fused", "trainable_stages", "batch_statistics", "channel_attention")
_NOT_OF_REGIONS = (
    *(f"encoder.{key}" for key in _OF_CNNS),
    *(f"pixels.{key}" for key in ("size", "resize", "mean", "std")),
    *(f"decoder.{key}" for key in ("coordinates", "glimpse", "grid_layers")),
    "loss.attention",
    "train.flips",
)


class ConfigError(ValueError):
    """A setting is unknown, missing, of the wrong type or out of range: one clear line."""


class _Section(BaseModel):
    """Frozen, keyword-only, and closed: a key that is not declared is an error, never ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class DataSettings(_Section):
    """Which photographs and captions."""

    kind: Literal["shapes", "flickr8k", "flickr30k", "coco", "karpathy", "folder"]
    #: Folder of the data set (for ``folder``: of the photographs). ``shapes`` needs none.
    root: Path | None = None
    #: Captions file, where the layout leaves it open: Karpathy's JSON, ``folder``'s CSV or JSONL.
    captions: Path | None = None
    #: Human boxes of the captions' phrases (Flickr30k Entities: its folder, or one JSON file).
    boxes: Path | None = None
    #: Regions of every photograph and their features (``encoder.name: regions``): .npz or .h5, see
    #: showattend/regions.py.
    regions: Path | None = None
    #: Words seen less often than this in the *training* captions become the unknown word.
    min_count: Count = 5
    #: Karpathy's COCO split keeps 30,504 validation images apart as ``restval``; every published
    #: result trains on them too (113,287 images in place of 82,783).
    restval: bool = True
    #: What to do with a photograph that cannot be opened.
    corrupt: Literal["fatal", "skip"] = "fatal"
    #: ``shapes`` only: how many pictures are drawn, and from which seed.
    train_images: Count = 4000
    val_images: Count = 500
    shapes_seed: Annotated[int, Field(strict=True)] = 0

    @model_validator(mode="after")
    def _layout(self) -> "DataSettings":
        if self.kind != "shapes" and self.root is None:
            raise ValueError(f"data.root is missing: say where the {self.kind} photographs lie")
        if self.kind in ("karpathy", "folder") and self.captions is None:
            raise ValueError(f"data.captions is missing: {self.kind} needs its captions file")
        return self


class PixelSettings(_Section):
    """How a photograph becomes the square of numbers that the encoder sees."""

    size: Annotated[int, Field(ge=32, le=2048)] = 224
    resize: Resize = "squash"
    #: Of pixel values 0..1, per channel; null is what the encoder's ImageNet weights expect.
    mean: tuple[Mean, Mean, Mean] | None = None
    std: tuple[Deviation, Deviation, Deviation] | None = None


class ChannelAttentionSettings(_Section):
    """Gates on the channels of a CNN's feature maps; see showattend/channel_attention.py."""

    #: Squeeze-and-excitation, ECA, or CBAM (which gates the cells too).
    kind: Literal["se", "eca", "cbam"]
    #: In every residual block of the stages, before its sum, as in the papers; or after the stages.
    where: Literal["block", "stage"]
    #: Which stages, as ``encoder.stage`` counts those up to the grid; negative ones from the end.
    stages: Annotated[tuple[Annotated[int, Field(strict=True)], ...], Field(min_length=1)] = (-1,)
    #: The inner layer of se and cbam has 1/reduction of the channels.
    reduction: Annotated[int, Field(strict=True, ge=1, le=1_024)] = 16


class EncoderSettings(_Section):
    """The CNN that turns the square into a grid of feature vectors."""

    #: A timm name (``resnet50``), ``torchvision:NAME``, or ``regions``: no CNN, but the features of
    #: regions that ``data.regions`` brings.
    name: str = "tf_efficientnet_lite0"
    #: ``regions`` only: C, how many numbers a region's features are.
    channels: Width | None = None
    #: Which stage's feature map is the grid; -1 is the network's last one.
    stage: int = -1
    #: Lay the network's last feature map, which knows what things are, over that of ``stage``,
    #: which knows better where they are.
    fused: bool = False
    #: Start from ImageNet weights (for tf_efficientnet_lite0 and _lite2 they come with the
    #: installation).
    pretrained: bool = True
    #: How many of the last stages are trained with the decoder; 0 freezes the whole CNN.
    trainable_stages: Annotated[int, Field(ge=0)] = 0
    #: BatchNorm of the trained stages takes each batch's mean and variance in training, which a CNN
    #: that starts from nothing needs; a pretrained one keeps those that it has.
    batch_statistics: bool = False
    #: New gates on the channels, trained with the decoder whether the CNN is frozen or not. After
    #: the last stage alone (where: stage, stages: [-1]), they leave a frozen CNN's grids cached.
    channel_attention: ChannelAttentionSettings | None = None

    @model_validator(mode="after")
    def _width(self) -> "EncoderSettings":
        if self.name == REGIONS and self.channels is None:
            raise ValueError(
                "encoder.channels is missing: say how many numbers a region's features are, such "
                "as 2048"
            )
        if self.name != REGIONS and self.channels is not None:
            raise ValueError(
                f"encoder.channels: {self.name} knows its own; leave it out, or set "
                "encoder.name=regions"
            )
        return self


class DecoderSettings(_Section):
    """What writes the words: an LSTM (Xu et al. 2015, section 3.1.2), a GRU or a Transformer."""

    kind: Literal["lstm", "gru", "transformer"] = "lstm"
    #: E, D and A of the shape legend. Of a Transformer, E is the width of its layers and D that
    #: within their feed-forward networks.
    embedding: Width = 256
    hidden: Width = 512
    attention: Width = 256
    #: L, layers of a Transformer; the others have one.
    layers: Layers = 1
    #: How cells are compared with what is asked for: see showattend/scores.py.
    score: ScoreName = "additive"
    #: H, of every attention: each looks by itself, at a slice of the channels.
    heads: Annotated[int, Field(strict=True, ge=1, le=64)] = 1
    #: Blocks of self-attention among the cells, before the decoder looks at them; 0 is none.
    grid_layers: Annotated[int, Field(strict=True, ge=0, le=24)] = 0
    #: Width of the grid projection relu(W_g LayerNorm(a_i)); null is the paper: the CNN's vectors.
    projection: Width | None = 512
    #: Each cell also says where it lies (x, y): what "to the left of" is read from.
    coordinates: bool = False
    #: Attention also hears the word just written; the paper's looks before it knows that word.
    word_in_query: bool = False
    #: Soft attention takes all cells by their weights, hard attention one cell a word (sec. 4).
    look: Literal["soft", "hard"] = "soft"
    #: A look takes in the n x n cells around the chosen one (their mean); 1 is that cell alone.
    glimpse: Odd = 1
    dropout: Probability = 0.5
    #: Chance that a word which is read in training is the unknown one: what comes next must then be
    #: told from the photograph (Bowman et al. 2016, section 3.1).
    word_dropout: Probability = 0.0
    #: What lies around the sum from which an LSTM or a GRU writes a word: nothing (the paper's eq.
    #: 7), a tanh, or the larger of each two numbers (maxout; Bahdanau et al. 2015).
    deep_output: Literal["linear", "tanh", "maxout"] = "linear"
    #: The output layer uses the word embeddings' own matrix.
    tie_embeddings: bool = True

    @model_validator(mode="after")
    def _fit(self) -> "DecoderSettings":
        if self.attention % self.heads:
            raise ValueError(f"decoder.heads is {self.heads}: must divide decoder.attention")
        if self.kind != "transformer":
            if self.layers != 1:
                raise ValueError(
                    f"decoder.layers: a {self.kind} has 1; a transformer may have more"
                )
            return self
        if self.embedding % 2 or self.embedding % self.heads:
            raise ValueError("decoder.embedding: 2 and decoder.heads must divide a transformer's")
        if self.word_in_query:
            raise ValueError("decoder.word_in_query: a transformer has read the word; leave it out")
        if self.deep_output != "linear":
            raise ValueError("decoder.deep_output: a transformer's is linear; leave it out")
        return self


#: What may differ between two decoders that have the same weights.
OF_ANY_WEIGHTS = ("look", "glimpse", "dropout", "word_dropout")


class LossSettings(_Section):
    """What is minimised."""

    label_smoothing: Probability = 0.0
    #: lambda of the doubly stochastic penalty (Xu et al. 2015, eq. 14).
    doubly_stochastic: Annotated[float, Field(ge=0.0)] = 0.0
    #: What each cell's weights should sum to over a caption: 1 as in the paper, or T/P, which is
    #: all the weight there is when a caption has fewer words (T) than the grid has cells (P).
    doubly_stochastic_target: Literal["one", "words_over_cells"] = "words_over_cells"
    #: Weight of all words at once, in no order, told from the cells' mean (Joulin et al. 2016):
    #: it teaches what is seen, where a caption's words may be guessed from those before.
    bag_of_words: Annotated[float, Field(ge=0.0)] = 0.0
    #: Weight of supervised attention: where people drew boxes (``data.boxes``), the weights of a
    #: phrase's words are taught to lie in them (Liu et al. 2017).
    attention: Annotated[float, Field(ge=0.0)] = 0.0


#: Of ``hard``: settings that one estimator alone heeds.
_OF_ESTIMATORS = {
    **dict.fromkeys(("baseline", "reward_to_go", "reinforce"), "reinforce"),
    "temperature": "gumbel",
}


class HardSettings(_Section):
    """How hard attention (``decoder.look: hard``) is trained; see showattend/reinforce.py."""

    #: REINFORCE; or, biased, a cell through which gradients pass as if it were soft: one drawn by
    #: the Gumbel-softmax (Jang et al. 2017), or the likeliest (Bengio et al. 2013).
    estimator: Literal["reinforce", "gumbel", "straight_through"] = "reinforce"
    #: What a reward is compared with: its average over earlier batches (the paper), that of the
    #: likeliest cells' path, the mean of the image's other samples, or nothing.
    baseline: Literal["moving_average", "self_critical", "leave_one_out", "none"] = "moving_average"
    #: Reward a look by the words from its own on, in place of the whole caption (the paper).
    reward_to_go: bool = False
    #: S, paths drawn for every caption.
    samples: Annotated[int, Field(strict=True, ge=1, le=64)] = 1
    #: lambda_r: weight of the score function's term.
    reinforce: Annotated[float, Field(ge=0.0)] = 1.0
    #: lambda_e: weight of the attention's entropy.
    entropy: Annotated[float, Field(ge=0.0)] = 0.0
    #: Chance, drawn per image, that the expectation is taken in place of a sample: at the first
    #: step and at the last, even in between. The paper's is 0.5 throughout; from 1 to 0, training
    #: begins as soft attention and ends as hard.
    expectation: tuple[Chance, Chance] = (0.5, 0.5)
    #: ``gumbel``: temperature at the first step and at the last; geometric in between.
    temperature: tuple[Temperature, Temperature] = (1.0, 0.5)

    @model_validator(mode="after")
    def _others(self) -> "HardSettings":
        if self.baseline == "leave_one_out" and self.samples == 1:
            raise ValueError("hard.samples is 1: leave_one_out compares 2 samples or more")
        # A setting that changes nothing would be taken for one that makes no difference.
        for key, estimator in _OF_ESTIMATORS.items():
            set_ = getattr(self, key) != type(self).model_fields[key].default
            if set_ and self.estimator != estimator:
                raise ValueError(
                    f"hard.{key}: changes nothing with hard.estimator={self.estimator}; leave it "
                    "out"
                )
        return self


class RewardSettings(_Section):
    """Self-critical training on CIDEr-D in place of people's words; see
    showattend/self_critical.py.
    """

    #: K, captions drawn for every image at a step.
    samples: Annotated[int, Field(strict=True, ge=2, le=64)] = 5
    #: Divides the logits of the distribution that is drawn from and made better. A model trained
    #: with label smoothing draws a word at random every so often; 0.5 all but rules that out.
    temperature: Temperature = 1.0
    #: What a caption's CIDEr-D is compared with: the mean of the image's other samples (Kool et al.
    #: 2019), or that of the likeliest words (Rennie et al. 2017).
    baseline: Literal["others", "greedy"] = "others"
    #: The end counts as a word, so that breaking off in the middle of a phrase costs something.
    end_mark: bool = True


class TrainSettings(_Section):
    """The loop."""

    epochs: Count
    #: Images in a batch, over all processes; each comes with its captions.
    batch_images: Count = 64
    #: In so many parts, one after the other, each process tells its share of a batch: less memory,
    #: the same update.
    accumulate: Count = 1
    #: At most this many of an image's captions in an epoch, drawn anew each time.
    captions_per_image: Count = 5
    learning_rate: Positive = 1e-3
    #: The learning rate of the encoder's trainable stages.
    encoder_learning_rate: Positive = 1e-5
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.01
    #: Fraction of all steps over which the learning rate climbs from 0; then it falls as a cosine.
    warmup: Probability = 0.05
    clip_norm: Positive = 1.0
    #: Validate and keep, in place of the weights, their exponential moving average with this decay
    #: per update; 0 keeps the weights themselves.
    average: Probability = 0.0
    #: Chance that a word is replaced by the model's own last word (Bengio et al. 2015), reached
    #: linearly over the training.
    scheduled_sampling: Probability = 0.0
    #: Show each picture mirrored half the time, with "left" and "right" swapped in its captions.
    flips: bool = False
    #: Smallest share of a photograph's sides that is shown: at each step another part, drawn
    #: anew, of another shape. 1 shows the whole; with less, no grids are cached.
    smallest_crop: Annotated[float, Field(ge=0.1, le=1.0)] = 1.0
    #: Longer captions are cut for training (never for scoring).
    max_words: Words = 24
    #: Stop after this many epochs without a better score on the validation split.
    patience: Count = 5
    #: The free-running validation score that chooses the best checkpoint. METEOR needs Java;
    #: "pointing" (teacher-forced, of phrases with ``data.boxes``) looks at attention alone.
    select_on: Literal[
        "BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L", "CIDEr-D", "METEOR", "pointing"
    ] = "CIDEr-D"
    #: Score only this many validation images each epoch (the first ones); null is all of them.
    val_images: Count | None = None
    #: bfloat16 autocast of the decoder; worth it only where the processor multiplies bfloat16.
    bf16: bool = False
    #: Within an epoch, keep what is needed to go on (last/) every so many minutes; null is at the
    #: end of epochs alone.
    save_minutes: Positive | None = 20.0
    seed: Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)] = 1


class SearchSettings(_Section):
    """How words are chosen when captioning."""

    beam_size: Annotated[int, Field(ge=1, le=64)] = 5
    max_words: Words = 24
    #: Captions are ranked by log p / length^length_penalty; 0 is the plain log-probability.
    length_penalty: Annotated[float, Field(ge=0.0, le=4.0)] = 0.7
    #: Where to look: at the likeliest cell, at one drawn from alpha, or at all by their weights;
    #: null is the model's own way: argmax if it is hard, expectation if soft.
    attention: Attention | None = None


class Settings(_Section):
    """Everything a run depends on."""

    data: DataSettings
    pixels: PixelSettings = PixelSettings()
    encoder: EncoderSettings = EncoderSettings()
    decoder: DecoderSettings = DecoderSettings()
    loss: LossSettings = LossSettings()
    hard: HardSettings = HardSettings()
    #: null: cross-entropy with people's captions. Else a second training, by `--init`, of a model
    #: that writes already.
    reward: RewardSettings | None = None
    train: TrainSettings
    search: SearchSettings = SearchSettings()

    @model_validator(mode="after")
    def _fit(self) -> "Settings":
        if self.encoder.fused and self.decoder.projection is None:
            raise ValueError("decoder.projection is null: encoder.fused needs one to join two maps")
        if self.decoder.kind == "transformer" and self.train.scheduled_sampling:
            raise ValueError("train.scheduled_sampling: of an lstm or a gru; a transformer's is 0")
        if self.decoder.kind == "transformer" and self.loss.bag_of_words:
            raise ValueError("loss.bag_of_words: of an lstm or a gru; a transformer's is 0")
        if self.reward is not None and (self.loss, self.hard) != (LossSettings(), HardSettings()):
            raise ValueError(
                "loss and hard: change nothing where there is a reward; leave them out"
            )
        if self.reward is not None and self.train.scheduled_sampling:
            raise ValueError("train.scheduled_sampling: changes nothing where there is a reward")
        if self.loss.attention and self.train.smallest_crop < 1:
            raise ValueError("train.smallest_crop: loss.attention knows the boxes of the whole; 1")
        needs = "loss.attention" if self.loss.attention else "train.select_on=pointing"
        wanted = self.loss.attention or self.train.select_on == "pointing"
        if wanted and self.data.boxes is None and self.data.kind != "shapes":
            raise ValueError(f"data.boxes is missing: {needs} needs the boxes of phrases")
        if self.encoder.name == REGIONS:
            self._fit_regions()
        return self

    def _fit_regions(self) -> None:
        """Refuse what only a grid has."""
        if self.data.regions is None:
            raise ValueError("data.regions is missing: name the file of regions and their features")
        if self.train.select_on == "pointing":
            raise ValueError("train.select_on=pointing: plays on a grid; regions have none")
        for section, key in (dotted.split(".") for dotted in _NOT_OF_REGIONS):
            part = getattr(self, section)
            if getattr(part, key) != type(part).model_fields[key].default:
                raise ValueError(
                    f"{section}.{key}: belongs to a grid of cells; leave it out with "
                    "encoder.name=regions"
                )


def read_settings(path: Path, overrides: list[str] | None = None) -> Settings:
    """Read a YAML file and lay ``section.key=value`` overrides over it.

    Raises:
        ConfigError: one line naming the file, the key and what was expected.
    """
    tree = read_tree(path, "sections such as `data:` and `train:`")
    for override in overrides or []:
        _lay_over(tree, override)
    laid_over = {override.partition("=")[0].strip(): override for override in overrides or []}
    return checked(Settings, tree, str(path), laid_over)


class _Loader(yaml.SafeLoader):
    """YAML forbids a key twice; yaml itself would let the last one win without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[tuple[str, str]] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if (key.tag, key.value) in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"`{key.value}` is there twice", problem_mark=key.start_mark
                )
            seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)


def read_tree(path: Path, expected: str) -> dict[str, Any]:
    """Read a YAML file of keys with values; ``expected`` names them in the error line.

    Raises:
        ConfigError: it cannot be read, is not YAML, or holds something else; one line.
    """
    try:
        tree = yaml.load(Path(path).read_text(encoding="utf-8"), _Loader)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); give a YAML file") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # of dates and numbers, nesting
        reason = " ".join(str(error).split())
        raise ConfigError(f"{path}: is not YAML ({reason})") from None
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: expected {expected}, found none")
    return tree


def check_settings(tree: dict[str, Any], origin: str) -> Settings:
    """Turn a plain tree into :class:`Settings`; ``origin`` names it in the error line."""
    return checked(Settings, tree, origin)


def checked(
    model: type[Model], tree: Any, origin: str, origins: Mapping[str, str] = MappingProxyType({})
) -> Model:
    """Validate a tree against a settings class, every error as one :class:`ConfigError` line.

    Args:
        origins: of some keys, written with dots, another origin than that of the tree.
    """
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        path = [str(part) for part in _first(error)["loc"]]
        within = (".".join(path[:n]) for n in range(len(path), 0, -1))  # the nearest one
        found = next((origins[name] for name in within if name in origins), origin)
        raise ConfigError(f"{found}: {_one_line(model, error)}") from None


def _first(error: ValidationError) -> Any:
    """An unknown key goes first: a misspelt one is usually why another is missing."""
    errors = error.errors(include_url=False)
    return min(errors, key=lambda found: found["type"] != "extra_forbidden")


def _lay_over(tree: dict[str, Any], override: str) -> None:
    """Set one ``a.b=value`` in the tree; the value is read as YAML."""
    dotted, equals, text = override.partition("=")
    keys = dotted.strip().split(".")
    if not equals or not all(keys):
        raise ConfigError(f"{override!r}: expected SECTION.KEY=VALUE, such as train.epochs=3")
    node = tree
    for key in keys[:-1]:
        child = node.setdefault(key, {})
        if not isinstance(child, dict):
            raise ConfigError(f"{override!r}: {key} is not a section")
        node = child
    try:
        node[keys[-1]] = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):  # of dates and numbers, of nesting
        raise ConfigError(f"{override[:80]!r}: the value is not YAML") from None


def _one_line(root: type[BaseModel], error: ValidationError) -> str:
    """The first error of a validation as "key: what was expected" with the nearest valid name."""
    first = _first(error)
    path = [str(part) for part in first["loc"]]
    name = ".".join(path)
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if first["type"] == "extra_forbidden":
        valid = _keys_beside(root, path)
        near = difflib.get_close_matches(path[-1], valid, n=1, cutoff=0.4)
        hint = f"did you mean `{near[0]}`?" if near else f"valid keys: {', '.join(valid)}"
        return f"unknown key `{name}`; {hint}{more}"
    if first["type"] == "missing":
        return f"`{name}` is missing{more}"
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error":
        return message + more
    return f"`{name}` is {first['input']!r}: {message[0].lower()}{message[1:]}{more}"


def _keys_beside(root: type[BaseModel], path: list[str]) -> list[str]:
    model = root
    for part in path[:-1]:
        annotation = model.model_fields[part].annotation
        found = [kind for kind in (annotation, *get_args(annotation)) if _is_section(kind)]
        if not found:
            return []
        model = found[0]  # of `Section | None` too
    return sorted(model.model_fields)


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
