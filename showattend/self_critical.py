"""Self-critical sequence training (Rennie et al. 2017, arXiv 1612.00563): captions are drawn from
the model, and those that score above what it would otherwise say become likelier.

    dL = -(r(w) - b) d log p(w | a),    w ~ p(w | a)

Words are drawn and told in the same mode (without dropout) and from the same distribution: what a
caption may not hold has no probability in either. tests/test_self_critical.py compares the estimate
with the exact gradient over all captions.
"""

import torch
from torch import Tensor

from showattend.attention import Choice, argmax, straight_through
from showattend.decoder import Decoder, Scene, take
from showattend.vocabulary import END, PAD, START, UNKNOWN

#: Never drawn; nor is the end mark as the first word: as in `search`.
_FORBIDDEN = [PAD, START, UNKNOWN]
#: Images whose captions have all ended are left behind when no more than this share goes on.
_WORTH_DROPPING = 0.8


@torch.no_grad()
def draw(
    decoder: Decoder,
    scene: Scene,
    captions: int,
    max_words: int,
    *,
    temperature: float = 1.0,
    greedy: bool = False,
) -> Tensor:
    """K captions an image from the model's distribution, or its likeliest words one by one.

    Args:
        max_words: a caption that has not ended by then is cut.
        temperature: divides the logits: below 1, likely words are drawn more often than they are
            likely, and those that label smoothing has made not quite impossible hardly ever.

    Returns:
        Word ids and the end mark, then PAD, (B, K, T); a caption that was cut has no mark.
    """
    state = decoder.start(scene, captions)
    images, device = len(scene.grid_BPC), scene.grid_BPC.device
    words_BKT = torch.full((images, captions, max_words), PAD, device=device)
    living_B = torch.arange(images, device=device)
    last_BK = torch.full((images, captions), START, device=device)
    ended_BK = torch.zeros_like(last_BK, dtype=torch.bool)
    for t in range(max_words):
        step = decoder.step(scene, state, last_BK)
        state = step.state
        allowed_BKV = _allowed(step.logits_BKV, first=t == 0)
        if greedy:
            last_BK = allowed_BKV.argmax(dim=-1)
        else:
            chances_NV = (allowed_BKV / temperature).softmax(dim=-1).flatten(0, 1)
            last_BK = torch.multinomial(chances_NV, 1).view(last_BK.shape)
        words_BKT[living_B, :, t] = last_BK.masked_fill(ended_BK, PAD)
        ended_BK = ended_BK | (last_BK == END)
        if bool(ended_BK.all()):
            return words_BKT[:, :, : t + 1]
        going = (~ended_BK).any(dim=1).nonzero().squeeze(1)
        if len(going) <= _WORTH_DROPPING * len(living_B):
            scene, state = scene.select(going), state.select(going)
            living_B, last_BK, ended_BK = living_B[going], last_BK[going], ended_BK[going]
    return words_BKT


def _allowed(logits_XV: Tensor, *, first: bool) -> Tensor:
    forbidden = [*_FORBIDDEN, END] if first else _FORBIDDEN
    logits_XV = logits_XV.clone()
    logits_XV[..., forbidden] = -torch.inf
    return logits_XV


def without_marks(words_BKT: Tensor) -> list[list[list[int]]]:
    """The captions as lists of ids."""
    return [
        [[index for index in ids if index not in (END, PAD)] for ids in captions]
        for captions in words_BKT.tolist()
    ]


def log_probs(
    decoder: Decoder, scene: Scene, words_BKT: Tensor, *, temperature: float = 1.0
) -> Tensor:
    """log p of every word that was drawn, with gradients, (B, K, T); 0 where none stands.

    ``temperature`` is that of the drawing. Hard attention looks at its likeliest cell, as when
    drawing, and gradients pass through.
    """
    choose: Choice = straight_through if decoder.own_choice is argmax else decoder.own_choice
    # `teach` wants images and captions with the longest first.
    length_BK = (words_BKT != PAD).sum(dim=-1)
    images_B = length_BK.amax(dim=1).argsort(descending=True)
    captions_BK = length_BK[images_B].argsort(dim=1, descending=True)
    taught = decoder.teach(
        scene.select(images_B), take(words_BKT[images_B], captions_BK), choose=choose
    )
    firsts = length_BK.numel()  # rows are ordered by position, and every caption has a first word
    logits_NV = torch.cat(
        [
            _allowed(taught.logits_NV[:firsts], first=True),
            _allowed(taught.logits_NV[firsts:], first=False),
        ]
    )
    log_prob_NV = (logits_NV / temperature).log_softmax(dim=-1)
    log_prob_N = log_prob_NV.gather(1, taught.targets_N.unsqueeze(1)).squeeze(1)
    log_prob_BKT = taught.place(log_prob_N)
    return take(log_prob_BKT, captions_BK.argsort(dim=1))[images_B.argsort()]


def policy_loss(log_prob_BKT: Tensor, reward_BK: Tensor, baseline_BK: Tensor) -> Tensor:
    """Its gradient, a mean over captions, is what counts; its value means little."""
    return -((reward_BK - baseline_BK) * log_prob_BKT.sum(dim=-1)).mean()


def leave_one_out(reward_BK: Tensor) -> Tensor:
    """The mean reward of an image's other captions (Kool et al. 2019), (B, K); K of 2 or more."""
    return (reward_BK.sum(dim=1, keepdim=True) - reward_BK) / (reward_BK.shape[1] - 1)
