"""Caption photographs and see where the model looked for every word.

Data flows one way: photograph -> grid -> attention -> words -> score or picture.

Shape legend, for the suffixes of tensor names in the whole package:
B images, K captions (or beams) of one image, N rows, P grid cells or regions, C channels of each,
T words, V vocabulary, U different words of a batch, E word embedding, D LSTM, G its four gates,
A attention, Q query, S side of the model's square, L layers, H heads.
"""

__version__ = "0.1.0"
__all__ = ["Caption", "CaptionModel", "load"]


def __getattr__(name: str) -> object:
    # PEP 562: torch takes seconds to import, and `showattend --help` must not wait for it.
    if name in __all__:
        from showattend import predict

        return getattr(predict, name)
    raise AttributeError(f"module 'showattend' has no attribute {name!r}")
