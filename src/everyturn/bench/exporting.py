"""A run for other programs: joined rows as JSONL, or logs that Inspect AI reads. No reasoning.

Parquet has a module of its own, `parquet_export`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from everyturn.bench.folder import replace, replacing
from everyturn.bench.manifest import Manifest
from everyturn.bench.metrics import JUDGED
from everyturn.bench.viewing import Joined

FORMATS: Final = ("jsonl", "parquet", "inspect")


def jsonl(joined: Joined) -> Iterator[bytes]:
    """Each row as a line, with its question, what was expected, verdict and rationale."""
    for row in joined.rows():
        yield msgspec.json.encode(row) + b"\n"


def write_jsonl(joined: Joined, out: Path) -> None:
    """The same as a file, which is there whole or not at all."""
    with replacing(out) as file:
        file.writelines(jsonl(joined))


def inspect_logs(joined: Joined, folder: Path) -> list[Path]:
    """Write one log for each cell and model; the files.

    The form is that of Inspect AI's `EvalLog`, version 2.
    """
    manifest = joined.reading.manifest
    samples: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in joined.rows():
        samples.setdefault((row["cell"], row["model"]), []).append(_sample(row))
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for (cell, model), rows in samples.items():
        name = "".join(s if s.isalnum() or s in "._-" else "_" for s in f"{cell}_{model}")
        path = folder / f"{manifest.run_id}_{name}.json"
        replace(path, msgspec.json.encode(_log(manifest, cell, model, rows)))
        written.append(path)
    return written


def _log(
    manifest: Manifest, cell: str, model: str, samples: list[dict[str, Any]]
) -> dict[str, Any]:
    data, grid = manifest.data, manifest.grid
    total = data.selected * grid.epochs
    scored = (*(one.name for one in grid.scorers), JUDGED)
    return {
        "version": 2,
        "status": "success" if len(samples) >= total else "cancelled",
        "eval": {
            "run_id": manifest.run_id,
            "created": manifest.created_at,
            "task": f"{grid.name}/{cell}",
            "dataset": {
                "name": data.name,
                "samples": data.selected,
                "sample_ids": sorted({sample["id"] for sample in samples}),
            },
            "model": f"everyturn/{model}",
            "config": {"epochs": grid.epochs},
            "metadata": {"cell": cell, "data_sha256": data.sha256, "seed": grid.seed},
        },
        "results": {
            "total_samples": total,
            "completed_samples": len(samples),
            "scores": [
                {
                    "name": name,
                    "scorer": name,
                    "metrics": {"accuracy": {"name": "accuracy", "value": sum(known) / len(known)}},
                }
                for name in scored
                if (known := [s["scores"][name]["value"] for s in samples if name in s["scores"]])
            ],
        },
        "samples": samples,
    }


def _sample(row: dict[str, Any]) -> dict[str, Any]:
    scores = {
        name: {"value": value, "answer": row["model_answer"]}
        for name, value in row["scores"].items()
        if value is not None
    }
    if row["judge_verdict"] is not None:
        scores[JUDGED] = {
            "value": float(row["judge_verdict"] == "correct"),
            "answer": row["model_answer"],
            "explanation": row["judge_rationale"],
            "metadata": {"label": row["judge_label"]},
        }
    sample: dict[str, Any] = {
        "id": row["item_id"],
        "epoch": row["epoch"] + 1,
        "input": row["question"],
        "target": row["expected"],
        "output": {
            "model": row["served_model"] or row["requested_model"],
            "completion": row["model_answer"] or "",
            "choices": [
                {
                    "message": {"role": "assistant", "content": row["model_answer"] or ""},
                    "stop_reason": _STOPS.get(row["finish_reason"], "unknown"),
                }
            ],
        },
        "scores": scores,
        "metadata": {
            name: row[name]
            for name in ("turn_id", "trace_id", "outcome", "error_code", "cost", "latency_ms")
        },
    }
    return sample


_STOPS: Final = {
    "stop": "stop",
    "length": "max_tokens",
    "content_filter": "content_filter",
    "tool_calls": "tool_calls",
}
