"""JSON without what lies deeper than anything that the programs read. Pure.

`metadata.managedFields` of an object is free JSON, which who may change the object may nest as deep as the API server
reads: 10,000 levels. Decoders go down by recursion, to about 1,000, even through fields that nobody wants. An object
that they cannot read would be one that nobody sees, with what it holds.
Source: Go, encoding/json, maxNestingDepth; apimachinery, managedfields: fields that no schema knows are kept.
"""

from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

# Of what is read, the deepest are label selectors in the affinity of a pod, in an item of a list: at 12 levels.
MOST_LEVELS: Final = 100


def decoded(decode: Callable[[bytes], T], text: bytes) -> T:
    """Result of `decode` for the JSON, at any depth. Raises as `decode` does."""
    try:
        return decode(text)
    except RecursionError:
        return decode(shallow(bytes(text)))


def shallow(text: bytes) -> bytes:
    """JSON with every object and array at a deeper level than MOST_LEVELS emptied.

    In time linear in the text, 10 ms per MB. Text that is no JSON becomes another that is none, or is.
    """
    import numpy as np  # noqa: PLC0415 - the device plugin has no other use for it, and almost never this one

    # Of the same length, and every quote in it begins or ends a string.
    plain = np.frombuffer(text.replace(rb"\\", b"  ").replace(rb"\"", b"  "), dtype=np.uint8)
    outside = ~np.logical_xor.accumulate(plain == ord('"'))
    opens = ((plain == ord("{")) | (plain == ord("["))) & outside
    closes = ((plain == ord("}")) | (plain == ord("]"))) & outside
    level = np.cumsum(opens.astype(np.int8) - closes, dtype=np.int32)
    kept = (level <= MOST_LEVELS) | (opens & (level == MOST_LEVELS + 1))
    return bytes(np.frombuffer(text, dtype=np.uint8)[kept])
