from __future__ import annotations

import pytest

from everyturn.wire.preset import Preset, target_of


def test_a_target_is_its_preset_without_narrowing() -> None:
    """A plain target has the facts of its preset, under the name that a client asks for."""
    preset = Preset(name="p", title="P", base_url="http://127.0.0.1:9/v1", tags="split")

    target = target_of(preset, name="m")

    assert (target.name, target.upstream_model, target.tags) == ("m", "m", "split")
    assert target.base_url == preset.base_url
    assert target_of(preset, name="m", base_url="http://127.0.0.1:8/v1").base_url.endswith("8/v1")


def test_a_target_needs_an_address() -> None:
    """A preset without a base URL of its own needs one from the operator."""
    with pytest.raises(ValueError, match="no base_url of its own"):
        target_of(Preset(name="p", title="P"), name="m")
