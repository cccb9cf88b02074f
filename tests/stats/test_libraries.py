"""The statistics beside those of scipy and statsmodels, on drawn data; see `test_oracles` too.

The two are oracles of these tests alone: the program never imports them. AC1 and Krippendorff's
alpha are in neither.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from statsmodels.regression.linear_model import OLS
from statsmodels.stats import contingency_tables, inter_rater, proportion
from statsmodels.stats.multitest import multipletests

from everyturn import stats
from everyturn.stats import distributions

drawn = settings(max_examples=60, deadline=None)
LEVELS = st.sampled_from([0.5, 0.8, 0.9, 0.95, 0.99, 0.999])
RATES = st.integers(1, 3000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
SCORES = st.integers(0, 100).map(lambda part: part / 100)
PAIRS = st.lists(st.tuples(SCORES, SCORES), min_size=2, max_size=60)
CLUSTERED = st.lists(st.tuples(SCORES, SCORES, st.integers(0, 9)), min_size=3, max_size=60)


def same(value: Any, *, rel: float = 1e-9, least: float = 1e-12) -> Any:
    """Equal but for rounding."""
    return pytest.approx(float(value), rel=rel, abs=least)


def tables(size: int, largest: int) -> st.SearchStrategy[list[list[int]]]:
    """Square tables of agreement."""
    row = st.lists(st.integers(0, largest), min_size=size, max_size=size)
    return st.lists(row, min_size=size, max_size=size)


@st.composite
def ratings(draw: st.DrawFn) -> list[list[int]]:
    """Counts of subjects, each rated by as many raters."""
    categories, raters = draw(st.integers(2, 6)), draw(st.integers(2, 9))
    one = st.lists(st.integers(0, categories - 1), min_size=raters, max_size=raters)
    subjects = draw(st.lists(one, min_size=1, max_size=25))
    return [[rated.count(category) for category in range(categories)] for rated in subjects]


@drawn
@given(RATES, LEVELS)
@example((0, 1), 0.95)
@example((3000, 3000), 0.999)
def test_intervals_of_a_rate(rate: tuple[int, int], level: float) -> None:
    """Wilson's and Clopper and Pearson's interval."""
    for found, method in (
        (stats.wilson(*rate, level), "wilson"),
        (stats.clopper_pearson(*rate, level), "beta"),
    ):
        low, high = proportion.proportion_confint(*rate, 1 - level, method)
        assert (found.low, found.high) == (same(low), same(high))


@drawn
@given(RATES, RATES, LEVELS)
def test_the_difference_of_two_rates(
    first: tuple[int, int], second: tuple[int, int], level: float
) -> None:
    """Newcombe's interval."""
    found = stats.newcombe(*first, *second, level)

    low, high = proportion.confint_proportions_2indep(
        *first, *second, method="newcomb", compare="diff", alpha=1 - level
    )

    assert (found.low, found.high) == (same(low), same(high))


@drawn
@given(st.integers(0, 400), st.integers(0, 400))
@example(0, 1)
@example(12, 12)
@example(13, 12)
@example(400, 0)
def test_mcnemar(b: int, c: int) -> None:
    """The exact test, the statistic, and the corrected one with its p."""
    assume(b + c)
    found = stats.mcnemar(b, c)
    table = [[7, b], [c, 5]]

    assert found.exact_p == same(contingency_tables.mcnemar(table, exact=True).pvalue, least=0)
    assert found.exact_p == same(scipy.stats.binomtest(b, b + c).pvalue, least=0)
    plain = contingency_tables.mcnemar(table, exact=False, correction=False)
    assert found.chi_square == same(plain.statistic)
    if b != c:  # There statsmodels corrects a difference of nothing to one of 1, which is worse.
        corrected = contingency_tables.mcnemar(table, exact=False, correction=True)
        assert found.corrected == same(corrected.statistic)
        assert found.corrected_p == same(corrected.pvalue, least=0)


@drawn
@given(st.integers(2, 6).flatmap(lambda size: tables(size, 50)))
def test_cohen(table: list[list[int]]) -> None:
    """Two raters; undefined for us exactly where it is no number there."""
    assume(sum(map(sum, table)))
    found = stats.cohen(table).value

    # Chance is 1 where both used the same single category: there it divides by zero.
    with np.errstate(invalid="ignore", divide="ignore"):
        kappa = float(inter_rater.cohens_kappa(np.array(table), return_results=False))

    assert (found is None) == math.isnan(kappa)
    if found is not None:
        assert found == same(kappa)


@drawn
@given(ratings())
def test_fleiss_and_randolph(counts: list[list[int]]) -> None:
    """Several raters; one category alone is undefined for us."""
    fleiss, randolph = stats.fleiss(counts).value, stats.randolph(counts).value

    assert randolph == same(inter_rater.fleiss_kappa(counts, method="randolph"))
    is_one = sum(any(row[category] for row in counts) for category in range(len(counts[0]))) == 1
    assert (fleiss is None) == is_one
    if fleiss is not None:
        assert fleiss == same(inter_rater.fleiss_kappa(counts, method="fleiss"))


@drawn
@given(PAIRS, LEVELS)
def test_the_paired_t_test(pairs: list[tuple[float, float]], level: float) -> None:
    """Difference, error, interval and p of scores that are no rates."""
    first, second = zip(*pairs, strict=True)
    differences = np.array(second) - np.array(first)
    assume(differences.std() > 1e-9 and not set(first) | set(second) <= {0, 1})

    found = stats.compare(first, second, level=level)

    test = scipy.stats.ttest_rel(second, first)
    interval = test.confidence_interval(level)
    assert found.test == "t on differences"
    assert found.p == same(test.pvalue, rel=1e-7)
    assert found.difference.value == same(differences.mean())
    assert found.difference.standard_error == same(scipy.stats.sem(differences))
    assert found.difference.low == same(interval.low, rel=1e-7)
    assert found.difference.high == same(interval.high, rel=1e-7)


@drawn
@given(CLUSTERED)
def test_errors_by_cluster(rows: list[tuple[float, float, int]]) -> None:
    """The error of a mean by cluster is the sandwich of a regression on a constant; the p too."""
    first, second, clusters = zip(*rows, strict=True)
    differences = np.array(second) - np.array(first)
    assume(len(set(clusters)) > 1)
    found = stats.compare(first, second, clusters)
    # A cluster for each item is no cluster: then rates go to McNemar's test.
    assume(found.test == "t on differences, by cluster" and found.difference.standard_error > 1e-9)

    how = {"groups": np.array(clusters), "use_correction": False, "df_correction": True}
    fit = OLS(differences, np.ones(len(rows))).fit(cov_type="cluster", cov_kwds=how, use_t=True)

    assert found.difference.standard_error == same(fit.bse[0])
    assert found.p == same(fit.pvalues[0], rel=1e-7)
    low, high = fit.conf_int()[0]
    assert (found.difference.low, found.difference.high) == (
        same(low, rel=1e-7),
        same(high, rel=1e-7),
    )


@settings(max_examples=20, deadline=None)  # There Holm takes 40 ms, whatever the list.
@given(st.lists(st.integers(0, 10**6).map(lambda part: part / 10**6), min_size=1, max_size=30))
@example([0.04, 0.04, 0.01, 1.0, 0.0])
def test_several_tests_at_once(p_values: list[float]) -> None:
    """Holm, and Benjamini and Hochberg, ties included."""
    holm = multipletests(p_values, method="holm")[1]
    hochberg = multipletests(p_values, method="fdr_bh")[1]

    assert stats.holm(p_values) == pytest.approx(list(holm), rel=1e-12)
    assert stats.benjamini_hochberg(p_values) == pytest.approx(list(hochberg), rel=1e-12)


@drawn
@given(st.integers(1, 40).flatmap(lambda n: st.tuples(*[st.integers(0, n)] * 2, st.just(n))))
def test_repeats(tries: tuple[int, int, int]) -> None:
    """pass@k and pass^k are chances of drawing k tries without putting them back."""
    successes, k, n = tries
    assume(k)
    drawing = scipy.stats.hypergeom(n, successes, k)

    assert stats.pass_at_k(successes, n, k).value == same(drawing.sf(0))
    assert stats.pass_hat_k(successes, n, k).value == same(drawing.pmf(k))


@drawn
@given(st.lists(SCORES, min_size=1, max_size=40), st.floats(0, 1))
def test_quantiles(values: list[float], share: float) -> None:
    """Linear between neighbours."""
    assert stats.quantile(sorted(values), share).value == same(np.quantile(values, share))


@drawn
@given(st.integers(1, 5000), st.floats(0, 60), LEVELS)
@example(1, 0.0, 0.95)
@example(5000, 60.0, 0.95)
def test_distributions(freedom: int, value: float, level: float) -> None:
    """Tails and quantiles, far out too."""
    t = scipy.stats.t(freedom)
    tail = 2 * t.sf(value)

    assert distributions.t_two_sided(value, freedom) == same(tail, rel=1e-7, least=1e-300)
    assert distributions.t_quantile(level, freedom) == same(t.ppf(0.5 + level / 2), rel=1e-8)
    chance = scipy.stats.chi2.sf(value, 1)
    assert distributions.chi_square_tail(value) == same(chance, least=0)
    assert distributions.normal_quantile(level) == same(scipy.stats.norm.ppf(0.5 + level / 2))
