"""The tested range and the single warning."""

import warnings

import pytest
import torch

from titan_core import compat


@pytest.fixture(autouse=True)
def _fresh_cache():
    compat.warn_if_untested.cache_clear()
    yield
    compat.warn_if_untested.cache_clear()


@pytest.mark.parametrize("version", ["2.11.0", "2.13.0+cpu", "2.13.0+cu126", "2.14.1", "2.14.0a0+git1234"])
def test_versions_in_the_range_are_tested(version):
    assert compat.untested_reason(version) is None


@pytest.mark.parametrize("version", ["2.10.1", "2.9.0+cu126", "2.15.0", "3.0.0", "1.13.1", "unknown"])
def test_versions_outside_name_themselves_and_the_range(version):
    reason = compat.untested_reason(version)
    assert reason is not None
    assert f"({version})" in reason
    assert "2.11 to 2.14" in reason


def test_the_warning_comes_once(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    with pytest.warns(compat.UntestedTorchWarning, match=r"2\.99\.0"):
        compat.warn_if_untested()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compat.warn_if_untested()


def test_a_tested_version_is_silent(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.13.0+cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compat.warn_if_untested()
