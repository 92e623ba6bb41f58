"""Card models that a pod accepts, by their codes (`CardColumns.model_code`). Pure.

A code is never reused, even after the last node with its name is gone: waiting pods, weights, rows of the page and
columns of rules are kept by code, and one that missed a reuse would leave a pod waiting. A limit on names would reject
other nodes' models. So a faulty node agent can add names without limit, and only the models that a pod names are looked
up.
"""

from collections.abc import Mapping

import numpy as np

from scheduler.pods.gpu_request import Selection
from scheduler.state.columns.arrays import BoolArray


def accepted_codes(asked: Selection, codes: Mapping[str, int]) -> BoolArray:
    """bool[models + 2], by code: the first stands for no card, the last for future codes.

    codes: of each model, from 1. The name of a future model is unknown: only pods without model requirements accept it.
    """
    found = np.full(2 + len(codes), not asked.wanted)
    for name in asked.wanted | asked.excluded:
        if (code := codes.get(name)) is not None:
            found[code] = asked.accepts(name)
    found[0] = False
    return found
