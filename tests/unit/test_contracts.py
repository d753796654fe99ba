"""Rules that hold for every component and every file, checked where a review would forget them."""

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, is_typeddict

import pulumi
import pytest
from pulumi.provider.experimental.analyzer import Analyzer
from pydantic import BaseModel

import eks_llm

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "components" / "eks_llm"
LAYERS = ("aws", "operators", "serving")
"""Subpackages that hold components."""


def modules(*layers: str) -> list[ModuleType]:
    names = [
        item.name
        for layer in layers
        for item in pkgutil.iter_modules([str(PACKAGE / layer)], f"{eks_llm.__name__}.{layer}.")
    ]
    return [importlib.import_module(name) for name in names]


def defined_in(module: ModuleType) -> Iterator[tuple[str, Any]]:
    return ((n, v) for n, v in vars(module).items() if getattr(v, "__module__", None) == module.__name__)


COMPONENTS: list[type[pulumi.ComponentResource]] = [
    value
    for module in modules(*LAYERS)
    for name, value in defined_in(module)
    if inspect.isclass(value) and issubclass(value, pulumi.ComponentResource) and not name.startswith("_")
]
SOURCES = sorted(PACKAGE.rglob("*.py"))


def layer_of(file: Path) -> str:
    """The subpackage of a file, or the module's own name for one directly in the package."""
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def source_id(file: Path) -> str:
    return str(file.relative_to(PACKAGE))


# Arguments ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("component", COMPONENTS, ids=lambda c: c.__name__)
def test_a_component_has_the_one_signature_and_token(component: type[pulumi.ComponentResource]) -> None:
    parameters = list(inspect.signature(component.__init__).parameters.values())
    assert [parameter.name for parameter in parameters] == ["self", "name", "args", "opts"]
    assert parameters[3].default is None
    assert f'"eks-llm:index:{component.__name__}"' in inspect.getsource(component)


@pytest.mark.parametrize("component", COMPONENTS, ids=lambda c: c.__name__)
def test_public_arguments_are_those_of_the_private_model(component: type[pulumi.ComponentResource]) -> None:
    module = sys.modules[component.__module__]
    args, model = getattr(module, f"{component.__name__}Args"), getattr(module, f"_{component.__name__}")
    assert_same_fields(args, model)


def test_nested_arguments_are_those_of_their_models() -> None:
    pairs = [
        (value, vars(module)[name.removesuffix("Args")])
        for module in modules(*LAYERS)
        for name, value in defined_in(module)
        if is_typeddict(value) and name.removesuffix("Args") in vars(module)
    ]
    pairs = [(args, model) for args, model in pairs if issubclass(model, BaseModel)]
    assert pairs
    for args, model in pairs:
        assert_same_fields(args, model)


def assert_same_fields(args: Any, model: type[BaseModel]) -> None:
    assert args.__required_keys__ | args.__optional_keys__ == model.model_fields.keys()
    required = {name for name, field in model.model_fields.items() if field.is_required()}
    assert args.__required_keys__ == required, f"{args.__name__}: required keys"


@pytest.mark.parametrize("file", SOURCES, ids=source_id)
def test_every_argument_is_documented(file: Path) -> None:
    typed_dicts = [
        node
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.ClassDef) and "TypedDict" in {ast.unparse(base) for base in node.bases}
    ]
    missing = [
        f"{node.name}.{ast.unparse(field.target)}"
        for node in typed_dicts
        for field, after in zip(node.body, [*node.body[1:], ast.Pass()], strict=True)
        if isinstance(field, ast.AnnAssign)
        and not (isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant))
    ]
    assert not missing, f"no docstring under {', '.join(missing)}"


def test_pulumi_can_offer_every_component_to_other_languages() -> None:
    analyzed = Analyzer("eks-llm").analyze(COMPONENTS)
    assert analyzed["component_definitions"].keys() == {component.__name__ for component in COMPONENTS}


# Structure ----------------------------------------------------------------------------------------------------------


def imports(file: Path) -> Iterator[str]:
    """What a file imports, as absolute names of modules or of names in them."""
    package = [eks_llm.__name__, *file.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = [*package[: len(package) - node.level + 1], node.module] if node.level else [node.module]
            yield from (".".join([*filter(None, origin), alias.name]) for alias in node.names)


MAY_IMPORT = {
    "catalog": "core",
    "core": "catalog",
    "sizing": "catalog core",
    "observe": "catalog core",
    "aws": "sizing catalog core",
    "operators": "observe sizing catalog core",
    "serving": "observe sizing catalog core",
    "platform": "aws operators serving sizing catalog core",
    "simulate": "serving observe sizing catalog core",
    "explain": "simulate observe core",
    "plan": "platform sizing catalog core",
    "commands": "plan explain simulate platform serving sizing catalog core",
    "cli": "commands",
}
"""The layout, as CONTRIBUTING draws it: each room of the package, and the rooms that it may import."""
ANYWHERE = {"version"}
"""Modules beside the rooms: the version is a constant."""
WITHOUT_PULUMI = {"sizing", "catalog", "simulate", "observe"}


def test_every_folder_is_a_room_of_the_layout() -> None:
    assert {layer_of(file) for file in SOURCES} - {"__init__"} == MAY_IMPORT.keys() | ANYWHERE


def test_the_layout_is_drawn_in_contributing() -> None:
    drawn = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for room, others in MAY_IMPORT.items():
        assert re.search(rf"^ *{room} +→ {others}$", drawn, re.MULTILINE), f"{room} → {others}"


@pytest.mark.parametrize("file", SOURCES, ids=source_id)
def test_imports_go_in_one_direction(file: Path) -> None:
    room = layer_of(file)
    inside = {name.split(".")[1] for name in imports(file) if name.startswith(f"{eks_llm.__name__}.")}
    rooms = MAY_IMPORT.keys() if room == "__init__" else {room, *MAY_IMPORT.get(room, "").split()}
    assert inside & (MAY_IMPORT.keys() | ANYWHERE) <= rooms | ANYWHERE
    if room in WITHOUT_PULUMI:
        assert not [name for name in imports(file) if name.startswith("pulumi")]
    assert not [name for name in imports(file) if name == "__future__.annotations"]


ONLY_IN_INFRA = {"Config", "get_stack", "get_project", "get_organization", "export", "StackReference"}


@pytest.mark.parametrize("file", [f for f in SOURCES if layer_of(f) not in ("plan", "commands", "cli")], ids=source_id)
def test_only_infra_knows_a_stack(file: Path) -> None:
    # The platform's loader reads a configuration that the program hands to it, and no other.
    forbidden = {f"pulumi.{name}" for name in ONLY_IN_INFRA - ({"Config"} if layer_of(file) == "platform" else set())}
    used = {ast.unparse(node) for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Attribute)}
    assert not used & forbidden
    assert not forbidden & set(imports(file))
    called = {ast.unparse(call.func) for call in calls(ast.parse(file.read_text()))}
    assert "pulumi.Config" not in called


def test_the_reference_program_can_be_read_in_one_go() -> None:
    assert len((ROOT / "infra" / "__main__.py").read_text().splitlines()) <= 120


# Outputs ------------------------------------------------------------------------------------------------------------


def cloud_names(tree: ast.Module) -> set[str]:
    """The names by which a file knows the provider SDKs and what it imports from them."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {a.asname or a.name.split(".")[0] for a in node.names if a.name.startswith("pulumi_")}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pulumi_"):
            found |= {a.asname or a.name for a in node.names}
    return found


def calls(node: ast.AST) -> Iterator[ast.Call]:
    return (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))


def applied(tree: ast.Module) -> Iterator[ast.AST]:
    """Bodies of the functions that are given to `apply`."""
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for call in calls(tree):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "apply" and call.args:
            function = call.args[0]
            if isinstance(function, ast.Lambda):
                yield function
            elif isinstance(function, ast.Name) and function.id in functions:
                yield functions[function.id]


def creates_a_resource(call: ast.Call, clouds: set[str]) -> bool:
    name = ast.unparse(call.func)
    first, last = name.split(".")[0], name.rsplit(".", 1)[-1]
    components = {component.__name__ for component in COMPONENTS}
    return last in components or (first in clouds and last[0].isupper() and not last.endswith("Args"))


def asks_the_cloud(call: ast.Call, clouds: set[str]) -> bool:
    name = ast.unparse(call.func)
    function = re.fullmatch(r"(\w+)\.(?:\w+\.)*(get|get_\w+)", name)
    return name.startswith("pulumi.runtime.invoke") or bool(function and function[1] in clouds)


BAD = """
import pulumi_aws as aws
def make(arn): aws.s3.Bucket("b")
one.apply(lambda x: aws.s3.Bucket(x))
two.apply(make)
aws.get_caller_identity()
aws.ec2.Vpc.get("vpc", "vpc-1")
pulumi.Output.from_input(1).apply(lambda x: x.get("key"))
"""


def test_the_checks_below_find_what_they_look_for() -> None:
    tree = ast.parse(BAD)
    clouds = cloud_names(tree)
    assert len([c for body in applied(tree) for c in calls(body) if creates_a_resource(c, clouds)]) == 2
    assert len([call for call in calls(tree) if asks_the_cloud(call, clouds)]) == 2


@pytest.mark.parametrize("file", [*SOURCES, *(ROOT / "infra").glob("*.py")], ids=lambda f: str(f.relative_to(ROOT)))
def test_no_resource_is_made_in_apply_and_nothing_is_asked_of_the_cloud(file: Path) -> None:
    tree = ast.parse(file.read_text())
    clouds = cloud_names(tree)
    made = [ast.unparse(c) for body in applied(tree) for c in calls(body) if creates_a_resource(c, clouds)]
    assert not made, "a preview does not show what apply makes"
    asked = [ast.unparse(c) for c in calls(tree) if asks_the_cloud(c, clouds)]
    assert not asked, "a preview without credentials cannot ask the cloud"


# The tree -----------------------------------------------------------------------------------------------------------

MACHINE_PATH = re.compile(r"(?<![\w./~@:-])/(?:Users|work|home/(?!triton|app|vllm)\w+|root/(?!\.cache))/?\S*")
"""A path of a developer's machine; home folders inside the images are none."""


def test_no_path_of_a_machine_is_written_in_the_tree() -> None:
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    files = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    found: list[str] = []
    for name in filter(None, files):
        file = ROOT / name
        if file.is_file() and file != Path(__file__) and file.suffix not in (".sum", ".png"):
            text = file.read_text(encoding="utf-8", errors="replace")
            found += [f"{name}: {match.group()}" for match in MACHINE_PATH.finditer(text)]
    assert not found
