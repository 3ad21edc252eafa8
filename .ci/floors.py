"""Print each dependency of the project at its lowest version: what pyproject.toml promises to work."""

import re
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
for text in project["dependencies"]:
    found = re.fullmatch(r"([\w.-]+)>=([\w.]+).*", text)
    assert found, f"{text}: give a dependency a floor, NAME>=VERSION"
    print(f"{found[1]}=={found[2]}")
