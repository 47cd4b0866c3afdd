"""Finds the function that a command line names, as `package.module:function` or `script.py:function`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any

from eqsat.commands.shapes import Arguments, ArrayType
from eqsat.errors import EqsatError
from eqsat.language.diagnostics import nearest


def import_from_here() -> None:
    """Makes modules in the current folder importable, as `python -m` does."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def find_function(target: str) -> Callable[..., Any]:
    """Imports and returns the function that a text names, as `module:function` or `script.py:function`.

    After the colon, there is the function's name, or a dotted path to it such as `Model.loss`.

    **Raises:** `EqsatError` if there is no such module or function, or if the module can't be imported.
    """
    module_name, colon, path = target.rpartition(":")
    if not colon or not module_name or not path:
        raise EqsatError(f"{target!r} names no function: write module:function, or script.py:function")
    module: Any = _imported(module_name)
    found = module
    for name in path.split("."):
        if not hasattr(found, name):
            near = nearest(name, [other for other in dir(found) if not other.startswith("_")])
            hint = f"; {near}" if near else ""
            raise EqsatError(f"there is no {name!r} in {module_name}{hint}")
        found = getattr(found, name)
    if not callable(found):
        raise EqsatError(f"{target} is no function, but of type {type(found).__name__}")
    function: Callable[..., Any] = found
    return function


def _imported(name: str) -> ModuleType:
    """Imports a module by its name, or by the path of its file."""
    is_file = name.endswith(".py") or os.sep in name
    if is_file and not os.path.isfile(name):
        raise EqsatError(f"there is no file {name!r}")
    sys.path.insert(0, os.path.dirname(os.path.abspath(name)) if is_file else os.getcwd())
    try:
        if not is_file:
            return importlib.import_module(name)
        spec = importlib.util.spec_from_file_location(os.path.basename(name).removesuffix(".py"), name)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules.setdefault(spec.name, module)
        spec.loader.exec_module(module)
        return module
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise EqsatError(f"there is no module {error.name!r}") from None
        raise EqsatError(f"{name} can't be imported: {told(error)}") from None
    except (Exception, SystemExit) as error:
        raise EqsatError(f"{name} can't be imported: {told(error)}") from None


def told(error: BaseException) -> str:
    """Describes an error from the user's code in one line, with the file and line where it was raised.

    The innermost frame that belongs neither to eqsat nor to an installed package gives the place.
    """
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((own, "<")) and "site-packages" not in frame.filename
    ]
    said = error.msg if isinstance(error, SyntaxError) else str(error)
    text = f"{type(error).__name__}: {said}".split("\n")[0]
    if isinstance(error, SyntaxError):
        return f"{text} ({error.filename}:{error.lineno})"
    return f"{text} ({frames[-1].filename}:{frames[-1].lineno})" if frames else text


def as_called(arguments: Arguments) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the positional and the named arguments, with a `jax.ShapeDtypeStruct` for every array.

    It enables JAX's 64-bit numbers if an array needs them.
    """
    import jax

    if arguments.wide:
        jax.config.update("jax_enable_x64", True)

    def typed(value: Any) -> Any:
        if isinstance(value, ArrayType):
            return jax.ShapeDtypeStruct(value.shape, jax.numpy.dtype(value.dtype))
        return value

    args, kwargs = jax.tree.map(
        typed,
        (tuple(arguments.positional), arguments.named),
        is_leaf=lambda value: isinstance(value, ArrayType),
    )
    return args, kwargs
