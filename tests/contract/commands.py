"""Commands of nnexp, several in one process of their own: to start one takes longer than most commands do."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

# What each wrote and imported is told as JSON.
RUN_ALL = """
import contextlib, io, json, os, sys
from nnexp.commands.cli import command_line as main
results = []
for command in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(command)
        except SystemExit as stop:
            code = stop.code
    results.append([code, out.getvalue(), err.getvalue(), "torch" in sys.modules, os.listdir()])
print(json.dumps(results))
"""


def run_all(commands: Sequence[Sequence[str]], folder: Path, env: dict[str, str] | None = None) -> list[list]:
    """Return of each command its exit code, output, errors, whether torch was imported, and the names in the folder."""
    words = [sys.executable, "-c", RUN_ALL, json.dumps(commands)]
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
