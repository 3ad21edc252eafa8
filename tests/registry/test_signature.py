"""A signature read from source: what it may say, what is refused, and which values it takes."""

import ast
import math

import pytest

from nnexp.base.errors import PluginError
from nnexp.registry.signature import SignatureReader

ALIAS = "Size = Annotated[int, Range(min=1)]"


def read(parameters, before=""):
    """The parameters of a class whose __init__ stands in line 3."""
    source = f"{before}\nclass A:\n    def __init__(self, data, {parameters}): ...\n"
    return SignatureReader(ast.parse(source), "a.py").parameters("A")[1]


def parameter(annotation, default, before=""):
    return read(f"*, x: {annotation} = {default}", before)["x"]


ALLOWED = [
    ("int", "1", [3, -3], [True, 3.0, "3", None]),
    ("builtins.int", "1", [3], [True, "3"]),
    ("float", "0.5", [2.5], [True, "2.5", None]),
    ("bool", "True", [False], [0, 1, "true"]),
    ("str", "'a'", ["b", ""], [1, None, True]),
    ("None", "None", [None], [0, ""]),
    ("Optional[int]", "None", [None, 3], ["a", 2.5]),
    ("typing.Optional[int]", "3", [None, 3], ["a", 2.5]),
    ("Union[int, str]", "1", [2, "b"], [None, 2.5]),
    ("int | None", "None", [None, 3], ["a", False]),
    ("None | int | str", "'a'", [None, 3, "b"], [2.5]),
    ("Literal['a', 'b']", "'a'", ["b"], ["c", None, 1]),
    ("Literal[1, 'full', None]", "'full'", [1, None], [2, True, 1.0, "1"]),
    ("Literal[-1]", "-1", [-1], [1]),
    ("list[int]", "[1]", [[2, 3], []], [3, [True], ["a"], "12"]),
    ("List[int]", "[1]", [[2, 3]], [[2.5]]),
    ("list[list[int]]", "[[1]]", [[[2], []]], [[2], [["a"]]]),
    ("list[int | None]", "[None]", [[1, None]], [["a"], None]),
    ("tuple[int, ...]", "(1,)", [(2, 3), ()], [3, (True,), ("a",)]),
    ("Tuple[int, ...]", "(1,)", [(2,)], [("a",)]),
    ("tuple[Annotated[int, Range(min=0, max=1)], ...]", "(1, 0)", [(0,)], [(2,), (-1, 0)]),
    ("Annotated[int, Range(min=1)]", "1", [1, 2], [0, -4, True]),
    ("Annotated[int, Range(min=1)] | None", "None", [1, None], [0]),
    ("Annotated[int | None, Range(min=1)]", "None", [1, None], [0]),
    ("Annotated[int, nnexp.Range(min=1)] | Literal['full']", "32", [1, "full"], [0, "half"]),
    ("Annotated[Annotated[int, Range(min=1)], PerLane]", "1", [1], [0]),
    ("'int | None'", "None", [None, 3], ["a"]),
    ("Optional['int']", "None", [None, 3], ["a"]),
    ("list['int']", "[]", [[3]], [["a"]]),
    ("Size", "1", [1], [0, "a"]),
    ("'Size' | None", "None", [1, None], [0, "a"]),
    ("list[Size]", "[1]", [[2]], [[0]]),
]


@pytest.mark.parametrize(("annotation", "default", "good", "bad"), ALLOWED, ids=[case[0] for case in ALLOWED])
def test_an_allowed_annotation_takes_its_own_values_and_no_others(annotation, default, good, bad):
    found = parameter(annotation, default, before=ALIAS)
    assert repr(found.default) == repr(ast.literal_eval(default))
    assert [repr(found.check(value)) for value in good] == [repr(value) for value in good]
    for value in bad:
        with pytest.raises(ValueError, match=r"expected .*, got "):
            found.check(value)


@pytest.mark.parametrize(
    ("annotation", "default", "given", "typed"),
    [
        ("float", "1", 3, "3.0"),
        ("Optional[float]", "None", -2, "-2.0"),
        ("list[float]", "[]", (1, 2.5), "[1.0, 2.5]"),
        ("tuple[int, ...]", "[1]", [2, 3], "(2, 3)"),
        ("int | float", "1", 3, "3"),
        ("float | Literal['full']", "1", 3, "3.0"),
    ],
)
def test_a_value_is_given_in_the_type_of_its_parameter(annotation, default, given, typed):
    found = parameter(annotation, default)
    assert repr(found.check(given)) == typed
    assert type(found.default) is type(found.check(found.default))


@pytest.mark.parametrize("annotation", ["float", "float | None", "Annotated[float, Range(max=1e300)]"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400], ids=["nan", "inf", "-inf", "1e400"])
def test_a_number_that_is_not_finite_is_refused(annotation, value):
    with pytest.raises(ValueError, match="expected float"):
        parameter(annotation, "1.0").check(value)


@pytest.mark.parametrize(
    ("bounds", "inside", "outside", "allowed"),
    [
        ("min=1", 1.0, 0.999, "float >= 1"),
        ("max=1", 1.0, 1.001, "float <= 1"),
        ("gt=0", 0.001, 0.0, "float > 0"),
        ("lt=1", 0.999, 1.0, "float < 1"),
        ("min=0, lt=1", 0.0, 1.0, "float >= 0 and < 1"),
        ("-1, 1", -1.0, -1.001, "float >= -1 and <= 1"),
    ],
)
def test_a_bound_holds_to_the_last_number(bounds, inside, outside, allowed):
    found = parameter(f"Annotated[float, Range({bounds})]", inside)
    assert found.check(inside) == inside
    with pytest.raises(ValueError, match=f"^expected {allowed}, got {outside}$"):
        found.check(outside)


@pytest.mark.parametrize(
    ("annotation", "per_lane"),
    [
        ("float", False),
        ("Annotated[float, Range(min=0)]", False),
        ("Annotated[float, PerLane]", True),
        ("Annotated[float | None, PerLane]", True),
        ("Annotated[float, Range(min=0), nnexp.PerLane] | None", True),
        ("Annotated[Annotated[float, PerLane], Range(min=0)]", True),
    ],
)
def test_the_per_lane_mark_is_found_wherever_it_stands(annotation, per_lane):
    assert parameter(annotation, "1.0").per_lane is per_lane


@pytest.mark.parametrize(
    ("annotation", "is_file"),
    [
        ("str | None", False),
        ("Annotated[str | None, File]", True),
        ("Annotated[str, nnexp.File] | None", True),
        ("Optional[Annotated[str, File]]", True),
        ("'Annotated[str | None, File]'", True),
    ],
)
def test_the_file_mark_is_found_wherever_it_stands(annotation, is_file):
    found = parameter(annotation, "'a.txt'")
    assert found.is_file is is_file
    assert not found.per_lane
    assert found.check("b.txt") == "b.txt"


REFUSED = [
    ("*, x=1", "'x' needs a type and a default"),
    ("*, x: int", "'x' needs a type and a default"),
    ("*args: int", "Name every parameter"),
    ("**kwargs: int", "Name every parameter"),
    ("*, x: int = N", "default of 'x' is not a literal: N"),
    ("*, x: list[int] = list()", "default of 'x' is not a literal: list()"),
    ("*, x: int = {[]: 1}", "default of 'x' is not a literal: {[]: 1}"),
    ("*, x: int = 'a'", "default of 'x' does not match its type: 'a'"),
    ("*, x: int = True", "default of 'x' does not match its type: True"),
    ("*, x: int = None", "default of 'x' does not match its type: None"),
    ("*, x: Literal['a'] = 'b'", "default of 'x' does not match its type: 'b'"),
    ("*, x: Annotated[int, Range(min=1)] = 0", "default of 'x' does not match its type: 0"),
    ("*, x: dict[str, int] = {}", "'x' has type dict[str, int]; allowed are int, float,"),
    ("*, x: tuple[int, int] = (1, 2)", "'x' has type tuple[int, int]; allowed are"),
    ("*, x: list = []", "'x' has type list; allowed are"),
    ("*, x: torch.Tensor = None", "'x' has type torch.Tensor; allowed are"),
    ("*, x: list[Foo] = []", "'x' has type Foo; allowed are"),
    ("*, x: 'dict[str, int]' = {}", "'x' has type dict[str, int]; allowed are"),
    ("*, x: 'int |' = 1", "'x' has type 'int |'; allowed are"),
    ("*, x: Literal[N] = 1", "N"),
    ("*, x: Annotated[int, Gt(1)] = 1", "'x' is annotated with Gt(1); only Range(...), PerLane and File are allowed"),
    ("*, x: Annotated[int, File] = 1", "'x' is marked File, so it must be str or str | None"),
    ("*, x: list[Annotated[str, File]] = []", "'x' is marked File, so it must be str or str | None"),
    ("*, x: Annotated[int, Range(minimum=1)] = 1", "Range(minimum=1)"),
    ("*, x: Annotated[int, Range(min=N)] = 1", "Range(min=N)"),
    ("*, x: Annotated[int, Range(min='a')] = 1", "Range(min='a')"),
]


@pytest.mark.parametrize(("parameters", "reason"), REFUSED, ids=[case[0] for case in REFUSED])
def test_a_refusal_names_file_line_and_reason(parameters, reason):
    with pytest.raises(PluginError) as caught:
        read(parameters, before="N = 1")
    assert str(caught.value).startswith("a.py:3: ")
    assert reason in str(caught.value)


INHERITING = """
class Base:
    def __init__(self, data, *, x: int = 1): ...

class Child(Base): ...

@dataclass(kw_only=True)
class Fields:
    y: int = 2
    z: str = "a"

@dataclass(kw_only=True)
class More(Fields):
    y: int = 3
    w: float = 1

class Bare(nn.Module): ...

class Stranger(Elsewhere): ...
"""


@pytest.mark.parametrize(
    ("name", "positional", "defaults"),
    [
        ("Child", ["data"], {"x": 1}),
        ("Fields", [], {"y": 2, "z": "a"}),
        ("More", [], {"y": 3, "z": "a", "w": 1.0}),
        ("Bare", [], {}),
    ],
)
def test_parameters_are_inherited_within_the_file(name, positional, defaults):
    found, parameters = SignatureReader(ast.parse(INHERITING), "a.py").parameters(name)
    assert found == positional
    assert {key: p.default for key, p in parameters.items()} == defaults


def test_a_base_from_another_file_is_refused_with_what_to_do():
    with pytest.raises(PluginError, match=r"^a\.py:19: .*Elsewhere is not in this file.* Write an __init__\.$"):
        SignatureReader(ast.parse(INHERITING), "a.py").parameters("Stranger")


@pytest.mark.parametrize(
    ("annotation", "default", "given", "chosen"),
    [
        ("Literal['nan', 'zero']", "'zero'", math.nan, "nan"),
        ("Literal['null', 'zero']", "'zero'", None, "null"),
        ("Literal['1', '2.0']", "'1'", 1, "1"),
        ("Literal['1', '2.0']", "'1'", 2.0, "2.0"),
        ("Literal['true', 'zero']", "'zero'", True, "true"),
        ("Literal['on', 'off']", "'on'", False, "off"),
        ("Literal['1'] | int", "'1'", 1, 1),
        ("Literal['null'] | None", "None", None, None),
    ],
)
def test_a_choice_that_is_read_as_another_type_is_meant_where_nothing_else_fits(annotation, default, given, chosen):
    found = parameter(annotation, default)
    assert repr(found.check(given)) == repr(chosen)
    assert repr(found.default) == repr(ast.literal_eval(default))


def test_a_value_that_several_choices_are_read_as_is_refused():
    with pytest.raises(ValueError, match="expected one of true, on, got True"):
        parameter("Literal['true', 'on']", "'on'").check(True)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 1 << 50_000], ids=["2**63", "-2**63-1", "1<<50000"])
def test_an_integer_has_at_most_64_bits_and_its_message_is_short(value):
    with pytest.raises(ValueError, match="an integer has at most 64 bits") as caught:
        parameter("int", "1").check(value)
    assert len(str(caught.value)) < 300
    assert parameter("int", "1").check(2**63 - 1) == 2**63 - 1
