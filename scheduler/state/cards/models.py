"""Which models of cards a pod may have, by their codes (`CardColumns.model_code`). Pure.

A code is never reused, even if no node announces its name any more: waiting pods, weights, rows of the page and columns
of rules are kept by code, and one that missed a reuse would leave a pod waiting. A limit on names would reject other
nodes' models. So a faulty node agent can add names without limit, and only the models that a pod names are looked up.
"""

from collections.abc import Mapping

import numpy as np

from scheduler.pods.gpu_request import Selection
from scheduler.state.columns.arrays import BoolArray


def accepted_codes(asked: Selection, codes: Mapping[str, int]) -> BoolArray:
    """bool[models + 2], by code: the first is of no card, the last stands for codes that come later.

    codes: of each model, 1 and so on. Of a model that comes later nobody knows the name: it is taken by who wants none
    in particular.
    """
    found = np.full(2 + len(codes), not asked.wanted)
    for name in asked.wanted | asked.excluded:
        if (code := codes.get(name)) is not None:
            found[code] = asked.accepts(name)
    found[0] = False
    return found
