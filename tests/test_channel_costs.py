"""What channel attention costs, counted by hand."""

from typing import Any

import pytest
import torch
from conftest import load_script
from torch import nn

from showattend.channel_attention import channel_attention
from showattend.encoder import EncoderError

script: Any = load_script("channel_costs")

TINY = "test_efficientnet"


@pytest.mark.parametrize(
    ("kind", "weights", "flops", "elementwise"),
    [
        # Layers 8 -> 2 -> 8; a mean and a product of each of the 8 x 16 numbers.
        ("se", 2 * 16, 2 * 2 * 16, 2 * 128),
        # A kernel of 3 runs over 8 channels.
        ("eca", 3, 2 * 3 * 8, 2 * 128),
        # Both layers twice, and 2 x 7 x 7 weights at every one of the 16 cells.
        ("cbam", 2 * 16 + 98, 2 * 4 * 16 + 2 * 98 * 16, 6 * 128),
    ],
)
@torch.inference_mode()
def test_costs_by_hand(kind: str, weights: int, flops: int, elementwise: int) -> None:
    """Behind a convolution of 3 to 8 channels over 4x4 cells: 32 weights, 2 x 3 x 8 x 16 FLOPs."""
    plain = nn.Sequential(nn.Conv2d(3, 8, kernel_size=1))
    gated = nn.Sequential(*plain, channel_attention(kind, 8, reduction=4))
    pixels_13SS = torch.rand(1, 3, 4, 4)
    without, with_ = (script.costs_of(network, pixels_13SS) for network in (plain, gated))
    assert without == script.Costs(32, 768, 0)
    assert with_ == script.Costs(32 + weights, 768 + flops, elementwise)
    assert not any(module._forward_pre_hooks for module in gated.modules())
    cells = script.row(without, with_)
    assert cells["weights"].text() == str(weights)
    assert cells["% of weights"].value == pytest.approx(100 * weights / 32)
    assert cells["MFLOP"].value == pytest.approx(flops / 1e6)
    assert cells["% of FLOPs"].value == pytest.approx(100 * flops / 768)
    assert cells["elementwise, M"].value == pytest.approx(elementwise / 1e6)


def test_the_papers_count_of_weights() -> None:
    """Hu et al., section 3: SE in every block of ResNet-50, reduction 16, adds 2,514,944."""
    name, stages = script.read_encoder(script.ENCODERS[1])
    with torch.device("meta"), torch.inference_mode():
        pixels_13SS = torch.empty(1, 3, 64, 64)
        without, with_ = (
            script.costs_of(script.build(name, settings, 64), pixels_13SS)
            for settings in (None, script.places("se", stages)["in all blocks"])
        )
    assert script.row(without, with_)["weights"].text() == "2,514,944"
    assert without.weights == 25_557_032 - 2_049_000  # torchvision's own count, less the classifier


def test_the_default_encoders_stages_are_all_that_there_are() -> None:
    name, stages = script.read_encoder(script.ENCODERS[0])
    with torch.device("meta"):
        script.build(name, script.places("eca", stages)["in all blocks"], 64)
        with pytest.raises(EncoderError, match=f"there is no stage {len(stages)};"):
            script.build(name, script.places("eca", (len(stages),))["in all blocks"], 64)


def test_a_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    script.main(["--encoder", f"{TINY}=1,2", "--size", "32", "--repeats", "2"])
    heading, rule, *rows = capsys.readouterr().out.split("\n\n")[0].splitlines()
    assert heading.startswith(f"| {TINY} | weights | % of weights | MFLOP | % of FLOPs |")
    assert heading.endswith("| ms without | ms with | % of time |")
    assert rule.count("---:") == 8
    places = ("in all blocks", "after all stages", "after the last stage")
    assert [row.split(" | ")[0] for row in rows] == [
        f"| {kind}, {place}" for kind in ("se", "eca", "cbam") for place in places
    ]


def test_nothing_is_timed_if_not_wanted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "milliseconds", None)
    script.main(["--encoder", f"{TINY}=1", "--size", "32", "--repeats", "0"])
    told = capsys.readouterr().out
    assert "elementwise, M |\n" in told and "Times" not in told


def test_with_and_without_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """After one pair to warm up: medians of 10, 20, 40 and of 11, 30, 80; quotients 1.1, 1.5, 2."""
    plain, gated = nn.Identity(), nn.Identity()
    taken = {plain: iter([99.0, 10, 20, 40]), gated: iter([1.0, 11, 30, 80])}
    turns: list[nn.Module] = []

    def milliseconds(network: nn.Module, _: torch.Tensor) -> float:
        turns.append(network)
        return next(taken[network])

    monkeypatch.setattr(script, "milliseconds", milliseconds)
    cells = script.times(plain, gated, torch.empty(0), 3)
    assert turns == [plain, gated] * 4
    assert [cell.value for cell in cells.values()] == pytest.approx([20, 30, 50])


@pytest.mark.parametrize("text", ["resnet50", "resnet50=", "=1", "resnet50=1,x", "resnet50=-1"])
def test_an_encoder_comes_with_its_stages(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        script.main(["--encoder", text])
    assert f"{text!r}: expected NAME=STAGES, such as torchvision" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--encoder", "resnett50=1"], "encoder.name resnett50: unknown CNN"),
        (["--encoder", f"{TINY}=9"], "there is no stage 9"),
        (["--encoder", f"{TINY}=1", "--size", "0"], "does not turn 0x0 pixels into a grid"),
    ],
)
def test_mistakes_are_one_line(words: list[str], said: str) -> None:
    with pytest.raises(EncoderError) as caught:
        script.main([*words, "--repeats", "0"])
    assert said in str(caught.value) and "\n" not in str(caught.value)
