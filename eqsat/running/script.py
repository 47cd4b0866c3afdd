"""Runs a script, a module or a text as Python's own command line does."""

from __future__ import annotations

import builtins
import importlib.util
import os
import runpy
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType, TracebackType

from eqsat.errors import EqsatError

INTERRUPTED = 130
"""The exit status of an interrupted script: 128 plus the number of the signal, as in shells."""


@dataclass(frozen=True)
class Script:
    """A script that can be checked and run.

    **Attributes:**

    - `kind`: "file", "module" or "text". A folder or an archive with a `__main__.py` is a "file", too.
    - `what`: the path of the file, the name of the module, or the text itself.
    - `arguments`: the items of `sys.argv` after the first.
    """

    kind: str
    what: str
    arguments: Sequence[str] = ()

    def check(self) -> None:
        """Checks that there is such a script.

        **Raises:** `EqsatError` if there is not.
        """
        if self.kind == "file" and not os.path.exists(self.what):
            raise EqsatError(f"there is no script {self.what!r}")
        if self.kind == "file" and os.path.isdir(self.what):
            main = os.path.join(self.what, "__main__.py")
            if not os.path.exists(main):
                raise EqsatError(f"{self.what!r} is a folder, and there is no {main!r} to run")
        if self.kind == "module":
            sys.path.insert(0, os.getcwd())
            try:
                found = importlib.util.find_spec(self.what)
            except (ImportError, ValueError, AttributeError):
                found = None
            finally:
                sys.path.remove(os.getcwd())
            if found is None:
                raise EqsatError(f"there is no module {self.what!r}")

    def run(self) -> int:
        """Runs the script and returns its exit status.

        An exception that the script does not catch is shown as Python would show it.
        """
        with_arguments = {"file": self.what, "module": "-m", "text": "-c"}[self.kind]
        sys.argv[:] = [with_arguments, *self.arguments]
        try:
            self._runner()()
        except SystemExit as exit_:
            return _status(exit_.code)
        except KeyboardInterrupt:
            return INTERRUPTED
        except BaseException as error:
            _show(error)
            return 1
        return 0

    def _runner(self) -> Callable[[], object]:
        if self.kind == "module":
            sys.path.insert(0, os.getcwd())
            return lambda: runpy.run_module(self.what, run_name="__main__", alter_sys=True)
        if self.kind == "text":
            sys.path.insert(0, "")
            return lambda: _execute(self.what, "<string>")
        if os.path.isfile(self.what) and not self.what.endswith((".pyz", ".zip")):
            sys.path.insert(0, os.path.dirname(os.path.abspath(self.what)))
            return self._file
        return lambda: runpy.run_path(self.what, run_name="__main__")

    def _file(self) -> None:
        with open(self.what, "rb") as file:
            source = file.read()
        _execute(source, os.path.abspath(self.what))


def _execute(source: str | bytes, file: str) -> None:
    """Executes a text as the module `__main__`.

    The module stays in `sys.modules` after that, since pickles and other processes look for it there.
    """
    main = ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    if file != "<string>":
        main.__file__ = file
    sys.modules["__main__"] = main
    exec(compile(source, file, "exec", dont_inherit=True), main.__dict__)


def _status(code: object) -> int:
    """Returns the exit status that `sys.exit(code)` asks for, and prints a code that is not a number."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    print(code, file=sys.stderr)
    return 1


def _show(error: BaseException) -> None:
    """Shows an uncaught exception as Python does, without the frames of eqsat and `runpy`."""
    chained: BaseException | None = error
    while chained is not None:
        chained.__traceback__ = _of_others(chained.__traceback__)
        chained = chained.__cause__ or chained.__context__
    if sys.excepthook is sys.__excepthook__:
        traceback.print_exception(error)
    else:
        sys.excepthook(type(error), error, error.__traceback__)


def _of_others(trace: TracebackType | None) -> TracebackType | None:
    """Returns a traceback without the frames of eqsat and `runpy`."""
    if trace is None:
        return None
    rest = _of_others(trace.tb_next)
    module = str(trace.tb_frame.f_globals.get("__name__", ""))
    if module.split(".")[0] == "eqsat" or module == "runpy":
        return rest
    return TracebackType(rest, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)
