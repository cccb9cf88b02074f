"""What plugins declare: typed attributes of their records, and labels of their reviews.

Pure. A record's `attributes_json` holds what the record's plugin declares and nothing else; where
a record names no plugin, each attribute is one that some plugin declares. A review's label is a
failure type or a plugin's own. One declaration ships, for assistants on 1C.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from everyturn.errors import FAILURE_TYPES, InvalidValue, UnknownParameter
from everyturn.wire.reader import Num, key_name

KINDS: Final = ("str", "int", "float", "bool", "list")
"""Types of an attribute, beside a closed set of words. A list is of texts, numbers, booleans."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """One typed attribute."""

    kind: str
    """One of KINDS, or `enum`."""
    words: tuple[str, ...] = ()
    """The closed set of an `enum`."""

    @property
    def told(self) -> str:
        """What its values are, for a message."""
        if self.kind == "enum":
            return f"one of: {', '.join(self.words)}"
        return {
            "str": "a string",
            "int": "a whole number",
            "float": "a number",
            "bool": "true or false",
            "list": "a list of strings, numbers or booleans",
        }[self.kind]

    def fits(self, value: Any) -> bool:
        """Whether a value is of this type; null always is."""
        if value is None:
            return True
        match self.kind:
            case "str":
                return isinstance(value, str)
            case "enum":
                return isinstance(value, str) and value in self.words
            case "bool":
                return isinstance(value, bool)
            case "int":
                return isinstance(value, int) and not isinstance(value, bool)
            case "float":
                return _is_number(value)
            case _:
                return isinstance(value, list) and all(
                    isinstance(item, str | bool) or _is_number(item) for item in value
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """What one plugin declares."""

    fields: Mapping[str, Attribute] = field(default_factory=dict)
    labels: frozenset[str] = frozenset()


SHIPPED: Final[Mapping[str, Plugin]] = {
    "1c": Plugin(
        fields={
            "base_id": Attribute("str"),
            "adapter_methods": Attribute("list"),
            "state_mode": Attribute("enum", ("saved", "active", "effective")),
            "resolved_selectors": Attribute("list"),
            "truncated": Attribute("bool"),
            "partial": Attribute("bool"),
            "layer_hints": Attribute("list"),
        }
    )
}
"""Plugins that need no declaration."""


class Plugins:
    """All declarations of a gateway."""

    def __init__(self, declared: Mapping[str, Plugin] | None = None) -> None:
        """declared: by name; one under the name of a shipped plugin stands in its place."""
        self._plugins = {**SHIPPED, **(declared or {})}
        own = {label for plugin in self._plugins.values() for label in plugin.labels}
        self._labels = frozenset(FAILURE_TYPES) | own

    def check(self, plugin: str | None, attributes: Mapping[str, Any]) -> None:
        """Raises CallerFault for an attribute that is not declared or of another type.

        plugin: that the record names; None where it names none.
        """
        known = [self._plugins[plugin]] if plugin in self._plugins else []
        if plugin is None:
            known = list(self._plugins.values())
        for name, value in attributes.items():
            shown = key_name(name)
            param = f"attributes_json.{shown}"
            declared = [one.fields[name] for one in known if name in one.fields]
            if not declared:
                whose = "no plugin declares" if plugin is None else "the plugin does not declare"
                raise UnknownParameter(
                    f"{whose} the attribute `{shown}`",
                    param=param,
                    hint="Declare it under [plugins.NAME] in the gateway's configuration.",
                )
            if not any(attribute.fits(value) for attribute in declared):
                raise InvalidValue(f"`{shown}` must be {declared[0].told}", param=param)

    def check_label(self, label: str) -> None:
        """Raises InvalidValue for a label that is no failure type and that no plugin declares."""
        if label not in self._labels:
            raise InvalidValue(
                "`label_primary_issue` must be a failure type, or a label that a plugin declares",
                param="label_primary_issue",
            )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Num) and not isinstance(value, bool)
