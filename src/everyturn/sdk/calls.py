"""Functions that are spans: their arguments are named, and each call of them is wrapped."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from everyturn.errors import InvalidValue

if TYPE_CHECKING:
    from everyturn.sdk.spans import Span

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="Span")


class Arguments:
    """Names the arguments of a function's calls, without binding anew each time."""

    __slots__ = ("_first", "_names")

    def __init__(self, function: Callable[..., Any]) -> None:
        import inspect

        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        try:
            parameters = inspect.signature(function).parameters.values()
        except (ValueError, TypeError):
            parameters = ()  # type: ignore[assignment] # Some functions in C do not tell.
        self._names = [one.name for one in parameters if one.kind in positional]
        self._first = 1 if self._names[:1] in (["self"], ["cls"]) else 0
        """The object a method is called on is no argument of the tool."""

    def named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Argument → value; what has no name stands under `*`. Defaults are not added."""
        given = dict(zip(self._names[self._first :], args[self._first :], strict=False))
        if len(args) > len(self._names):
            given["*"] = list(args[len(self._names) :])
        return {**given, **kwargs}

    def value(self, name: str | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value of one argument, of the first if `name` is None; None where it is not given."""
        given = self.named(args, kwargs)
        if name is not None:
            return given.get(name)
        return next(iter(given.values()), None)


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine: a coroutine function, or an object that is one."""
    import inspect

    # An object's own `__call__` is looked up on its type, as Python does when it is called.
    call = type(function).__call__ if callable(function) else None
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def wrapped(
    function: Callable[P, R],
    opened: Callable[[tuple[Any, ...], dict[str, Any]], S],
    answered: Callable[[S, Any], None],
) -> Callable[P, R]:
    """The function, each call inside a span: `opened` makes it, `answered` sees the result.

    For functions and coroutine functions. Raises InvalidValue for generators: they run while
    somebody else's code does, so a span around them would hold that as well.
    """
    import inspect

    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidValue(
            "a generator function cannot be one run of a tool or a retrieval",
            hint="Open the run with `with` inside of it.",
        )
    if is_coroutine_function(function):

        @functools.wraps(function)
        async def run_async(*args: P.args, **kwargs: P.kwargs) -> Any:
            with opened(args, kwargs) as span:
                result = await cast(Any, function)(*args, **kwargs)
                answered(span, result)
                return result

        return cast(Callable[P, R], run_async)

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with opened(args, kwargs) as span:
            result = function(*args, **kwargs)
            answered(span, result)
            return result

    return run
