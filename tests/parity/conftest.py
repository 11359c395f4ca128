"""Loads the ops library that TRAINSUITE_OPS_LIBRARY names."""

import os
from types import ModuleType

import pytest
import torch

_LIBRARY = os.environ.get("TRAINSUITE_OPS_LIBRARY", "")
if not os.path.isfile(_LIBRARY):
    pytest.exit(
        f"TRAINSUITE_OPS_LIBRARY='{_LIBRARY}' is no file: set it to the built libtrainsuite_ops.so",
        returncode=2,
    )
torch.ops.load_library(_LIBRARY)


@pytest.fixture(scope="session")
def ops() -> ModuleType:
    """The namespace of trainsuite's torch ops."""
    return torch.ops.trainsuite
