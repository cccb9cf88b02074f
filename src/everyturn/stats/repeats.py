"""Repeats of one task: right at least once (pass@k), right every time (pass^k).

Sources: Chen et al. 2021 for the unbiased pass@k; Yao et al. 2024 (tau-bench) for pass^k.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from everyturn.stats.figures import Figure, undefined


def pass_at_k(successes: int, n: int, k: int) -> Figure:
    """The chance that at least one of k of the n tries is right."""
    if not 1 <= k <= n:
        return undefined("there are fewer tries than k")
    return Figure(1 - math.comb(n - successes, k) / math.comb(n, k))


def pass_hat_k(successes: int, n: int, k: int) -> Figure:
    """The chance that all of k of the n tries are right."""
    if not 1 <= k <= n:
        return undefined("there are fewer tries than k")
    return Figure(math.comb(successes, k) / math.comb(n, k))


def repeats(tasks: Sequence[tuple[int, int]], k: int) -> tuple[Figure, Figure]:
    """pass@k and pass^k over tasks, each (successes, tries); tasks with fewer tries stop it."""
    if not tasks:
        return undefined("nothing was counted"), undefined("nothing was counted")
    once = [pass_at_k(successes, n, k).value for successes, n in tasks]
    always = [pass_hat_k(successes, n, k).value for successes, n in tasks]
    at = [value for value in once if value is not None]
    hat = [value for value in always if value is not None]
    if len(at) < len(tasks):
        reason = "a task has fewer tries than k"
        return undefined(reason), undefined(reason)
    return Figure(math.fsum(at) / len(at)), Figure(math.fsum(hat) / len(hat))
