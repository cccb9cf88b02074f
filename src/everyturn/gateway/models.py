"""The models a gateway serves, and how `GET /v1/models` tells them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from everyturn.errors import ModelNotFound
from everyturn.presets.price import list_prices, price_list_version
from everyturn.transport.base import Timeouts, Transport
from everyturn.wire.preset import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One configured model."""

    target: Target
    api_key: str | None = field(repr=False)
    timeouts: Timeouts
    transport: Transport
    is_on_worker: bool
    """Whether its calls are run by a worker, for the record."""


class Models:
    """The models by name."""

    def __init__(self, models: Mapping[str, Model], *, since: datetime) -> None:
        self._models = dict(models)
        self._since = int(since.timestamp())

    def get(self, name: str) -> Model:
        """The model a client asks for. Raises ModelNotFound."""
        model = self._models.get(name)
        if model is None:
            raise ModelNotFound("no such model is configured at this gateway", param="model")
        return model

    def listing(self) -> dict[str, Any]:
        """The body of `GET /v1/models`."""
        items = [self.item(name) for name in self._models]
        return {"object": "list", "data": items}

    def item(self, name: str) -> dict[str, Any]:
        """One item of the list. Raises ModelNotFound."""
        target = self.get(name).target
        prices = list_prices(target.preset, target.upstream_model, time.time_ns() // 1000)
        price = None if prices is None else {key: float(value) for key, value in prices.items()}
        return {
            "id": name,
            "object": "model",
            "created": self._since,
            "owned_by": target.preset.name,
            "everyturn": {
                "preset": target.preset.name,
                "price": price,
                "price_version": None if prices is None else price_list_version(),
            },
        }
