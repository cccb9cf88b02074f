"""`docs/reference/worker-protocol.md` says what the code does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from everyturn.link import messages
from everyturn.link.messages import BYES, FAILS, FAULTS, MESSAGES, Operation
from everyturn.link.session import HEARTBEAT_S, LOST_S, MAY_RECEIVE, NEXT
from everyturn.link.versions import VERSIONS

PAGE = (
    Path(__file__).resolve().parents[2] / "docs" / "reference" / "worker-protocol.md"
).read_text("utf-8")


def table(heading: str) -> list[list[str]]:
    """The cells of the rows of the table whose first column has this heading."""
    after = PAGE.partition(f"\n| {heading} |")[2]
    assert after, heading
    rows = []
    for line in after.splitlines()[2:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def names(cell: str) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`]+)`", cell)


def sender(kind: type[messages.Message]) -> str:
    """Who may send a message."""
    receivers = {side for (side, _), kinds in MAY_RECEIVE.items() if kind in kinds}
    return (
        {"gateway": "worker", "worker": "gateway"}[receivers.pop()]
        if len(receivers) == 1
        else "both"
    )


def test_every_message_stands_there() -> None:
    """Name, sender, members in order and meaning of each message, and of nothing else."""
    expected = [
        [
            f"`{name}`",
            sender(kind),
            ", ".join(f"`{member}`" for member in kind.__struct_fields__),
            (kind.__doc__ or "").strip(),
        ]
        for name, kind in MESSAGES.items()
    ]

    assert table("message") == expected


def test_every_member_is_explained() -> None:
    """Each member has its form, once."""
    explained = [name for row in table("member") for name in names(row[0])]

    assert sorted(explained) == sorted(
        {member for kind in MESSAGES.values() for member in kind.__struct_fields__}
    )
    (operations,) = [row[1] for row in table("member") if row[0] == "`operation`"]
    assert names(operations) == list(get_args(Operation))


def test_states_are_those_of_the_tables() -> None:
    """What each side may get in which state, and what changes the state."""
    received = {(row[0], names(row[1])[0]): names(row[2]) for row in table("side")}
    changes = {
        (state, name, names(row[2])[0])
        for row in table("state")
        for state in names(row[0])
        for name in names(row[1])
    }

    assert received == {
        place: sorted(str(kind.__struct_config__.tag) for kind in kinds)
        for place, kinds in MAY_RECEIVE.items()
    }
    assert changes == {
        (state, kind.__struct_config__.tag, after) for (state, _, kind), after in NEXT.items()
    }


def test_codes_are_the_closed_sets() -> None:
    """Faults, farewells and failures, in order."""
    byes, fails = (
        [names(row[0])[0] for row in table(heading)]
        for heading in ("code | why", "code | the client sees")
    )

    assert [names(row[0])[0] for row in table("fault")] == list(FAULTS)
    assert byes == list(BYES)
    assert fails == list(FAILS)


def test_versions_and_limits() -> None:
    """Each version with what it carries; sizes and times as in the code."""
    assert table("version") == [
        [
            str(version.number),
            ", ".join(f"`{operation}`" for operation in version.operations),
            "yes" if version.has_query else "no",
        ]
        for version in VERSIONS
    ]
    assert [int(row[1]) for row in table("limit")] == [
        messages.HEADER_BYTES_MAX,
        messages.PAYLOAD_BYTES_MAX,
        messages.WINDOW_BYTES_MAX,
    ]
    assert f"After {HEARTBEAT_S:.0f} seconds" in PAGE
    assert f"after {LOST_S:.0f} seconds the link is lost" in PAGE
