"""An application as a process of its own: one turn with a search, a tool and a streamed answer.

    python -m tests.support.an_application GATEWAY SERVICE SPILL_FOLDER

Prints, as one JSON object, what it sent and what it received.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from typing import Any

import everyturn

QUESTION = "Where is order 7?"
HITS = [{"id": "page-1", "score": 0.9}, {"id": "page-2", "score": 0.4}]


def post(url: str, body: Any, headers: dict[str, str]) -> tuple[dict[str, str], str]:
    """The headers and the text of an answer."""
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"content-type": "application/json", **headers}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        found = {name.lower(): value for name, value in answer.headers.items()}
        return found, answer.read().decode()


def streamed_text(events: str) -> str:
    """The text of a streamed answer that came to its end."""
    assert events.endswith("data: [DONE]\n\n")
    chunks = [json.loads(e[6:]) for e in events.split("\n\n") if e.startswith("data: {")]
    return "".join(
        choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"]
    )


def main(gateway: str, service: str, spill: str) -> None:
    """Run the turn."""
    everyturn.configure(url=gateway, service="shop", environment="test", spill_folder=spill)
    told: dict[str, Any] = {}
    with everyturn.turn(
        chat_id="c1",
        project_id="shop",
        plugin="faq",
        user_text=QUESTION,
        user_message_id="u-1",
        attributes={"topic": "orders"},
    ) as turn:
        with turn.retrieval(query=QUESTION, profile="docs", index_version="v1", top_k=2) as search:
            search.sources(HITS, used=HITS[:1])
        with turn.tool("mcp", "get_order", target_service="orders") as run:
            asked = {"id": 7, "job": turn.envelope()}
            run.request(asked)
            told["tool_headers"], text = post(f"{service}/orders", asked, run.headers())
            run.response(json.loads(text))
        told |= {"asked": asked, "order": json.loads(text), "tool_span_id": run.span_id}
        messages = [{"role": "user", "content": f"{QUESTION} {text}"}]
        body = {"model": "m", "messages": messages, "stream": True, "temperature": 0.10}
        told["gateway_headers"], events = post(
            f"{gateway}/v1/chat/completions", body, turn.headers()
        )
        told |= {"messages": messages, "answer": streamed_text(events)}
        turn.finish(assistant_text=told["answer"], assistant_message_id="a-1")
    told["review_id"] = everyturn.review(
        turn.id, source="human", correctness=0.5, label="rag_miss", notes="no date"
    )
    told |= {"turn_id": turn.id, "trace_id": turn.trace_id, "span_id": turn.span_id}
    told["is_flushed"] = everyturn.flush(10)
    told["counters"] = everyturn.counters()
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
