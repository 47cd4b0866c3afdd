"""A script runs as Python's own command line runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import pickle, sys
import beside

class Thing:
    pass

def fail():
    raise ValueError("as it is")

assert __name__ == "__main__" and __file__.endswith("a_script.py")
assert isinstance(pickle.loads(pickle.dumps(Thing())), Thing)
print(sys.argv[1:], beside.value, sys.path[0].endswith("folder"))
if "fail" in sys.argv:
    fail()
sys.exit({"seven": 7, "said": "a message"}.get(sys.argv[1]))
"""

RUN = "import sys; from eqsat.cli import main; sys.exit(main(['run', '--quiet', *sys.argv[1:]]))"
"""Without JAX, which none of these scripts imports, this takes no time."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "beside.py").write_text("value = 3")
    (folder / "a_script.py").write_text(SCRIPT)
    return folder


def run(*arguments: str, folder: Path, own: bool = False) -> subprocess.CompletedProcess[str]:
    """The same by eqsat, or by Python's own command line."""
    command = [sys.executable, *arguments] if own else [sys.executable, "-c", RUN, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder)


@pytest.mark.parametrize(
    "arguments",
    [
        ["a_script.py", "nothing", "--budget", "-m"],
        ["a_script.py", "seven"],
        ["a_script.py", "said"],
        ["a_script.py", "fail"],
        ["-m", "a_script", "seven"],
        ["-c", "import sys; print(sys.argv, sys.path[0]); sys.exit(4)", "x"],
        ["-c", "raise KeyError(1)"],
        ["-c", "1 +"],
    ],
    ids=lambda arguments: " ".join(arguments)[:24],
)
def test_output_status_and_traceback_are_python_s_own(arguments: list[str], folder: Path) -> None:
    ours, own = (run(*arguments, folder=folder, own=own) for own in (False, True))
    assert ours.returncode == own.returncode
    assert ours.stdout == own.stdout
    assert ours.stderr.replace(" " * 4, "") == own.stderr.replace(" " * 4, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.py"], "there is no script 'nowhere.py'"),
        (["."], "is a folder, and there is no './__main__.py' to run"),
        (["-m", "nowhere"], "there is no module 'nowhere'"),
        ([], "run what? eqsat run [options] script.py"),
        (["--budget", "2XB", "a_script.py"], "unknown unit 'XB'"),
        (["--report", "plan.exe", "a_script.py"], "plans are saved as .html, .png,"),
        (["--rules", "nowhere.rules", "a_script.py"], "there is no rules file 'nowhere.rules'"),
        (["--accuracy", "none", "a_script.py"], "accuracy 'none' is not known"),
        (["--planning-seconds", "-1", "a_script.py"], "a number of seconds above 0"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_makes_no_sense(arguments: list[str], message: str, folder: Path) -> None:
    found = run(*arguments, folder=folder)
    assert found.returncode == 2
    assert message in found.stderr
    assert "Traceback" not in found.stderr
    assert found.stdout == ""
