"""Probes are found and described as every plugin is, and inherit their schedule."""

from __future__ import annotations

import pytest

from nnexp.registry.discovery import Registry

PROBE = '''"""Our own."""
from dataclasses import dataclass
from typing import Annotated, Literal
from nnexp import Probe, Range, probe

@probe
@dataclass(kw_only=True)
class Mine(Probe):
    """Looks.

    Args:
        size: of it.
    """
    size: float = 2.0
'''
ENDS = PROBE + '    every: Annotated[int, Range(min=1)] | Literal["log", "ends"] = "ends"\n'


@pytest.mark.parametrize(("source", "every"), [(PROBE, "log"), (ENDS, "ends")])
def test_a_probe_has_its_own_keys_and_a_schedule(write_plugin, source: str, every: str) -> None:
    registry = Registry([write_plugin("mine", source, kind="probe").parent.parent])
    assert registry.broken == {}
    plugin = registry.get("probe", "mine")
    assert plugin.defaults == {"every": every, "size": 2.0}
    assert plugin.parameters["every"].help.startswith("number of updates between observations")
    assert plugin.load()(every=3).every == 3


@pytest.mark.parametrize("name", ["all", "default"])
def test_a_name_that_stands_for_several_is_taken(write_plugin, name: str) -> None:
    registry = Registry([write_plugin(name, PROBE, kind="probe").parent.parent])
    (broken,) = registry.broken.values()
    assert "are reserved. Rename the file." in broken.reason


WRONG = [
    ("no base", PROBE.replace("Mine(Probe)", "Mine"), r"a probe inherits its schedule: class ...\(nnexp.Probe\)"),
    ("no dataclass", PROBE.replace("@dataclass(kw_only=True)\n", ""), r"Add @dataclass\(kw_only=True\) under @probe"),
    ("seed", PROBE.replace("size: float", "seed: float"), "'seed' is set by nnexp"),
    ("model", PROBE.replace("@probe", "@model"), "Move the file to model/"),
]


@pytest.mark.parametrize(("source", "reason"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_what_is_no_probe_is_refused_with_what_to_do(write_plugin, source: str, reason: str) -> None:
    registry = Registry([write_plugin("mine", source, kind="probe").parent.parent])
    (broken,) = registry.broken.values()
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(broken.reason)
