"""The catalogue's list of arguments is the pinned vLLM's own."""

import yaml

from tests.serving import arguments


def test_the_catalogue_has_the_arguments_of_the_installed_vllm() -> None:
    assert yaml.safe_load(arguments.FILE.read_text(encoding="utf-8")) == arguments.read()
