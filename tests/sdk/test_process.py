"""The process: what importing costs, settings, forks, and the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import pytest

import everyturn
from everyturn.audit import records
from everyturn.errors import FAILURE_TYPES, InvalidValue
from everyturn.sdk import words
from everyturn.sdk.counting import COUNTERS
from everyturn.sdk.settings import Settings, from_environment
from tests.sdk.conftest import until
from tests.support.receiver import Receiver, Reply

PACKAGE = Path(everyturn.__file__).parent


def run_program(code: str, folder: Path, url: str, **environment: str) -> dict[str, int]:
    """Run a program that records; it prints its counters, which come back."""
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", code],
        env={
            **os.environ,
            "EVERYTURN_URL": url,
            "EVERYTURN_SPILL_FOLDER": str(folder),
            **environment,
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    found: dict[str, int] = json.loads(done.stdout)
    return found


def test_importing_brings_the_standard_library_alone() -> None:
    """The package, every module of it and its first turn need nothing that was installed."""
    code = (
        "import sys; before = set(sys.modules)\n"
        "import everyturn, importlib\n"
        "with everyturn.capture(), everyturn.turn() as turn, turn.tool('mcp', 'x'):\n"
        "    pass\n"
        "light = set(sys.modules) - before\n"
        f"for name in {sorted(path.stem for path in (PACKAGE / 'sdk').glob('*.py'))}:\n"
        "    importlib.import_module(f'everyturn.sdk.{name}'.removesuffix('.__init__'))\n"
        "import json; print(json.dumps([sorted(light), sorted(set(sys.modules) - before)]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    light, everything = json.loads(done.stdout)

    for name in everything:
        top = name.partition(".")[0]
        assert top in sys.stdlib_module_names or top == "everyturn", name
    ours = {name for name in everything if name.startswith("everyturn.")}
    assert {name.split(".")[1] for name in ours} <= {"sdk", "errors", "ids"}
    # What is slow to import is not imported before it is needed.
    heavy = {"asyncio", "ssl", "http.client", "logging", "inspect", "dataclasses", "email"}
    assert not heavy & set(light)


def test_the_names_of_the_package_are_those_of_the_sdk() -> None:
    """`everyturn.turn` and the rest are what `everyturn.sdk` has under these names."""
    from everyturn import sdk

    assert sorted(everyturn.__all__) == sorted(sdk.__all__)
    for name in everyturn.__all__:
        assert getattr(everyturn, name) is getattr(sdk, name)
    assert set(everyturn.__all__) <= set(dir(everyturn))
    with pytest.raises(AttributeError):
        _ = everyturn.nothing  # type: ignore[attr-defined]


def test_words_are_those_of_the_record() -> None:
    """The closed sets of the SDK are those that the record types have."""
    assert words.OUTCOMES == records.OUTCOMES
    assert words.HUMAN_REVIEW_STATUSES == records.HUMAN_REVIEW_STATUSES
    assert typing.get_args(words.Outcome) == words.OUTCOMES
    assert typing.get_args(words.FailureType) == FAILURE_TYPES
    assert typing.get_args(words.ToolFamily) == words.TOOL_FAMILIES
    assert typing.get_args(words.ToolStatus) == words.TOOL_STATUSES
    assert typing.get_args(words.ReviewSource) == words.REVIEW_SOURCES
    assert typing.get_args(words.HumanReviewStatus) == words.HUMAN_REVIEW_STATUSES


@pytest.mark.parametrize(
    "given",
    [
        {"url": "gateway:8080"},
        {"url": "ftp://127.0.0.1"},
        {"url": "http://"},
        {"url": "http://127.0.0.1:99999"},
        {"url": "http://user:FAKE@127.0.0.1"},
        {"url": "http://127.0.0.1/?key=FAKE"},
        {"url": "http://gateway.example"},
        {"api_key": "et_test_FAKE\n"},
        {"queue_bytes_max": -1},
        {"timeout_seconds": 0},
    ],
)
def test_wrong_settings_are_refused_and_change_nothing(given: dict[str, Any]) -> None:
    """`configure` names the setting, repeats no value, and leaves the old ones in place."""
    from everyturn.sdk.process import this_process

    before = this_process().given

    with pytest.raises(InvalidValue) as failure:
        everyturn.configure(**given)

    assert failure.value.param == next(iter(given))
    assert "FAKE" not in str(failure.value)
    assert this_process().given is before


def test_settings_come_from_the_environment() -> None:
    """Variables give what `configure` does not; a prefix of the URL is kept, `/v1` is not."""
    environment = {
        "EVERYTURN_URL": "https://gateway.example/llm/v1/",
        "EVERYTURN_API_KEY": "et_test_FAKE",
        "EVERYTURN_SERVICE_NAME": "shop",
        "EVERYTURN_SPILL_FOLDER": "",
    }

    settings = Settings(**from_environment(environment))

    assert (settings.host, settings.port, settings.path) == ("gateway.example", 443, "/llm")
    assert (settings.api_key, settings.service) == ("et_test_FAKE", "shop")
    assert settings.spill_folder.endswith("everyturn/spill")
    assert Settings(url="http://gateway.example", insecure_http=True).port == 80
    assert Settings(url="http://[::1]:9").host == "::1"


def test_services_are_named_in_records(gateway: Receiver) -> None:
    """Service and environment stand in the record of a turn."""
    everyturn.configure(service="shop", environment="test")
    with everyturn.turn():
        pass
    assert everyturn.flush(30)

    (event,) = gateway.of("turn_audit")
    assert (event["service"], event["environment"]) == ("shop", "test")
    everyturn.configure(service="", environment="")


RECORD = """
import everyturn, json
for number in range(20):
    with everyturn.turn(chat_id=str(number)) as turn:
        with turn.tool("internal", "x"):
            pass
"""


def test_the_end_of_a_process_sends_what_waits(receiver: Receiver, tmp_path: Path) -> None:
    """A program that records and ends at once has lost nothing."""
    run_program(RECORD + "print('{}')", tmp_path / "spill", receiver.url)

    assert len(receiver.of("turn_audit")) == 20
    assert len(receiver.of("tool_calls")) == 20
    assert not (tmp_path / "spill").exists()


def test_the_end_of_a_process_without_a_gateway_spills(receiver: Receiver, tmp_path: Path) -> None:
    """Without a gateway the program runs as it would and ends; its records rest on disk."""
    receiver.stop()
    run_program(RECORD + "print('{}')", tmp_path / "spill", receiver.url)

    lines = [
        json.loads(line)
        for path in (tmp_path / "spill").glob("*.jsonl")
        for line in path.read_bytes().splitlines()
    ]
    assert len(lines) == 40
    receiver.start()
    run_program(
        "import everyturn, time\n"
        "with everyturn.turn(): pass\n"
        "for _ in range(3000):\n"
        "    if everyturn.counters()['spill_sent'] == 40: break\n"
        "    time.sleep(0.01)\n"
        "print('{}')",
        tmp_path / "spill",
        receiver.url,
    )
    assert len(receiver.items) == 41


def test_a_wrong_environment_does_not_break_the_application(tmp_path: Path) -> None:
    """Settings that cannot be used are counted, and records rest until they can."""
    found = run_program(
        RECORD + "everyturn.flush(30); print(json.dumps(everyturn.counters()))",
        tmp_path / "spill",
        "nonsense",
    )

    assert (found["settings_invalid"], found["spilled"]) == (1, 40)


@pytest.mark.parametrize("ending", ["sys.exit(0)", "os._exit(everyturn.flush(30) - 1)"])
def test_a_forked_child_records_by_itself(ending: str, receiver: Receiver, tmp_path: Path) -> None:
    """Parent and child send what each recorded, once, whatever was under way at the fork."""
    code = (
        RECORD + "import os, sys\n"
        "child = os.fork()\n"
        "with everyturn.turn(chat_id='child' if child == 0 else 'parent'):\n"
        "    pass\n"
        "if child == 0:\n"
        f"    {ending}\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "everyturn.flush(30)\n"
        "print(json.dumps(everyturn.counters()))\n"
    )
    found = run_program(code, tmp_path / "spill", receiver.url)

    chats = [item["chat_id"] for item in receiver.of("turn_audit")]
    assert (found["recorded"], found["sent"]) == (41, 41)
    assert len(chats) == 22
    assert {"child", "parent"} <= set(chats)


def test_a_forked_child_leaves_the_parents_spill_alone(receiver: Receiver, tmp_path: Path) -> None:
    """A child does not hold its parent's spill file, and spills into one of its own."""
    receiver.stop()
    code = (
        RECORD + "import os\n"
        "everyturn.flush(30)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    with everyturn.turn(): pass\n"
        "    os._exit(everyturn.flush(30) - 1)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "print(json.dumps(everyturn.counters()))\n"
    )
    found = run_program(code, tmp_path / "spill", receiver.url)

    sizes = sorted(
        len(path.read_bytes().splitlines()) for path in (tmp_path / "spill").glob("*.jsonl")
    )
    assert sizes == [1, 40]
    assert found["spilled"] == 40


def test_a_child_that_outlives_its_parent_does_not_keep_its_file(
    receiver: Receiver, tmp_path: Path
) -> None:
    """The spill file of a parent that ended is an orphan, though a child of it lives."""
    receiver.stop()
    result = tmp_path / "result"
    code = (
        RECORD + "import os, sys, time\n"
        "from everyturn.sdk.spill import SpillFolder\n"
        "everyturn.flush(30)\n"
        "reading, writing = os.pipe()\n"
        "if os.fork():\n"
        "    print('{}', flush=True)\n"
        "    os._exit(0)\n"
        "os.close(writing)\n"
        "os.dup2(os.open(os.devnull, os.O_RDWR), 1)\n"
        "os.dup2(1, 2)\n"
        "os.read(reading, 1)\n"
        "folder = SpillFolder(os.environ['EVERYTURN_SPILL_FOLDER'], bytes_max=10**6)\n"
        # The parent's end of the pipe may close a moment before its file does.
        "for _ in range(500):\n"
        "    file, _ = folder.next()\n"
        "    if file is not None:\n"
        "        break\n"
        "    time.sleep(0.01)\n"
        "with open(os.environ['RESULT'] + '.new', 'w') as out:\n"
        "    out.write('kept' if file is None else 'free')\n"
        "os.rename(os.environ['RESULT'] + '.new', os.environ['RESULT'])\n"
        "os._exit(0)\n"
    )
    run_program(code, tmp_path / "spill", receiver.url, RESULT=str(result))

    until(result.exists)
    assert result.read_text() == "free"


def test_processes_of_multiprocessing_lose_nothing(receiver: Receiver, tmp_path: Path) -> None:
    """A worker that multiprocessing forked sends what it recorded when it ends."""
    code = (
        "import everyturn, json, multiprocessing\n"
        "def work():\n"
        "    with everyturn.turn(chat_id='worker'):\n"
        "        pass\n"
        "process = multiprocessing.get_context('fork').Process(target=work)\n"
        "process.start()\n"
        "process.join()\n"
        "print('{}')\n"
    )
    run_program(code, tmp_path / "spill", receiver.url)

    assert [item["chat_id"] for item in receiver.of("turn_audit")] == ["worker"]


def test_a_record_at_the_very_end_is_not_lost(receiver: Receiver, tmp_path: Path) -> None:
    """What is recorded while the process ends, when no thread can be started, is spilled."""
    code = (
        "import atexit\n"
        "def last():\n"
        "    import everyturn\n"
        "    with everyturn.turn(chat_id='last'):\n"
        "        pass\n"
        "atexit.register(last)\n"
        "import everyturn\n"
        "with everyturn.turn(chat_id='first'):\n"
        "    pass\n"
        "print('{}')\n"
    )
    run_program(code, tmp_path / "spill", receiver.url)

    assert [item["chat_id"] for item in receiver.of("turn_audit")] == ["first"]
    (path,) = (tmp_path / "spill").glob("*.jsonl")
    assert json.loads(path.read_bytes())["chat_id"] == "last"


def test_a_new_gateway_gets_what_is_recorded_from_then_on(
    gateway: Receiver, tmp_path: Path
) -> None:
    """`configure` sends what waits to the old gateway first."""
    with everyturn.turn(chat_id="old"):
        pass
    other = Receiver()
    other.start()
    everyturn.configure(url=other.url)
    with everyturn.turn(chat_id="new"):
        pass
    assert everyturn.flush(30)

    until(lambda: len(other.items) == 1)
    assert [item["chat_id"] for item in gateway.items] == ["old"]
    assert [item["chat_id"] for item in other.items] == ["new"]
    other.stop()


def test_turns_cost_no_wait_when_the_gateway_hangs(gateway: Receiver) -> None:
    """A turn is over at once, whatever the gateway does."""
    import threading

    go = threading.Event()
    gateway.always = Reply(503, until=go)
    for _ in range(50):
        with everyturn.turn():
            pass

    assert everyturn.counters()["queued"] > 0
    go.set()


def test_counters_are_those_of_the_list() -> None:
    """Every counter has a meaning, and the sizes of the queue stand beside them."""
    assert set(everyturn.counters()) == {*COUNTERS, "queued", "queued_bytes"}
