# What type checkers see: __init__.py loads these on first use.
from showattend.predict import Caption as Caption
from showattend.predict import CaptionModel as CaptionModel
from showattend.predict import load as load

__version__: str
