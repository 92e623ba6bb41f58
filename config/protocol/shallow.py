"""Removes the parts of JSON that are nested deeper than anything the programs read. Pure.

`metadata.managedFields` of an object is free JSON. Anyone who can change the object can nest it as deep as the API
server permits: 10,000 levels. Decoders recurse, and fail at about 1,000 levels, even in unused fields. An object that
they cannot read would be invisible to the programs, and so would the resources that it holds.
Source: Go, encoding/json, maxNestingDepth; apimachinery, managedfields: fields that no schema knows are kept.
"""

from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

# The deepest field that is read is a label selector in the affinity of a pod, in an item of a list: at 12 levels.
MOST_LEVELS: Final = 100


def decoded(decode: Callable[[bytes], T], text: bytes) -> T:
    """Return the result of `decode` for the JSON, at any depth. Raises the errors of `decode`."""
    try:
        return decode(text)
    except RecursionError:
        return decode(shallow(bytes(text)))


def shallow(text: bytes) -> bytes:
    """Return the JSON with every object and array deeper than MOST_LEVELS emptied.

    Takes time linear in the length of the text, 10 ms per MB. If the input is invalid JSON, the result may be valid.
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
