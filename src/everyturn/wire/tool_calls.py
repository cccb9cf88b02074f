"""Put tool-call fragments to their calls: by index, else by id, else to the call that is open.

A non-empty id that differs opens a new call; an empty or null id is no id. Where the provider's
index is missing, reused or repaired the fragment goes to the client with the index of its call,
since clients merge by index.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from everyturn.errors import ToolFragmentOrphan, TranslationError, UpstreamTooLarge
from everyturn.wire.events import ToolCallDelta
from everyturn.wire.reader import write_text

CALLS_MAX: Final = 4096
"""Tool calls of one choice; more are refused."""


@dataclass(slots=True)
class _Call:
    index: int
    id: str | None
    has_arguments: bool = False


class ToolCalls:
    """The tool calls of one choice while they arrive."""

    __slots__ = ("_by_id", "_by_index", "_calls", "_choice", "_last", "_next", "is_repaired")

    def __init__(self, choice: int) -> None:
        self._choice = choice
        self._calls: dict[int, _Call] = {}
        self._next = 0
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._last: _Call | None = None
        self.is_repaired = False
        """Whether a fragment was put to a call by inference."""

    def read(
        self, fragment: Any, *, position: int, is_whole: bool, path: str
    ) -> tuple[ToolCallDelta, dict[str, Any], bool]:
        """The event of one fragment, the fragment as the client gets it, and whether it changed.

        position: its place in the array. Raises TranslationError for a wrong type and
        ToolFragmentOrphan for a fragment that belongs to no call.
        """
        if not isinstance(fragment, dict):
            raise TranslationError("the provider sent a tool call that is no object", param=path)
        function = fragment.get("function")
        if function is not None and not isinstance(function, dict):
            raise TranslationError(
                "the provider sent a tool call whose function is no object", param=path
            )
        index = fragment.get("index")
        if index is not None and (not isinstance(index, int) or isinstance(index, bool)):
            raise TranslationError(
                "the provider sent a tool call whose index is no integer", param=f"{path}.index"
            )
        name = _text(function or {}, "name", f"{path}.function")
        call_id = _text(fragment, "id", path)
        arguments, is_rewritten = _arguments(function or {}, path)
        if is_whole:
            call = self._open(position, call_id or None)
        else:
            call = self._find(index, call_id or None, name or None, path)
        call.has_arguments = call.has_arguments or bool(arguments)
        self._last = call
        event = ToolCallDelta(
            self._choice,
            call.index,
            call_id,
            _text(fragment, "type", path),
            name,
            arguments,
            _rest(fragment, function),
        )
        is_moved = index != call.index and not (is_whole and index is None)
        if not is_moved and not is_rewritten:
            return event, fragment, False
        shown = {"index": call.index, **fragment} if is_moved else dict(fragment)
        if is_moved:
            shown["index"] = call.index
        if is_rewritten:
            shown["function"] = {**(function or {}), "arguments": arguments}
        return event, shown, True

    def _find(self, index: int | None, call_id: str | None, name: str | None, path: str) -> _Call:
        if index is not None:
            return self._find_by_index(index, call_id, name, path)
        if call_id is not None:
            known = self._by_id.get(call_id)
            return known if known is not None else self._open(len(self._calls), call_id)
        if name is not None:
            return self._open(len(self._calls), None)
        if self._last is None:
            raise ToolFragmentOrphan(
                "the provider sent a tool-call fragment before any tool call", param=path
            )
        return self._last

    def _find_by_index(self, index: int, call_id: str | None, name: str | None, path: str) -> _Call:
        call = self._by_index.get(index)
        if call is not None:
            if call_id is not None and call.id is not None and call_id != call.id:
                known = self._by_id.get(call_id)
                if known is None:
                    return self._open(index, call_id)
                self._by_index[index] = known
                return known
            if call_id is not None and call.id is None:
                call.id = call_id
                self._by_id.setdefault(call_id, call)
            return call
        if call_id is None and name is None:
            waiting = [known for known in self._calls.values() if not known.has_arguments]
            if len(waiting) != 1:
                raise ToolFragmentOrphan(
                    f"the provider sent arguments for tool call {index}, which was never opened",
                    param=path,
                )
            self.is_repaired = True
            self._by_index[index] = waiting[0]
            return waiting[0]
        return self._open(index, call_id)

    def _open(self, index: int, call_id: str | None) -> _Call:
        if len(self._calls) >= CALLS_MAX:
            raise UpstreamTooLarge(f"the provider sent more than {CALLS_MAX} tool calls")
        shown = index if index not in self._calls and index >= 0 else self._next
        call = self._calls[shown] = _Call(shown, call_id)
        self._next = max(self._next, shown + 1)
        self._by_index[index] = call
        if call_id is not None:
            self._by_id.setdefault(call_id, call)
        return call


def _text(holder: dict[str, Any], key: str, path: str) -> str | None:
    value = holder.get(key)
    if value is None or isinstance(value, str):
        return value
    raise TranslationError(
        f"the provider sent a tool call whose `{key}` is no string", param=f"{path}.{key}"
    )


def _arguments(function: dict[str, Any], path: str) -> tuple[str | None, bool]:
    """The arguments as a string, and whether they came as something else."""
    value = function.get("arguments")
    if value is None or isinstance(value, str):
        return value, False
    if isinstance(value, dict | list):
        return write_text(value), True
    raise TranslationError(
        "the provider sent tool-call arguments that are neither string nor object",
        param=f"{path}.function.arguments",
    )


def _rest(fragment: dict[str, Any], function: dict[str, Any] | None) -> dict[str, Any] | None:
    rest = {
        key: value
        for key, value in fragment.items()
        if key not in ("index", "id", "type", "function")
    }
    for key, value in (function or {}).items():
        if key not in ("name", "arguments"):
            rest[f"function.{key}"] = value
    return rest or None
