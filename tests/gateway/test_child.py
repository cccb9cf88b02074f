"""The process beside a gateway."""

from __future__ import annotations

from everyturn.gateway.child import Child


def test_a_signal_to_the_gateway_s_group_reaches_no_child() -> None:
    """Ctrl-C in a terminal ends the gateway, which then ends the child: it has not failed."""
    said: list[str] = []
    own_group = "import os; print(os.getpgid(0) == os.getpid())"
    child = Child(["timeit", "-n", "1", "-r", "1", own_group])

    status = child.run(said.append)

    assert status == 0
    assert said[0] == "True"
