"""Golden URN sets: a resource that changes its URN is deleted and made anew in every stack that runs.

After a change that is meant, write them anew and commit them with it:

```
./dev test engine --update-golden
```
"""

from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"


def write(stack: str, urns: Iterable[str], folder: Path = FOLDER) -> None:
    (folder / f"{stack}.txt").write_text("".join(f"{urn}\n" for urn in sorted(urns)))


def difference(stack: str, urns: Iterable[str], folder: Path = FOLDER) -> str:
    """What an upgrade of a running stack would delete and create; empty if its URNs are the golden ones."""
    file = folder / f"{stack}.txt"
    before, after = set(file.read_text().splitlines() if file.exists() else ()), set(urns)
    if before == after:
        return ""
    lines = [*(f"- {urn}" for urn in sorted(before - after)), *(f"+ {urn}" for urn in sorted(after - before))]
    return "\n".join(
        [
            f"The resources of stack {stack} are not those of {file.name}. A running stack would delete (-) and create "
            f"(+):",
            *lines,
            "A rename needs an alias (pulumi.Alias) in the same release. If the change is meant, run:",
            "  ./dev test engine --update-golden",
        ]
    )
