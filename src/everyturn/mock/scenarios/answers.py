"""Ordinary answers, and the parts of an answer that get lost on the way."""

from __future__ import annotations

from typing import Final

from everyturn.mock.scenario import Scenario
from everyturn.mock.speech import Speech

SCENARIOS: Final = (
    Scenario(name="plain", title="An ordinary answer.", preset="openai-chat", play=Speech()),
)
