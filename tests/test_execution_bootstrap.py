"""A fresh interpreter runs this very package, whatever else of the same name it could find."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from conformance.execution import bootstrap

_ROOT = Path(bootstrap.__file__).resolve().parents[2]
PROBE = "def main(arguments):\n    import conformance.runner as r\n    print(r.__file__, *arguments)\n    return 5\n"


def test_the_parents_own_package_is_run_though_a_decoy_comes_first_on_the_path(tmp_path: Path) -> None:
    (tmp_path / "conformance").mkdir()
    (tmp_path / "conformance" / "__init__.py").write_text("raise SystemExit('a decoy of the same name')")
    (tmp_path / "probe.py").write_text(PROBE)
    command = bootstrap.command(sys.executable, "probe", "one", "two words")
    environment = {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (5, "")
    assert done.stdout == f"{_ROOT / 'conformance' / 'runner.py'} one two words\n"
