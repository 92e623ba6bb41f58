"""Whether unit tests see a change that no comparison with kube-scheduler can: about cards, above all."""

import io
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import Final

import pytest
from hypothesis import Phase, settings

from tests.differential.executed import at_most
from tests.support.repository import ROOT

_PROFILE: Final = "mutations"
# Unchanged, those of one module take ten seconds.
_MOST_CPU_S: Final = 120.0
# The same examples each time; one that fails is enough, and is nobody's concern later.
settings.register_profile(
    _PROFILE, derandomize=True, database=None, phases=(Phase.explicit, Phase.generate), report_multiple_bugs=False
)


def fail(paths: Sequence[str]) -> bool:
    """Whether one of the tests in these files fails, in this process. paths: below tests/."""
    arguments = ["-x", "-s", "-n0", "--assert=plain", "-p", "no:cacheprovider", f"--hypothesis-profile={_PROFILE}"]
    told, profile = io.StringIO(), settings.get_current_profile_name()
    try:
        with redirect_stdout(told), redirect_stderr(told), at_most(_MOST_CPU_S):
            code = pytest.main([*arguments, f"--rootdir={ROOT}", *(str(ROOT / "tests" / path) for path in paths)])
    finally:
        settings.load_profile(profile)
    if code not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:
        raise RuntimeError(told.getvalue())
    return code is not pytest.ExitCode.OK
