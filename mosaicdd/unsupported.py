"""The one exception for what mosaicdd cannot do, as against what is wrong."""


class Unsupported(ValueError):  # noqa: N818 - no fault of anybody: what it says is that there is no way
    """What was asked for is sound, and mosaicdd, or what was chosen of it, cannot do it.

    The message says what can do it, where anything can. A program that tries one way after another, as a
    network and then ``"exact"``, catches this, and leaves values that are wrong (`ValueError`) and arguments of
    the wrong kind (`TypeError`) to those who gave them.
    """
