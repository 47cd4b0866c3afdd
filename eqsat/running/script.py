"""Running a script, a module or a text as Python's own command line would."""

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
"""The exit status of a script that was interrupted, as shells have it."""


@dataclass(frozen=True)
class Script:
    """What to run.

    **Attributes:**

    - `kind`: "file" (a folder or archive with a `__main__.py`, too), "module" or "text".
    - `what`: its path, its name, or the text itself.
    - `arguments`: what it finds in `sys.argv` after its own name.
    """

    kind: str
    what: str
    arguments: Sequence[str] = ()

    def check(self) -> None:
        """**Raises:** `EqsatError` if there is no such script."""
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
        """Run it to its end; returns the exit status. An exception is shown as Python would show it."""
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
    """Execute a text as the module `__main__`, which it stays: pickles and other processes look there."""
    main = ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    if file != "<string>":
        main.__file__ = file
    sys.modules["__main__"] = main
    exec(compile(source, file, "exec", dont_inherit=True), main.__dict__)


def _status(code: object) -> int:
    """The exit status that `sys.exit(code)` asks for; what is no number is a message."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    print(code, file=sys.stderr)
    return 1


def _show(error: BaseException) -> None:
    """Show an exception as Python does at the end of a script, without the frames of what runs it."""
    chained: BaseException | None = error
    while chained is not None:
        chained.__traceback__ = _of_others(chained.__traceback__)
        chained = chained.__cause__ or chained.__context__
    if sys.excepthook is sys.__excepthook__:
        traceback.print_exception(error)
    else:
        sys.excepthook(type(error), error, error.__traceback__)


def _of_others(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without eqsat's frames, and those of what runs modules."""
    if trace is None:
        return None
    rest = _of_others(trace.tb_next)
    module = str(trace.tb_frame.f_globals.get("__name__", ""))
    if module.split(".")[0] == "eqsat" or module == "runpy":
        return rest
    return TracebackType(rest, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)
