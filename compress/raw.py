from .codec import Codec


class Raw(Codec, name="raw", lossless=True, identity=True):
    """The values as they are, every dtype: the baseline of every comparison and the fallback where compression would not pay."""
