"""What `./dev load` answers to bad options."""

import pytest
from typer.testing import CliRunner

from embedded.cli import app


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--ramp", "5x"], "'--ramp': '5x' is not a time such as 90s or 3m"),
        (["--duration", "0s", "--ramp", "0s"], "--ramp 0s does not fit into --duration 0s"),
        (["--ramp", "6m"], "--ramp 360s does not fit into --duration 300s"),
        (["--from", "9", "--to", "8"], "--to 8 is less than --from 9"),
        (["--to", "0"], "'--to': Input should be greater than or equal to 1"),
        (["--scale", "0.5"], "'--scale': Input should be greater than or equal to 1"),
        (["--rate", "-1"], "'--rate': Input should be greater than or equal to 0"),
    ],
)
def test_bad_options(options: list[str], expected: str) -> None:
    result = CliRunner().invoke(app, ["load", *options])
    assert result.exit_code == 2
    assert expected in result.output
