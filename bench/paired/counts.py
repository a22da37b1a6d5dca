"""Counts under callgrind, by `bench/golden`'s own means."""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

from .errors import SetupError, not_built
from .trial import TrialFailed

GOLDEN = Path(__file__).resolve().parent.parent / "golden"


def _golden():
    name = "loam_golden"
    if name not in sys.modules:
        loader = importlib.machinery.SourceFileLoader(name, str(GOLDEN))
        module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
        loader.exec_module(module)
        sys.modules[name] = module
    return sys.modules[name]


def of_case(probe, case, allocator):
    """{function: {"instructions": ...}} of one case; raises TrialFailed if the case does not
    run."""
    golden = _golden()
    if not golden.has_callgrind():
        raise TrialFailed("valgrind is not installed (Debian package valgrind)")
    if not probe.exists():
        raise SetupError(not_built(probe))
    try:
        return golden.count_case(allocator.path, probe, case, allocator.environment)
    except golden.GoldenError as error:
        raise TrialFailed(str(error)) from None
