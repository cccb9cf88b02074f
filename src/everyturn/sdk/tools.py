"""Tool runs: what was asked of a tool, what it answered, how long it took."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from everyturn.sdk.calls import Arguments, wrapped
from everyturn.sdk.process import this_process
from everyturn.sdk.spans import Line, Span, emit, new_id, recording_span
from everyturn.sdk.words import (
    TOOL_FAMILIES,
    TOOL_STATUSES,
    ToolFamily,
    ToolStatus,
    check_word,
    is_cancellation,
)

if TYPE_CHECKING:
    from types import TracebackType

P = ParamSpec("P")
R = TypeVar("R")


class ToolRun(Span):
    """One run of one tool. `request` and `response` take any value; neither is changed."""

    __slots__ = ("_fields", "_status")

    def __init__(self, parent: Span | None, fields: dict[str, Any]) -> None:
        """parent: the span this runs in; None outside of a turn. fields: of the record."""
        if parent is None:
            super().__init__(Line(turn_id=None), parent_span_id=None)
        else:
            super().__init__(parent.line, parent_span_id=parent.span_id, root=parent.root)
        self._fields = fields
        self._status: ToolStatus | None = None

    def request(self, value: Any) -> None:
        """What the tool is asked, as it is now: later changes of the object are not seen."""
        self._keep("request_json", value)

    def response(self, value: Any) -> None:
        """What the tool answered, as it is now."""
        self._keep("response_json", value)

    def finish(
        self,
        *,
        status: ToolStatus | None = None,
        error_code: str | None = None,
        retry_count: int | None = None,
        provider_call_id: str | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """How the run ended, where it is not told by an exception: `partial`, for example.

        error_code: a short code of the tool's own, never a message.
        provider_call_id: the id that the model gave this call. Raises InvalidValue.
        """
        check_word("status", status, TOOL_STATUSES)
        if status is not None:
            self._status = status
        given = {
            "error_code": error_code,
            "retry_count": retry_count,
            "provider_call_id": provider_call_id,
        }
        self._fields.update({name: value for name, value in given.items() if value is not None})
        if attributes:
            known = self._fields.get("attributes_json") or {}
            self._fields["attributes_json"] = {**known, **attributes}

    def _keep(self, name: str, value: Any) -> None:
        # The object may change before the run ends, so it is taken as JSON now. None is a value.
        if self.line.turn_id is not None:
            self._fields[name] = this_process().plain.payload(value)

    def _closing(self, failure: BaseException | None) -> None:
        if self.line.turn_id is None:
            this_process().counters.add("outside_turn")
            return
        fields = self._fields
        status: ToolStatus = self._status or ("error" if fields.get("error_code") else "ok")
        if failure is not None and status not in ("error", "timeout", "cancelled"):
            status = "error"
            if isinstance(failure, TimeoutError):
                status = "timeout"
            elif is_cancellation(failure):
                status = "cancelled"
            # The class says what went wrong; the text may hold anything and is left out.
            fields.setdefault("error_code", type(failure).__name__)
        self.line.count_tool()
        emit(
            "tool_calls",
            {
                "tool_call_id": new_id("tool"),
                **self.ids(),
                **fields,
                "status": status,
                "duration_ms": self.elapsed_ms(),
            },
        )


class Tool:
    """A tool to be run: enter it for one run, or put it on a function for a run each call."""

    __slots__ = ("_family", "_fields", "_has_payload", "_name", "_run")

    def __init__(
        self, family: ToolFamily, name: str | None, fields: dict[str, Any], *, has_payload: bool
    ) -> None:
        check_word("family", family, TOOL_FAMILIES)
        self._family = family
        self._name = name
        self._fields = fields
        self._has_payload = has_payload
        self._run: ToolRun | None = None

    def run_in(self, parent: Span | None, name: str) -> ToolRun:
        """A run inside `parent`, not entered yet."""
        return ToolRun(
            parent, {"tool_family": self._family, "tool_name": self._name or name, **self._fields}
        )

    def __enter__(self) -> ToolRun:
        self._run = self.run_in(recording_span(), "unnamed")
        return self._run.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._run is not None:
            self._run.__exit__(kind, failure, traceback)

    async def __aenter__(self) -> ToolRun:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(kind, failure, traceback)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """The function, each call of it a run. Its arguments and its result are recorded."""
        arguments = Arguments(function)

        def opened(args: tuple[Any, ...], kwargs: dict[str, Any]) -> ToolRun:
            run = self.run_in(recording_span(), function.__name__)
            if self._has_payload:
                run.request(arguments.named(args, kwargs))
            return run

        def answered(run: ToolRun, result: Any) -> None:
            if self._has_payload:
                run.response(result)

        return wrapped(function, opened, answered)


def tool(
    family: ToolFamily,
    name: str | None = None,
    *,
    target_service: str | None = None,
    provider_call_id: str | None = None,
    retry_count: int | None = None,
    attributes: Mapping[str, Any] | None = None,
    has_payload: bool = True,
) -> Tool:
    """A tool run in the turn of this context: `with everyturn.tool(…) as run:` or a decorator.

    family: `adapter`, `mcp`, `rag`, `internal` or `external-http`.
    name: the function's own where it is left out of a decorator.
    target_service: who runs it, where that is not this process.
    has_payload: whether a decorated function's arguments and result are recorded.
    Outside of a turn the code runs and nothing is recorded, which is counted. Raises InvalidValue.
    """
    fields = tool_fields(target_service, provider_call_id, retry_count, attributes)
    return Tool(family, name, fields, has_payload=has_payload)


def tool_fields(
    target_service: str | None,
    provider_call_id: str | None,
    retry_count: int | None,
    attributes: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """The fields of a record that are known before the run."""
    return {
        "target_service": target_service,
        "provider_call_id": provider_call_id,
        "retry_count": retry_count,
        "attributes_json": dict(attributes) if attributes else None,
    }
