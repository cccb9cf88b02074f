"""`report.html`: one file that a person would rather look at than read the JSON.

It refers to nothing outside of itself, runs no script, and holds no reasoning: it is made from rows
that have none. Everything a model wrote is escaped.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from everyturn import stats
from everyturn.bench.folder import ROWS
from everyturn.bench.metrics import JUDGED, Group
from everyturn.bench.plots import Mark, bar, intervals, scatter, strips
from everyturn.bench.report_style import STYLE
from everyturn.bench.rows import Row, read_rows
from everyturn.bench.viewing import Joined

TELLING_MAX: Final = 20
_SPARE: Final = 8
"""Rows that are ranked for each that is shown, so that one item does not fill the list."""
CHARS_MAX: Final = 1200
_OUTCOME_COLOURS: Final = {
    "ok": "var(--ok)",
    "length": "var(--warn)",
    "refused": "var(--c4)",
    "empty": "var(--c3)",
    "timeout": "var(--bad)",
    "provider_error": "var(--bad2)",
    "limit_reached": "var(--warn)",
    "skipped_budget": "var(--dim)",
}


def report_html(path: Path, summary: dict[str, Any]) -> str:
    """The report of a run whose summary was made."""
    joined = Joined(path)
    metrics = joined.reading.metrics
    sections = [
        _head(summary),
        *_accuracy(summary, metrics),
        _table(summary, metrics),
        *_distributions(joined.reading.groups, summary, metrics),
        _reasoning(joined, summary),
        _agreement(summary),
        _pairwise(summary),
        _telling(joined, telling_rows(joined, metrics[-1])),
        _foot(joined, summary),
    ]
    name = escape(summary["name"])
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{name} · everyturn bench</title><style>{STYLE}</style></head>"
        f"<body><main>{''.join(sections)}</main></body></html>\n"
    )


def _place(group: dict[str, Any]) -> str:
    return f"{group['model']} · {group['cell']}"


def _head(summary: dict[str, Any]) -> str:
    found, data = summary["found"], summary["data"]
    state = "complete" if summary["complete"] else "not complete"
    facts = [
        ("rows", f"{found['rows']:,} of {found['rows_total']:,}"),
        ("items", f"{data['selected']:,} of {data['total']:,}"),
        ("spent", f"${summary['spend']['total']:.4f}"),
        ("begun", summary["created_at"][:16].replace("T", " ") + " UTC"),
    ]
    if summary["spend"]["judges"]:
        facts.insert(3, ("of it on judges", f"${summary['spend']['judges']:.4f}"))
    tiles = "".join(f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    badge = f'<span class="badge {"good" if summary["complete"] else "part"}">{state}</span>'
    return (
        f"<header><h1>{escape(summary['name'])} {badge}</h1>"
        f'<p class="dim"><code>{summary["run_id"]}</code> · {escape(data["name"])}</p>'
        f"<dl>{tiles}</dl></header>"
    )


def _accuracy(summary: dict[str, Any], metrics: Sequence[str]) -> list[str]:
    drawn = []
    for name in metrics:
        marks = []
        for number, group in enumerate(summary["found"]["groups"]):
            one = group["metrics"].get(name, {})
            marks.append(
                Mark(
                    _place(group),
                    one.get("value"),
                    one.get("low"),
                    one.get("high"),
                    one.get("worst_case", {}).get("value"),
                    number,
                    escape(one.get("reason", "")),
                )
            )
        title = f"{name}: value with 95 % interval; hollow: everything missing counts as wrong"
        drawn.append(f"<section><h2>{escape(name)}</h2>{intervals(title, marks)}</section>")
    return drawn


def _table(summary: dict[str, Any], metrics: Sequence[str]) -> str:
    heads = ["model", "cell", "outcomes", *metrics, "cost", "p50 ms", "p95 ms", "first token"]
    lines = []
    for group, timing in zip(summary["found"]["groups"], summary["timing"], strict=True):
        control = ' <span class="badge">control</span>' if group["control"] else ""
        shares = [
            (name, count, _OUTCOME_COLOURS[name]) for name, count in group["outcomes"].items()
        ]
        cells = [
            escape(group["model"]),
            escape(group["cell"]) + control,
            bar(shares) + f'<div class="dim">{_outcomes(group)}</div>',
            *(_metric(group["metrics"].get(name)) for name in metrics),
            f"${timing['cost']:.4f}",
            *(_number(timing["latency_ms"][name]) for name in ("p50", "p95")),
            _number(timing["time_to_first_token_ms"]["p50"]),
        ]
        lines.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    left = summary["found"].get("groups_left_out", 0)
    more = f'<p class="dim">{left} more groups are left out.</p>' if left else ""
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    return (
        f'<section><h2>All figures</h2><div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>{more}</section>"
    )


def _outcomes(group: dict[str, Any]) -> str:
    return ", ".join(f"{count} {name}" for name, count in group["outcomes"].items())


def _metric(one: dict[str, Any] | None) -> str:
    if one is None:
        return ""
    if one.get("value") is None:
        return f'<span class="dim">{escape(one.get("reason", ""))}</span>'
    told = f"<b>{one['value']:.3f}</b>"
    if one.get("low") is not None:
        told += f' <span class="dim">[{one["low"]:.3f}, {one["high"]:.3f}]</span>'
    worst = one.get("worst_case", {}).get("value")
    told += f'<div class="dim">{one["n_scored"]} of {one["n_total"]}'
    if worst is not None and one["n_scored"] < one["n_total"]:
        told += f", at worst {worst:.3f}"
    told += "</div>"
    for k, value in one.get("repeats", {}).items():
        if value["value"] is not None and not k.endswith(("@1", "^1")):
            told += f'<div class="dim">{k} {value["value"]:.3f}</div>'
    return told


def _number(value: float | None) -> str:
    return '<span class="dim">none</span>' if value is None else f"{value:,.0f}"


def _distributions(
    groups: Sequence[Group], summary: dict[str, Any], metrics: Sequence[str]
) -> list[str]:
    points = []
    metric = metrics[-1]
    for number, (group, timing) in enumerate(
        zip(summary["found"]["groups"], summary["timing"], strict=True)
    ):
        value = group["metrics"].get(metric, {}).get("value")
        rows = sum(group["outcomes"].values())
        if value is not None and rows:
            points.append((_place(group), timing["cost"] / rows * 1000, value, number))
    drawn = []
    if any(point[1] for point in points):
        plot = scatter(f"{metric} against cost", points, "US dollars for 1,000 rows")
        drawn.append(f"<section><h2>Worth and cost</h2>{plot}</section>")
    latency = [
        (f"{group.model} · {group.cell}", five(group.latency), number)
        for number, group in enumerate(groups)
    ]
    plot = strips("Latency of each attempt that was answered (5, 25, 50, 75, 95 %)", latency, "ms")
    if plot:
        drawn.append(f"<section><h2>Latency</h2>{plot}</section>")
    return drawn


def five(values: Iterable[float]) -> list[float]:
    """The quantiles that a strip shows; none of nothing."""
    ordered = sorted(values)
    if not ordered:
        return []
    found = (stats.quantile(ordered, share).value for share in (0.05, 0.25, 0.5, 0.75, 0.95))
    return [value for value in found if value is not None]


def _reasoning(joined: Joined, summary: dict[str, Any]) -> str:
    told = summary["found"]["reasoning_content_chars"]
    if not told:
        return ""
    chars = joined.reading.lengths.chars
    rows = [(model, five(chars[model]), number) for number, model in enumerate(told)]
    plot = strips("Length of reasoning in characters (5, 25, 50, 75, 95 %)", rows, "chars")
    lines = "".join(
        f"<tr><td>{escape(model)}</td><td>{one['rows_with']:,}</td><td>{one['rows_without']:,}</td>"
        f"<td>{one['shape_unknown']:,}</td><td>{_number(one['p50'])}</td>"
        f"<td>{_number(one['p95'])}</td><td>{one['sum']:,}</td></tr>"
        for model, one in told.items()
    )
    return (
        f"<section><h2>Reasoning, by its length alone</h2>{plot}<table><thead><tr><th>model</th>"
        "<th>rows with</th><th>without</th><th>shape unknown</th><th>p50</th><th>p95</th>"
        f"<th>sum</th></tr></thead><tbody>{lines}</tbody></table></section>"
    )


def _agreement(summary: dict[str, Any]) -> str:
    judging = summary["found"].get("judging")
    if judging is None:
        return ""
    told = judging["agreement"]
    names = ("raw", "fleiss_kappa", "krippendorff_alpha", "gwet_ac1")
    lines = []
    for kind in ("verdict", "label"):
        cells = []
        for name in names:
            one = told[kind][name]
            if one["value"] is None:
                cells.append(f'<td class="dim">{escape(one["reason"])}</td>')
            else:
                cells.append(f"<td>{one['value']:.3f}</td>")
        lines.append(f"<tr><td>{kind}</td>{''.join(cells)}</tr>")
    judges = ", ".join(escape(name) for name in told["judges"])
    return (
        f'<section><h2>Judges</h2><p class="dim">{judges}; {told["rows"]:,} rows with two '
        f"verdicts or more; {judging['ties']} ties wait for a person; rubric "
        f"{escape(judging['rubric_version'])}, labels {escape(judging['taxonomy_version'])}</p>"
        "<table><thead><tr><th></th><th>raw agreement</th><th>Fleiss κ</th><th>Krippendorff α</th>"
        f"<th>Gwet AC1</th></tr></thead><tbody>{''.join(lines)}</tbody></table></section>"
    )


def _pairwise(summary: dict[str, Any]) -> str:
    lines = []
    for one in summary["found"].get("pairwise", ()):
        share = one["second_preferred"]
        told = "none" if share["value"] is None else f"{share['value']:.3f}"
        if share["value"] is not None:
            told += f' <span class="dim">[{share["low"]:.3f}, {share["high"]:.3f}]</span>'
        parts = [
            (one["first"], one["first_wins"], "var(--c0)"),
            ("tie", one["ties"], "var(--dim)"),
            (one["second"], one["second_wins"], "var(--c1)"),
        ]
        counts = f"{one['first_wins']} · {one['ties']} ties · {one['second_wins']}"
        lines.append(
            f"<tr><td>{escape(one['first'])}</td><td>{bar(parts)}<div class='dim'>{counts}</div>"
            f"</td><td>{escape(one['second'])}</td><td>{told}</td><td>{one['verdict']}</td>"
            f"<td>{one['order_effects']}</td></tr>"
        )
    if not lines:
        return ""
    return (
        "<section><h2>Side by side</h2><table><thead><tr><th>first</th><th></th><th>second</th>"
        "<th>second preferred</th><th>evidence for</th><th>order effects</th></tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></section>"
    )


def telling_rows(joined: Joined, metric: str, most: int = TELLING_MAX) -> list[Row]:
    """The rows that say most: judges split, cells or models differ on the item, or it failed."""
    counts: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in read_rows(joined.path / ROWS):
        value = value_of(joined, row, metric)
        if value is not None:
            counts[row.item_id][0] += value
            counts[row.item_id][1] += 1
    kept: list[tuple[float, int, Row]] = []
    for number, row in enumerate(read_rows(joined.path / ROWS)):
        right, n = counts[row.item_id]
        spread = 4 * right * (n - right) / (n * n) if n else 0.0
        verdicts = {one.verdict for one in joined.judgements(row.key)}
        value = value_of(joined, row, metric)
        weight = spread + (len(verdicts) > 1) * 1.5 + (row.outcome != "ok") * 0.6
        weight += (value is not None and value < 1) * 0.5
        entry = (weight, -number, row)
        if len(kept) < most * _SPARE:
            heapq.heappush(kept, entry)
        elif entry[:2] > kept[0][:2]:
            heapq.heapreplace(kept, entry)
    ranked = [row for _, _, row in sorted(kept, key=lambda one: one[:2], reverse=True)]
    return _varied(ranked, most)


def _varied(ranked: list[Row], most: int) -> list[Row]:
    """The first rows, two of an item at most, as long as there are others."""
    seen: Counter[str] = Counter()
    chosen: list[Row] = []
    rest: list[Row] = []
    for row in ranked:
        seen[row.item_id] += 1
        (chosen if seen[row.item_id] <= 2 else rest).append(row)
    return [*chosen, *rest][:most]


def value_of(joined: Joined, row: Row, metric: str) -> float | None:
    """A row's value on a metric; None where it was not scored."""
    if metric != JUDGED:
        return row.scores.get(metric)
    vote = joined.vote(row.key)
    return None if vote is None or vote.verdict is None else float(vote.verdict == "correct")


def _telling(joined: Joined, rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    drawn = []
    for row in rows:
        told = joined.joined(row)
        marks = [f'<span class="badge">{row.outcome}</span>']
        marks += [
            f'<span class="badge {"good" if value else "part"}">{escape(name)} {value:g}</span>'
            for name, value in row.scores.items()
            if value is not None
        ]
        marks += [
            f'<span class="badge {"good" if one.verdict == "correct" else "part"}">'
            f"{escape(one.judge)}: {escape(one.label or one.outcome)}</span>"
            for one in joined.judgements(row.key)
        ]
        expected = " or ".join(told["expected"]) or "(nothing named)"
        rationale = told["judge_rationale"]
        reason = f'<p class="dim">{_clip(rationale)}</p>' if rationale else ""
        turn = row.turn_id or row.cached_from or ""
        drawn.append(
            f"<details><summary><b>{_clip(told['question'], 140)}</b><br>"
            f'<span class="dim">{escape(row.model)} · {escape(row.cell)}</span> {"".join(marks)}'
            f"</summary><p>{_clip(told['question'])}</p><p><i>expected</i> {_clip(expected)}</p>"
            f"<p><i>answer</i> {_clip(row.model_answer or row.error_code or 'none')}</p>{reason}"
            + (f'<p class="dim"><code>everyturn show {turn}</code></p>' if turn else "")
            + "</details>"
        )
    return f"<section><h2>Rows to look at</h2>{''.join(drawn)}</section>"


def _clip(text: str, most: int = CHARS_MAX) -> str:
    return escape(text if len(text) <= most else text[: most - 1] + "…")


def _foot(joined: Joined, summary: dict[str, Any]) -> str:
    manifest = joined.reading.manifest
    code = manifest.code
    commit = "" if code.commit is None else f", commit {code.commit[:12]}"
    dirty = " with changes" if code.is_dirty else ""
    pins = "; ".join(
        f"{escape(m.name)}: {m.pin}{' ' + escape(m.revision) if m.revision else ''}"
        f"{', ' + escape(m.pin_reason) if m.pin_reason else ''}"
        for m in manifest.grid.models
    )
    return (
        f'<footer class="dim"><p>Versions of models: {pins}.</p><p>everyturn {code.version}'
        f"{commit}{dirty}, Python {code.python}; seed {manifest.grid.seed}; data SHA-256 "
        f"<code>{manifest.data.sha256[:16]}…</code>; spent ${summary['spend']['total']:.4f}, of it "
        f"${summary['spend']['lost']:.4f} at worst on {summary['spend']['lost_calls']} calls that "
        "were cut off.</p></footer>"
    )
