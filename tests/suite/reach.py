"""Which test files a change can reach: what `./dev test changed` runs.

A file depends on the modules that it imports, wherever in it, or starts by `-m`, and on the files and folders whose
path it builds or names, as in `ROOT / "docs" / "serving.md"`. Data also counts as part of the modules beside it, as a
catalogue's YAML file does. All of it is read from the sources; nothing is imported.
"""

import ast
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path, PurePosixPath

from tests.suite.levels import LEVELS

IMPORT_ROOTS = ("components", "infra", "policy", "model_repository/llm/1", "openai_middleware", "")
"""Folders below which a module's name begins, as PYTHONPATH has them somewhere."""
EVERYWHERE = ("requirements.txt", "requirements-dev.txt", "pyproject.toml", "components/pyproject.toml")
"""Files that decide what is installed, or how tests run."""


class RevisionError(Exception):
    """Git cannot say what has changed. The message is its own."""


def changed_files(root: Path, against: str) -> list[str]:
    """Files that differ from where this branch left `against`, committed or not, and new ones."""

    def git(*arguments: str) -> list[str]:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RevisionError(done.stderr.strip() or f"git {arguments[0]} failed")
        return done.stdout.split("\0") if "-z" in arguments else done.stdout.split()

    (base,) = git("merge-base", against, "HEAD")
    names = git("diff", "--name-only", "--no-renames", "-z", base)
    names += git("ls-files", "--others", "--exclude-standard", "-z")
    return sorted({name for name in names if name})


class Reach:
    """The dependencies of a tree of files, given as their names and, for Python, their texts."""

    def __init__(self, names: Iterable[str], sources: Mapping[str, str]) -> None:
        self.names = set(names)
        self.folders: dict[str, list[str]] = {}
        for name in self.names:
            for folder in list(PurePosixPath(name).parents)[:-1]:  # without the root: it is no dependency on everything
                self.folders.setdefault(str(folder), []).append(name)
        self.uses = {name: set(self._used(name, source)) for name, source in sources.items()}

    @classmethod
    def of(cls, root: Path) -> "Reach":
        listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        done = subprocess.run(listing, cwd=root, capture_output=True, text=True, check=True)
        names = [name for name in done.stdout.split("\0") if name and (root / name).is_file()]
        sources = {name: (root / name).read_text(encoding="utf-8") for name in names if name.endswith(".py")}
        return cls(names, sources)

    def tests(self, changed: Iterable[str]) -> list[str]:
        """The test files that depend on any of `changed`, in the order of their levels."""
        touched = set(changed)
        files = [name for name in self.uses if is_test(name)]
        if touched & set(EVERYWHERE):
            reached = files
        else:
            touched |= {module for name in touched for module in self._beside(name)}
            reached = [name for name in files if self._all_of(name) & touched]
        return sorted(reached, key=lambda name: (list(LEVELS).index(level(name)), name))

    def _all_of(self, test: str) -> set[str]:
        """A test file with all that it depends on. The conftest.py of each folder above is imported by pytest."""
        folders = PurePosixPath(test).parents
        found = {test, *(name for folder in folders if (name := f"{folder}/conftest.py") in self.uses)}
        queue = list(found)
        while queue:
            for used in self.uses.get(queue.pop(), set()) - found:
                found.add(used)
                queue.append(used)
        return found

    def _beside(self, name: str) -> Iterator[str]:
        """The modules in the folder of a file that is none itself."""
        if not name.endswith(".py"):
            folder = PurePosixPath(name).parent
            if folder != PurePosixPath("."):
                yield from (other for other in self.uses if PurePosixPath(other).parent == folder)

    def _used(self, name: str, source: str) -> Iterator[str]:
        folder = PurePosixPath(name).parent
        nodes = list(ast.walk(ast.parse(source)))
        inner = {id(node.left) for node in nodes if isinstance(node, ast.BinOp)}  # of a longer path
        for node in nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield from self._modules(alias.name, folder)
            elif isinstance(node, ast.ImportFrom):
                above = [folder, *folder.parents][node.level - 1] if node.level else None
                origin = ".".join([*(above.parts if above else ()), *filter(None, [node.module])])
                roots = ("",) if node.level else None
                for dotted in (origin, *(f"{origin}.{alias.name}" for alias in node.names)):
                    yield from self._modules(dotted, folder, roots)
            elif isinstance(node, (ast.List, ast.Tuple)):
                yield from self._started(node.elts, folder)
            if id(node) not in inner:
                for path in paths(node):
                    yield from self._below(path)

    def _started(self, words: list[ast.expr], folder: PurePosixPath) -> Iterator[str]:
        """Modules that a command line starts: `python -m embedded`."""
        texts = [word.value if isinstance(word, ast.Constant) else None for word in words]
        for option, module in pairwise(texts):
            if option == "-m" and isinstance(module, str):
                yield from self._modules(module, folder)
                yield from self._modules(f"{module}.__main__", folder)

    def _modules(self, dotted: str, folder: PurePosixPath, roots: Iterable[str] | None = None) -> Iterator[str]:
        path = dotted.replace(".", "/")
        for root in roots or (*IMPORT_ROOTS, str(folder)):
            base = f"{root}/{path}" if root else path
            yield from (file for file in (f"{base}.py", f"{base}/__init__.py") if file in self.names)

    def _below(self, path: str) -> Iterator[str]:
        """The file of this path, or all in the folder of this path."""
        if path in self.names:
            yield path
        else:
            yield from self.folders.get(path, ())


def paths(node: ast.AST) -> Iterator[str]:
    """The path below the repository's root that an expression builds or names, if it is one."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        parts: list[str] = []
        step: ast.expr = node
        while isinstance(step, ast.BinOp) and isinstance(step.op, ast.Div):
            if not (isinstance(step.right, ast.Constant) and isinstance(step.right.value, str)):
                parts.clear()  # a part that is only known later: what comes before it counts
            else:
                parts.insert(0, step.right.value)
            step = step.left
        if isinstance(step, ast.Constant) and isinstance(step.value, str):
            parts.insert(0, step.value)
        yield "/".join(part.strip("/") for part in parts)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
        yield node.value.removeprefix("./")


def is_test(name: str) -> bool:
    path = PurePosixPath(name)
    return path.parts[0] == "tests" and level(name) in LEVELS and path.name.startswith("test_") and path.suffix == ".py"


def level(name: str) -> str:
    """The level of a file below tests/."""
    return (*PurePosixPath(name).parts, "")[1]
