"""How a fresh interpreter, perhaps of another environment, comes to run a module of this very package.

The package is loaded from its files without a change of the search path: the environments' packages stay apart, and
both ends of a channel run the same code whatever version of it the other environment may have installed.
"""

from __future__ import annotations

from pathlib import Path

import conformance

_CODE = """\
import importlib, importlib.util, sys
spec = importlib.util.spec_from_file_location("conformance", sys.argv[1])
package = importlib.util.module_from_spec(spec)
sys.modules["conformance"] = package
spec.loader.exec_module(package)
sys.exit(importlib.import_module(sys.argv[2]).main(sys.argv[3:]))
"""


def command(python: str, module: str, *arguments: str) -> list[str]:
    """The command line by which the interpreter `python` calls `main` of `module` with `arguments`."""
    return [python, "-c", _CODE, str(Path(conformance.__file__).resolve()), module, *arguments]
