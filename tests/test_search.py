"""Choosing words, against every sentence there is on a vocabulary of three words."""

import math
from collections import Counter
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
from conftest import MakeCaptioner
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from showattend.captioner import Captioner
from showattend.config import SearchSettings
from showattend.decoder import Scene
from showattend.search import Caption, Regions, attend, beam_search, pick_words
from showattend.steering import Steering
from showattend.tokenizer import ptb_tokens
from showattend.vocabulary import END, PAD, START, UNKNOWN, Vocabulary

some = settings(max_examples=25, deadline=None)  # a busy machine is no failure

WORDS = Vocabulary(["dog", "cat", "runs"])
IDS = (4, 5, 6)
Table: TypeAlias = dict[tuple[int, ...], float]

seeds = st.integers(0, 10**6)


def captioner_of(make_captioner: MakeCaptioner, seed: int = 0, scale: float = 3.0) -> Captioner:
    return make_captioner(seed, words=len(WORDS), scale=scale)


def scene_of(captioner: Captioner, images: int = 1, seed: int = 0) -> Scene:
    generator = torch.Generator().manual_seed(seed)
    with torch.inference_mode():
        return captioner.look(torch.randn(images, 6, 5, generator=generator))


@torch.inference_mode()
def log_probs_of(captioner: Captioner, scene: Scene, max_words: int) -> tuple[Table, Table]:
    """Of every sentence of 1 to ``max_words`` words: log p with the end mark, and before it."""
    ended, open_ended = Table(), Table({(): 0.0})
    prefixes: list[tuple[int, ...]] = [()]
    state = captioner.decoder.start(scene, 1)
    for length in range(max_words + 1):
        last_BK = torch.tensor([[words[-1] if words else START for words in prefixes]])
        step = captioner.decoder.step(scene, state, last_BK)
        log_probs_KV = step.logits_BKV[0].double().log_softmax(dim=-1).tolist()
        for words, log_probs in zip(prefixes, log_probs_KV, strict=True):
            if words:
                ended[words] = open_ended[words] + log_probs[END]
            if length < max_words:
                open_ended |= {(*words, word): open_ended[words] + log_probs[word] for word in IDS}
        parents = torch.arange(len(prefixes)).repeat_interleave(len(IDS))
        state = step.state.select(slice(None), parents)
        prefixes = [(*words, word) for words in prefixes for word in IDS]
    return ended, open_ended


def ids(caption: Caption) -> tuple[int, ...]:
    return tuple(WORDS.encode(" ".join(caption.words)))


def rank(log_prob: float, words: int, penalty: float) -> float:
    return float(log_prob / (words + 1) ** penalty)


def assert_same(found: list[Caption], expected: list[Caption]) -> None:
    assert [caption.words for caption in found] == [caption.words for caption in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-4)
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-5)
        np.testing.assert_allclose(one.alpha, other.alpha, atol=1e-5)


# Beam search


@some
@given(seed=seeds, max_words=st.integers(1, 3), length_penalty=st.sampled_from([0.0, 0.7, 2.0]))
def test_a_beam_wide_enough_ranks_all_sentences(
    make_captioner: MakeCaptioner, seed: int, max_words: int, length_penalty: float
) -> None:
    """With as many beams as sentences nothing is pruned and no rule stops early."""
    captioner = captioner_of(make_captioner, seed)
    scene = scene_of(captioner, seed=seed)
    exact, _ = log_probs_of(captioner, scene, max_words)
    search = SearchSettings(beam_size=39, max_words=max_words, length_penalty=length_penalty)
    (found,) = beam_search(captioner, WORDS, scene, search)
    assert {ids(caption) for caption in found} == set(exact)
    assert len(found) == len(exact)
    for caption in found:
        assert caption.log_prob == pytest.approx(exact[ids(caption)], abs=1e-4)
    ranks = [rank(caption.log_prob, len(caption.words), length_penalty) for caption in found]
    assert ranks == sorted(ranks, reverse=True)


def plain_beam_search(
    exact: Table,
    prefix: Table,
    search: SearchSettings,
    *,
    stops_early: bool,
    begin: tuple[int, ...] = (),
) -> list[tuple[int, ...]]:
    """The documented search on tables of log-probabilities, one caption after the other."""

    def ranked(words: tuple[int, ...]) -> float:
        return rank(exact[words], len(words), search.length_penalty)

    live: list[tuple[int, ...]] = [begin]
    ended: list[tuple[int, ...]] = []
    for length in range(len(begin) + 1, search.max_words + 1):
        ended = sorted([*ended, *(w for w in live if w)], key=ranked, reverse=True)
        ended = ended[: search.beam_size]
        longer = [(*words, word) for words in live for word in IDS]
        live = sorted(longer, key=lambda words: -prefix[words])[: search.beam_size]
        bar = rank(prefix[live[0]], length, search.length_penalty)
        if stops_early and len(ended) == search.beam_size and ranked(ended[-1]) >= bar:
            return ended
    return sorted([*ended, *live], key=ranked, reverse=True)[: search.beam_size]


@some
@given(
    seed=seeds,
    beam_size=st.integers(2, 5),
    max_words=st.integers(1, 4),
    length_penalty=st.sampled_from([0.0, 0.7, 2.0]),
)
def test_a_narrow_beam_is_the_documented_search(
    make_captioner: MakeCaptioner,
    seed: int,
    beam_size: int,
    max_words: int,
    length_penalty: float,
) -> None:
    captioner = captioner_of(make_captioner, seed)
    scene = scene_of(captioner, seed=seed)
    exact, prefix = log_probs_of(captioner, scene, 4)
    search = SearchSettings(beam_size=beam_size, max_words=max_words, length_penalty=length_penalty)
    (found,) = beam_search(captioner, WORDS, scene, search)
    expected = plain_beam_search(exact, prefix, search, stops_early=True)
    assert [ids(caption) for caption in found] == expected
    if length_penalty == 0.0:  # where the rule loses nothing
        assert expected == plain_beam_search(exact, prefix, search, stops_early=False)


begins = st.lists(st.sampled_from(IDS), min_size=1, max_size=3).map(tuple)


@some
@given(
    seed=seeds,
    begin=begins,
    beam_size=st.integers(2, 5),
    length_penalty=st.sampled_from([0.0, 0.7, 2.0]),
)
def test_given_words_are_gone_on_from_by_the_documented_search(
    make_captioner: MakeCaptioner,
    seed: int,
    begin: tuple[int, ...],
    beam_size: int,
    length_penalty: float,
) -> None:
    """Up to the longest beginning that there may be, with log p of all words."""
    captioner = captioner_of(make_captioner, seed)
    scene = scene_of(captioner, seed=seed)
    exact, prefix = log_probs_of(captioner, scene, 4)
    search = SearchSettings(beam_size=beam_size, max_words=4, length_penalty=length_penalty)
    (found,) = beam_search(captioner, WORDS, scene, search, Steering(begin=begin))
    expected = plain_beam_search(exact, prefix, search, stops_early=True, begin=begin)
    assert [ids(caption) for caption in found] == expected
    for caption in found:
        assert caption.log_prob == pytest.approx(exact[ids(caption)], abs=1e-4)
        assert caption.weights.shape == (len(caption.words), 6)


@some
@given(seed=seeds, begin=begins)
def test_given_words_are_gone_on_from_greedily(
    make_captioner: MakeCaptioner, seed: int, begin: tuple[int, ...]
) -> None:
    captioner = captioner_of(make_captioner, seed)
    scene = scene_of(captioner, seed=seed)
    exact, prefix = log_probs_of(captioner, scene, 4)
    words = begin
    while len(words) < 4:
        best = max(((*words, word) for word in IDS), key=lambda longer: prefix[longer])
        if exact[words] >= prefix[best]:
            break
        words = best
    search = SearchSettings(beam_size=1, max_words=4)
    ((caption,),) = beam_search(captioner, WORDS, scene, search, Steering(begin=begin))
    assert ids(caption) == words
    assert caption.log_prob == pytest.approx(exact[words], abs=1e-4)


def test_samples_begin_with_the_given_words(make_captioner: MakeCaptioner) -> None:
    captioner = captioner_of(make_captioner, scale=1.0)
    drawn = pick_words(
        captioner,
        WORDS,
        scene_of(captioner, 8),
        max_words=6,
        temperature=2.0,
        generator=torch.Generator().manual_seed(0),
        steering=Steering(begin=IDS[:2]),
    )
    assert all(caption.words[:2] == ("dog", "cat") for caption in drawn)
    assert len({caption.words for caption in drawn}) > 1


@pytest.mark.parametrize("beam_size", [1, 2, 5])
def test_images_together_are_images_one_at_a_time(
    make_captioner: MakeCaptioner, beam_size: int
) -> None:
    """They end at different lengths, and those that are done leave the batch."""
    captioner = captioner_of(make_captioner, 2)
    scene = scene_of(captioner, 12)
    search = SearchSettings(beam_size=beam_size, max_words=8)
    together = beam_search(captioner, WORDS, scene, search)
    assert len({len(captions[0].words) for captions in together}) > 1
    for b, captions in enumerate(together):
        (alone,) = beam_search(captioner, WORDS, scene.select(slice(b, b + 1)), search)
        assert_same(captions, alone)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_caption_comes_back_even_if_none_would_end(
    make_captioner: MakeCaptioner, beam_size: int
) -> None:
    captioner = captioner_of(make_captioner)
    with torch.no_grad():
        captioner.decoder.word_logits.bias[END] = -1e6
    scene = scene_of(captioner, 2)
    search = SearchSettings(beam_size=beam_size, max_words=4, length_penalty=0.0)
    for captions in beam_search(captioner, WORDS, scene, search):
        assert captions
        assert all(1 <= len(caption.words) <= 4 for caption in captions)
        assert all(caption.log_prob < -1e5 for caption in captions)  # the mark's own share


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_caption_has_words_even_if_the_end_is_all_but_sure(
    make_captioner: MakeCaptioner, beam_size: int
) -> None:
    captioner = captioner_of(make_captioner)
    with torch.no_grad():
        captioner.decoder.word_logits.bias[END] = 50.0
    search = SearchSettings(beam_size=beam_size, max_words=4)
    for captions in beam_search(captioner, WORDS, scene_of(captioner, 2), search):
        assert len(captions[0].words) == 1


@pytest.mark.parametrize("beam_size", [1, 3, 8])  # 8: more beams than words
def test_specials_are_never_written(make_captioner: MakeCaptioner, beam_size: int) -> None:
    captioner = captioner_of(make_captioner)
    with torch.no_grad():
        captioner.decoder.word_logits.bias[[PAD, START, UNKNOWN]] = 50.0
    scene = scene_of(captioner, 2)
    search = SearchSettings(beam_size=beam_size, max_words=4)
    found = [c for captions in beam_search(captioner, WORDS, scene, search) for c in captions]
    drawn = pick_words(captioner, WORDS, scene, max_words=4, temperature=1.0)
    for caption in [*found, *drawn]:
        assert set(caption.words) <= {"dog", "cat", "runs"}
        assert math.isfinite(caption.log_prob)


# Greedy search and sampling


@some
@given(seed=seeds, max_words=st.integers(1, 4))
def test_greedy_takes_the_most_probable_word_each_time(
    make_captioner: MakeCaptioner, seed: int, max_words: int
) -> None:
    captioner = captioner_of(make_captioner, seed)
    scene = scene_of(captioner, seed=seed)
    exact, prefix = log_probs_of(captioner, scene, 4)
    words: tuple[int, ...] = ()
    while len(words) < max_words:
        best = max(((*words, word) for word in IDS), key=lambda longer: prefix[longer])
        if words and exact[words] >= prefix[best]:
            break
        words = best
    (caption,) = pick_words(captioner, WORDS, scene, max_words=max_words)
    assert ids(caption) == words
    assert caption.log_prob == pytest.approx(exact[words], abs=1e-4)
    search = SearchSettings(beam_size=1, max_words=max_words)
    assert_same(beam_search(captioner, WORDS, scene, search)[0], [caption])


def chi_square(counts: Counter[tuple[int, ...]], probs: Table) -> float:
    """How many standard deviations Pearson's statistic lies above its mean, rare ones pooled."""
    draws = sum(counts.values())
    rare = [outcome for outcome in probs if draws * probs[outcome] < 10]
    cells = [
        (counts[outcome], draws * prob) for outcome, prob in probs.items() if draws * prob >= 10
    ]
    expected = draws * sum(probs[outcome] for outcome in rare)
    if expected >= 10:
        cells.append((sum(counts[outcome] for outcome in rare), expected))
    statistic = sum((seen - wanted) ** 2 / wanted for seen, wanted in cells)
    freedom = len(cells) - 1
    return (statistic - freedom) / math.sqrt(2 * freedom)


def sampling_probs(captioner: Captioner, scene: Scene, temperature: float, top_p: float) -> Table:
    """The distribution that two-word sampling should have, from the exact log-probabilities."""
    exact, prefix = log_probs_of(captioner, scene, 2)
    found: Table = {}

    def allowed(words: tuple[int, ...]) -> Table:
        """What may follow, the end being the words themselves, tempered and cut to the nucleus."""
        follow = {(*words, word): prefix[(*words, word)] for word in IDS}
        if words:
            follow[words] = exact[words]
        tempered = {key: math.exp(value / temperature) for key, value in follow.items()}
        # log p of the shared beginning cancels here
        total = sum(tempered.values())
        kept: Table = {}
        for key in sorted(tempered, key=lambda key: -tempered[key]):
            if kept and sum(kept.values()) >= top_p:
                break
            kept[key] = tempered[key] / total
        return {key: value / sum(kept.values()) for key, value in kept.items()}

    for first, prob in allowed(()).items():
        for second, then in allowed(first).items():
            found[second] = found.get(second, 0.0) + prob * then
    return found


@pytest.mark.parametrize(
    ("temperature", "top_p"), [(1.0, 1.0), (0.5, 1.0), (2.0, 1.0), (1.0, 0.6), (1.0, 0.0)]
)
def test_samples_follow_the_models_distribution(
    make_captioner: MakeCaptioner, temperature: float, top_p: float
) -> None:
    captioner = captioner_of(make_captioner, 4)
    one = scene_of(captioner, seed=4)
    probs = sampling_probs(captioner, one, temperature, top_p)
    assert sum(probs.values()) == pytest.approx(1.0)
    draws = 8_000
    many = one.select(torch.zeros(draws, dtype=torch.long))
    drawn = pick_words(
        captioner,
        WORDS,
        many,
        max_words=2,
        temperature=temperature,
        top_p=top_p,
        generator=torch.Generator().manual_seed(0),
    )
    counts = Counter(map(ids, drawn))
    assert set(counts) <= set(probs)
    if len(probs) == 1:
        assert top_p == 0.0  # only the most probable word is left
    else:
        assert chi_square(counts, probs) < 6.0  # six standard deviations: no seed needs choosing
    exact, _ = log_probs_of(captioner, one, 2)
    for caption in drawn[:50]:  # the model's own log-probability, at whatever temperature
        assert caption.log_prob == pytest.approx(exact[ids(caption)], abs=1e-4)


def test_the_bound_on_samples_would_notice(make_captioner: MakeCaptioner) -> None:
    """Samples of temperature 1 are no samples of temperature 0.9."""
    captioner = captioner_of(make_captioner, 3)
    one = scene_of(captioner, seed=3)
    many = one.select(torch.zeros(8_000, dtype=torch.long))
    generator = torch.Generator().manual_seed(0)
    drawn = pick_words(captioner, WORDS, many, max_words=2, temperature=1.0, generator=generator)
    assert chi_square(Counter(map(ids, drawn)), sampling_probs(captioner, one, 0.9, 1.0)) > 6.0


def test_the_same_generator_draws_the_same(make_captioner: MakeCaptioner) -> None:
    captioner = captioner_of(make_captioner, scale=1.0)
    scene = scene_of(captioner, 8)

    def draw(seed: int) -> list[tuple[str, ...]]:
        generator = torch.Generator().manual_seed(seed)
        drawn = pick_words(
            captioner, WORDS, scene, max_words=6, temperature=1.0, generator=generator
        )
        return [caption.words for caption in drawn]

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


# Attention and log-probability belong to the words


@some
@given(seed=seeds, how=st.sampled_from(["beam", "greedy", "sampled"]))
def test_captions_carry_their_own_words_attention(
    make_captioner: MakeCaptioner, seed: int, how: str
) -> None:
    """Made to say the same sentence, the model looks there and gives it that probability."""
    captioner = captioner_of(make_captioner, seed)
    with torch.no_grad():
        captioner.decoder.word_logits.bias[END] -= 3.0  # several words, so that beams change places
    scene = scene_of(captioner, 2, seed=seed)
    if how == "beam":
        found = beam_search(captioner, WORDS, scene, SearchSettings(beam_size=4, max_words=5))
        assert [len(captions) for captions in found] == [4, 4]
    else:
        temperature = 1.0 if how == "sampled" else 0.0
        drawn = pick_words(captioner, WORDS, scene, max_words=5, temperature=temperature)
        found = [[caption] for caption in drawn]
    for b, captions in enumerate(found):
        for caption in captions:
            said = attend(captioner, WORDS, scene.select(slice(b, b + 1)), caption.text)
            assert_same([caption], said)


def test_attending_gives_every_image_its_own(make_captioner: MakeCaptioner) -> None:
    captioner = captioner_of(make_captioner, 2)
    scene = scene_of(captioner, 3)
    said = attend(captioner, WORDS, scene, "A dog runs.")
    assert [caption.words for caption in said] == [("a", "dog", "runs")] * 3  # as given
    for b, caption in enumerate(said):
        assert caption.weights.shape == (3, 6)
        (alone,) = attend(captioner, WORDS, scene.select(slice(b, b + 1)), "a dog runs")
        assert_same([caption], [alone])
    exact, _ = log_probs_of(captioner, scene.select(slice(1)), 2)
    (known,) = attend(captioner, WORDS, scene.select(slice(1)), "dog runs")
    assert known.log_prob == pytest.approx(exact[4, 6], abs=1e-4)


def test_an_unknown_word_is_fed_as_the_unknown_word(make_captioner: MakeCaptioner) -> None:
    captioner = captioner_of(make_captioner, 2)
    scene = scene_of(captioner)
    (one,) = attend(captioner, WORDS, scene, "dog zebra cat")
    (other,) = attend(captioner, WORDS, scene, "dog unicorn cat")
    assert one.words == ("dog", "zebra", "cat")
    assert one.log_prob == other.log_prob
    assert np.array_equal(one.weights, other.weights)


@pytest.mark.parametrize("sentence", ["", "  ", "..."])
def test_a_sentence_without_words_is_refused(make_captioner: MakeCaptioner, sentence: str) -> None:
    captioner = captioner_of(make_captioner)
    with pytest.raises(ValueError, match="has no words; give a sentence such as") as caught:
        attend(captioner, WORDS, scene_of(captioner), sentence)
    assert "\n" not in str(caught.value)


def test_a_sentence_that_is_no_text_is_refused(make_captioner: MakeCaptioner) -> None:
    captioner = captioner_of(make_captioner)
    nothing: Any = None
    with pytest.raises(ValueError, match=r"^None: is no text; give a sentence such as 'a dog "):
        attend(captioner, WORDS, scene_of(captioner), nothing)


# Damage


@pytest.mark.parametrize("damage", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("how", ["beam", "greedy", "sampled", "attended"])
def test_weights_that_are_no_numbers_end_in_one_line(
    make_captioner: MakeCaptioner, damage: float, how: str
) -> None:
    captioner = captioner_of(make_captioner)
    scene = scene_of(captioner, 2)
    with torch.no_grad():
        captioner.decoder.word_logits.bias[END] = damage  # as -inf it lets no caption end
    with pytest.raises(ValueError, match=r"^the model's scores are not finite numbers: its "):
        if how == "attended":
            attend(captioner, WORDS, scene, "dog")
        elif how == "sampled":
            pick_words(captioner, WORDS, scene, max_words=2, temperature=1.0)
        else:
            beam_size = 1 if how == "greedy" else 3
            beam_search(captioner, WORDS, scene, SearchSettings(beam_size=beam_size, max_words=2))


@pytest.mark.parametrize("temperature", [-1.0, math.nan, math.inf])
def test_a_temperature_that_is_none_is_refused(
    make_captioner: MakeCaptioner, temperature: float
) -> None:
    captioner = captioner_of(make_captioner)
    with pytest.raises(ValueError, match=r"^temperature is \S+: expected 0 \(greedy\) or more$"):
        pick_words(captioner, WORDS, scene_of(captioner), max_words=2, temperature=temperature)


def test_weights_are_maps_of_the_grid_that_sum_to_one(make_captioner: MakeCaptioner) -> None:
    captioner = captioner_of(make_captioner, 2)
    scene = scene_of(captioner, 3)
    for captions in beam_search(captioner, WORDS, scene, SearchSettings(max_words=4)):
        for caption in captions:
            words = len(caption.words)
            assert caption.regions == Regions(height=2, width=3)
            assert caption.weights.shape == caption.alpha.shape == (words, 6)
            assert caption.weights.dtype == np.float32
            np.testing.assert_allclose(caption.weights.sum(axis=1), 1.0, rtol=1e-5)
            assert np.array_equal(caption.alpha, caption.weights)  # soft attention
            assert caption.heads is None
            assert caption.maps().shape == (words, 2, 3)
            assert caption.maps()[0, 1, 2] == caption.weights[0, 5]
            assert caption.head_maps().shape == (words, 1, 1, 2, 3)
            assert np.array_equal(caption.head_maps()[:, 0, 0], caption.alpha_maps())


def test_maps_of_heads_stand_layer_by_layer() -> None:
    """By hand: number 100 l + 10 h + p is the weight of cell p in head h of layer l."""
    heads_TLHP = np.add.outer(np.add.outer([0, 100], [0, 10, 20]), np.arange(6))[None]
    even_TP = np.full((1, 6), 1 / 6)
    caption = Caption(("dog",), -1.0, even_TP, even_TP, heads_TLHP, Regions(2, 3))
    assert caption.head_maps().shape == (1, 2, 3, 2, 3)
    assert caption.head_maps()[0, 1, 2].tolist() == [[120, 121, 122], [123, 124, 125]]


# The text


def test_a_caption_equals_itself_alone() -> None:
    one, other = caption_of("a dog"), caption_of("a dog")
    assert one == one and one != other
    assert {one, other, one} == {one, other}
    assert [one] == [one] and [one].index(one) == 0


def caption_of(words: str) -> Caption:
    spoken = tuple(words.split())
    nothing: Tensor = torch.zeros(len(spoken), 6)
    return Caption(spoken, 0.0, nothing.numpy(), nothing.numpy(), None, Regions(2, 3))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("a man 's dog is n't here", "a man's dog isn't here"),
        ("they 're sure i 'd say he 'll go", "they're sure i'd say he'll go"),
        ("'s", "'s"),
        ("rock 'n' roll of the '90s", "rock 'n' roll of the '90s"),
        ("awake 'til dawn", "awake 'til dawn"),
    ],
)
def test_text_joins_what_is_written_together(words: str, text: str) -> None:
    assert caption_of(words).text == text


@pytest.mark.parametrize(
    "said",
    [
        "A man's dog isn't here, they're gone and he'll say I'd've left.",
        "Two dogs' bowls: rock 'n' roll in the '90s!",
        "She can't, cannot and won't; it's a t-shirt at 3 o'clock",
    ],
)
def test_the_words_of_the_text_are_the_captions_words(said: str) -> None:
    """Scores are computed on the text, so joining must not change a word."""
    words = ptb_tokens(said)
    assert ptb_tokens(caption_of(" ".join(words)).text) == words


# Hard attention


@some
@given(seed=seeds, glimpse=st.sampled_from([1, 3]))
def test_a_hard_caption_was_written_from_the_cells_that_it_shows(
    make_captioner: MakeCaptioner, seed: int, glimpse: int
) -> None:
    """Beam, greedy and teacher forcing agree; weights are the likeliest cell's window."""
    captioner = make_captioner(seed, words=len(WORDS), scale=3.0, look="hard", glimpse=glimpse)
    scene = scene_of(captioner, seed=seed)
    search = SearchSettings(beam_size=3, max_words=4)
    (beam,) = beam_search(captioner, WORDS, scene, search)
    (greedy,) = pick_words(captioner, WORDS, scene, max_words=4)
    windows_PP = captioner.decoder.glimpse(torch.eye(6)).numpy()
    for caption in (*beam, greedy):
        np.testing.assert_allclose(caption.weights, windows_PP[caption.alpha.argmax(axis=1)])
        (told,) = attend(captioner, WORDS, scene, " ".join(caption.words))
        assert_same([caption], [told])


def test_sampled_cells_are_drawn_from_alpha(make_captioner: MakeCaptioner) -> None:
    """The first word's cell, over 4,000 searches at once: each share within 5 standard errors."""
    captioner = make_captioner(words=len(WORDS), scale=3.0, look="hard")
    one = scene_of(captioner)
    copies = 4000
    scene = one.select(torch.zeros(copies, dtype=torch.long))
    search = SearchSettings(beam_size=1, max_words=1, attention="sample")
    captions = [found[0] for found in beam_search(captioner, WORDS, scene, search)]
    alpha_P = captions[0].alpha[0]
    share_P = np.mean([caption.weights[0] for caption in captions], axis=0)
    assert (np.abs(share_P - alpha_P) <= 5 * np.sqrt(alpha_P * (1 - alpha_P) / copies)).all()
    assert (share_P > 0.01).sum() > 1


def test_how_to_look_can_be_told_whatever_the_model(make_captioner: MakeCaptioner) -> None:
    hard = make_captioner(words=len(WORDS), scale=3.0, look="hard")
    soft = make_captioner(words=len(WORDS), scale=3.0)
    scene = scene_of(soft)
    for beams in (1, 3):
        for attention, other in ((None, "expectation"), ("argmax", None)):
            of_soft, of_hard = (
                SearchSettings(beam_size=beams, max_words=4, attention=each)
                for each in (attention, other)
            )
            (expected,) = beam_search(soft, WORDS, scene, of_soft)
            (found,) = beam_search(hard, WORDS, scene, of_hard)
            assert_same(found, expected)
