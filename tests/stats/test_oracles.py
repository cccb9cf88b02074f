"""Published worked examples: each figure stands in its source, or was recomputed from the data with
statsmodels, scikit-learn and scipy; `test_libraries` compares with them on drawn data."""

from __future__ import annotations

import pytest

from everyturn import stats
from everyturn.stats.agreement import fleiss_z

WIKIPEDIA_FLEISS = [
    [0, 0, 0, 0, 14],
    [0, 2, 6, 4, 2],
    [0, 0, 3, 5, 6],
    [0, 3, 9, 2, 0],
    [2, 2, 8, 1, 1],
    [7, 7, 0, 0, 0],
    [3, 2, 6, 3, 0],
    [2, 5, 3, 2, 2],
    [6, 5, 2, 1, 0],
    [0, 2, 2, 3, 7],
]
# Fleiss 1971: 30 patients, six psychiatrists, five diagnoses.
DIAGNOSES = (
    "444444 222555 233335 555555 222444 113333 333355 113334 114444 555555 "
    "144444 124444 222333 144444 224445 333335 111455 111112 224444 133555 "
    "555555 244444 224555 114444 144445 222224 111155 224444 133333 555555"
)
PANDALM_12 = [[89, 0, 8], [16, 388, 23], [11, 29, 435]]
PANDALM_13 = [[89, 2, 6], [15, 391, 21], [9, 18, 448]]
PANDALM_23 = [[97, 13, 6], [10, 379, 28], [6, 19, 441]]
GAP = None
WIKIPEDIA_ALPHA = [
    [GAP, GAP, GAP, GAP, GAP, 3, 4, 1, 2, 1, 1, 3, 3, GAP, 3],
    [1, GAP, 2, 1, 3, 3, 4, 3, GAP, GAP, GAP, GAP, GAP, GAP, GAP],
    [GAP, GAP, 2, 1, 3, 4, 4, GAP, 2, 1, 1, 3, 3, GAP, 4],
]
EXAMPLE_C = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, GAP, GAP, GAP],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, GAP, 3],
    [GAP, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, GAP],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, GAP],
]
BH_1995 = [
    *(0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262),
    *(0.5719, 0.6528, 0.7590, 1.0),
]


def about(value: float, digits: int) -> object:
    """Equal to so many digits after the point."""
    return pytest.approx(value, abs=0.500001 * 10**-digits)


def diagnoses() -> list[list[str]]:
    """The ratings of each patient."""
    words = DIAGNOSES.split()
    assert len(words) == 30
    return [list(word) for word in words]


def counted(units: list[list[str]], categories: str) -> list[list[int]]:
    """Ratings as counts of each category."""
    return [[unit.count(category) for category in categories] for unit in units]


def pandalm() -> list[list[str]]:
    """The 999 pairs with three annotators each, as unordered ratings.

    The published tables, 879 unanimous pairs and the majorities give these patterns up to an
    exchange that no coefficient sees.
    """
    return [list(pattern) for pattern, count in PATTERNS.items() for _ in range(count)]


PATTERNS = {
    "000": 85,
    "111": 368,
    "222": 426,
    "110": 28,
    "002": 20,
    "220": 3,
    "112": 26,
    "221": 43,
}


@pytest.mark.parametrize(
    "successes, n, low, high",
    [
        (81, 263, 0.255289, 0.366210),
        (0, 10, 0, 0.277533),
        (10, 10, 0.722467, 1),
        (286, 1319, 0.195431, 0.239875),
    ],
)
def test_wilson(successes: int, n: int, low: float, high: float) -> None:
    """Wilson's interval, at the ends too."""
    found = stats.wilson(successes, n)

    assert (found.low, found.high) == (about(low, 6), about(high, 6))


def test_clopper_pearson() -> None:
    """The exact interval of none in ten."""
    found = stats.clopper_pearson(0, 10)

    assert (found.low, found.high) == (0, about(0.308497, 6))


@pytest.mark.parametrize(
    "pairs, low, high, digits",
    [((56, 70, 48, 80), 0.052431, 0.333873, 6), ((7, 34, 1, 34), 0.019, 0.34, 2)],
)
def test_newcombe(pairs: tuple[int, int, int, int], low: float, high: float, digits: int) -> None:
    """The difference of two unpaired rates."""
    found = stats.newcombe(*pairs)

    assert found.low == about(low, 3 if digits == 2 else digits)
    assert found.high == about(high, digits)


@pytest.mark.parametrize(
    "b, c, exact, corrected",
    [
        (121, 59, 4.434e-6, 20.67222),
        (70, 59, 0.378688, 0.7751938),
        (80, 59, 0.089452, 2.8776979),
        (30, 60, 0.00206, None),
        (10, 30, 0.002221, None),
        (10, 10, 1.0, None),
        (11, 1, 0.006348, None),
        (25, 15, None, 2.025),
    ],
)
def test_mcnemar(b: int, c: int, exact: float | None, corrected: float | None) -> None:
    """The exact and the corrected test."""
    found = stats.mcnemar(b, c)

    if exact is not None:
        assert found.exact_p == pytest.approx(exact, rel=2e-4 if exact < 0.01 else 1e-5)
    if corrected is not None:
        assert found.corrected == pytest.approx(corrected, rel=1e-6)
    assert found.method == ("exact" if b + c < 25 else "corrected")
    assert found.p == (found.exact_p if b + c < 25 else found.corrected_p)


def test_mcnemar_statistics() -> None:
    """The uncorrected statistic, and a p-value of the corrected one."""
    assert stats.mcnemar(121, 59).chi_square == pytest.approx(21.35556, rel=1e-6)
    assert stats.mcnemar(150, 86).chi_square == about(17.356, 3)
    assert stats.mcnemar(25, 15).corrected_p == about(0.154729, 6)


@pytest.mark.parametrize(
    "table, kappa, digits",
    [
        ([[20, 5], [10, 15]], 0.4, 12),
        ([[45, 15], [25, 15]], 0.1304, 4),
        ([[25, 35], [5, 35]], 0.2593, 4),
        ([[32, 7], [0, 61]], 0.847958, 6),
        ([[37, 2], [5, 56]], 0.854892, 6),
        ([[32, 0], [10, 58]], 0.787776, 6),
        (PANDALM_12, 0.85202, 5),
        (PANDALM_13, 0.878944, 6),
        (PANDALM_23, 0.861661, 6),
    ],
)
def test_cohen(table: list[list[int]], kappa: float, digits: int) -> None:
    """Cohen's kappa."""
    assert stats.cohen(table).value == about(kappa, digits)


def test_fleiss_1971() -> None:
    """The diagnoses of 1971: every coefficient, standard errors and the interval."""
    counts = counted(diagnoses(), "12345")
    kappa, gwet = stats.fleiss(counts), stats.ac1(counts)

    assert kappa.value == about(0.4302445, 7)
    assert fleiss_z(counts).value == about(17.65183, 5)
    assert kappa.standard_error == about(0.0542, 4)
    assert (kappa.low, kappa.high) == (about(0.3194, 4), about(0.5411, 4))
    assert stats.randolph(counts).value == about(0.444444, 6)
    assert (gwet.value, gwet.standard_error) == (about(0.44788, 5), about(0.05566, 5))
    assert stats.krippendorff(diagnoses()).value == about(0.43341, 5)


@pytest.mark.parametrize(
    "counts, kappa, free",
    [
        (WIKIPEDIA_FLEISS, 0.20993, 0.22253),
        ([[7, 1], [3, 5]], 0.161905, 0.214286),
        ([[6, 1, 0], [0, 7, 0]], 0.708333, 0.785714),
        ([[6.99, 0.01], [6.99, 0.01]], -0.166667, 0.993343),
        ([[7, 0], [7, 0]], None, 1),
        ([[7, 0], [0, 7]], 1, 1),
    ],
)
def test_fleiss_and_randolph(counts: list[list[float]], kappa: float | None, free: float) -> None:
    """Small tables; where only one category was used, Fleiss is undefined and says so."""
    found = stats.fleiss(counts)

    assert found.value == (None if kappa is None else about(kappa, 5))
    assert stats.randolph(counts).value == about(free, 5)
    if kappa is None:
        assert found.reason == "only one category was ever used"


def test_pandalm() -> None:
    """Real human labels: 999 pairs, three annotators."""
    units = pandalm()
    counts = counted(units, "012")

    assert len(units) == 999
    assert stats.fleiss(counts).value == about(0.864175, 6)
    assert stats.randolph(counts).value == about(0.879880, 6)
    assert stats.krippendorff(units).value == about(0.864221, 6)


@pytest.mark.parametrize(
    "coders, digits, expected",
    [
        (WIKIPEDIA_ALPHA, 6, (0.691358, 0.806721, 0.810845, 0.808944)),
        (EXAMPLE_C, 4, (0.7434, 0.8154, 0.8491, 0.7974)),
    ],
)
def test_krippendorff(
    coders: list[list[int | None]], digits: int, expected: tuple[float, ...]
) -> None:
    """Alpha with gaps, on all four scales."""
    units = [list(unit) for unit in zip(*coders, strict=True)]

    found = [
        stats.krippendorff(units, "nominal").value,
        stats.krippendorff(units, "ordinal").value,
        stats.krippendorff(units, "interval").value,
        stats.krippendorff(units, "ratio").value,
    ]

    assert found == [about(value, digits) for value in expected]


def test_multiplicity() -> None:
    """Benjamini and Hochberg's fifteen p-values, in any order."""
    shuffled = BH_1995[::-1]
    adjusted = stats.benjamini_hochberg(shuffled)[::-1]

    assert adjusted[:4] == [about(value, 5) for value in (0.0015, 0.003, 0.0095, 0.03562)]
    assert sum(p <= 0.05 for p in adjusted) == 4
    assert sum(p <= 0.05 for p in stats.holm(shuffled)) == 3


def test_repeats_and_clusters() -> None:
    """tau-bench, airline: 50 tasks with four tries each; errors naive and by task."""
    # How many tasks had 0, 1, 2, 3, 4 right tries, as pass^1 to pass^4 determine it.
    tasks = [(right, 4) for right, count in enumerate((14, 12, 10, 4, 10)) for _ in range(count)]
    scores = [float(number < right) for right, _ in tasks for number in range(4)]
    task_of = [number for number in range(50) for _ in range(4)]

    found = [stats.repeats(tasks, k) for k in (1, 2, 3, 4)]

    assert [hat.value for _, hat in found] == [about(x, 4) for x in (0.42, 0.2733, 0.22, 0.20)]
    assert [at.value for at, _ in found] == [about(x, 4) for x in (0.42, 0.5667, 0.66, 0.72)]
    assert stats.mean(scores).standard_error == about(0.0350, 4)
    assert stats.mean(scores, task_of).standard_error == about(0.0517, 4)
