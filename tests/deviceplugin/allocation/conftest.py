from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # A unix socket's path has at most 107 characters.
    return tmp_path_factory.mktemp("g")
