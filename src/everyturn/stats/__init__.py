"""Statistics for rates, repeats, comparisons and agreement. Pure, standard library only.

What cannot be said is None, with a reason: a rate of nothing, an agreement where only one category
was ever used. It is never 0 or 1. The published worked examples that each function reproduces are
in `tests/stats`.
"""

from everyturn.stats.agreement import ac1, cohen, fleiss, randolph, raw_agreement
from everyturn.stats.alpha import krippendorff
from everyturn.stats.figures import Estimate, Figure
from everyturn.stats.multiple import benjamini_hochberg, holm
from everyturn.stats.paired import Comparison, McNemar, compare, mcnemar, paired_difference
from everyturn.stats.rates import clopper_pearson, mean, newcombe, quantile, wilson
from everyturn.stats.repeats import pass_at_k, pass_hat_k, repeats

__all__ = [
    "Comparison",
    "Estimate",
    "Figure",
    "McNemar",
    "ac1",
    "benjamini_hochberg",
    "clopper_pearson",
    "cohen",
    "compare",
    "fleiss",
    "holm",
    "krippendorff",
    "mcnemar",
    "mean",
    "newcombe",
    "paired_difference",
    "pass_at_k",
    "pass_hat_k",
    "quantile",
    "randolph",
    "raw_agreement",
    "repeats",
    "wilson",
]
