"""Makes the programs that run in pods importable: they are modules of no package."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
for folder in ("model_repository/llm/1", "openai_middleware"):
    sys.path.append(str(ROOT / folder))  # last, so that no package is hidden by a module of the same name
