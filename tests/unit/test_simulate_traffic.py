"""Traffic: generated shapes, and CSV files good and bad."""

import time
from pathlib import Path

import numpy as np
import pytest

from eks_llm.simulate.traffic import TrafficError, bursts, diurnal, ramp, read_csv, stages, step_for


def random() -> np.random.Generator:
    return np.random.default_rng(1)


def csv(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_text(text)
    return path


def test_even_arrivals_are_as_many_as_the_rate_says() -> None:
    trace = stages([(330, 2), (360, 4)]).trace(None)
    assert trace.requests == 330 * 2 + 360 * 4
    assert trace.seconds == 690
    per_second = trace.arrivals.reshape(-1, 4).sum(axis=1)  # steps of a quarter of a second
    assert set(per_second[:330]) == {2}


def test_random_arrivals_vary_like_poisson_and_repeat_by_seed() -> None:
    rates = stages([(10_000, 3)])
    trace = rates.trace(random())
    assert trace.requests == pytest.approx(30_000, rel=0.02)
    per_second = trace.arrivals.reshape(10_000, -1).sum(axis=1)
    assert per_second.var() == pytest.approx(3, rel=0.1)
    assert (rates.trace(random()).arrivals == trace.arrivals).all()


def test_shapes_have_the_rates_they_are_named_for() -> None:
    rising = ramp(1, 5, start=100, length=200, total=600).trace(None)
    assert rising.requests == pytest.approx(100 * 1 + 200 * 3 + 300 * 5, abs=2)
    day = diurnal(10, 90, peak_hour=14, days=1)
    hourly = day.rates.reshape(24, 60).mean(axis=1)
    assert hourly.mean() == pytest.approx(50)
    assert hourly.argmax() in (13, 14)
    assert hourly.argmin() in (1, 2)
    waves = bursts(base=2, burst=8, every=600, length=60, total=1200).trace(None)
    assert waves.requests == 2 * (540 * 2 + 60 * 8)


def test_a_day_takes_steps_of_a_second_and_an_hour_finer_ones() -> None:
    assert step_for(86_400) == 1
    assert step_for(3_600) == 0.25
    assert step_for(7 * 86_400) == 10


def test_a_file_of_arrivals(tmp_path: Path) -> None:
    trace = read_csv(csv(tmp_path, "seconds\n0\n0.1\n2.5\n9\n"), random())
    assert trace.requests == 4
    assert trace.arrivals[0] == 2
    assert trace.arrivals[10] == 1


def test_a_file_of_rates_may_have_other_columns(tmp_path: Path) -> None:
    rows = "\n".join(f"{60 * minute},{rate},x" for minute, rate in enumerate([2, 4, 0, 0]))
    trace = read_csv(csv(tmp_path, f"seconds,rate,region\n{rows}\n"), random())
    assert trace.seconds == 180
    assert trace.requests == pytest.approx(60 * 6, rel=0.15)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("seconds\n", "no rows below the header"),
        ("time,rate\n0,1\n", "no column `seconds` (columns: time, rate)"),
        ("seconds\n0\nten\n", "row 3: 'ten' is not a number"),
        ("seconds,rate\n0,1\n# quiet,1\n60,2\n", "row 3: '# quiet' is not a number"),
        ("seconds,rate\n0,1\n60\n120,1\n", "row 3: a value is missing"),
        ("seconds\n0\nnan\n", "row 3: nan is not a finite number"),
        ("seconds,rate\n0,2\n60,nan\n120,2\n", "row 3: nan is not a finite number"),
        ("seconds,rate\n0,2\n60,inf\n120,2\n", "row 3: inf is not a finite number"),
        ("seconds,rate\n0,1\n60,1\n60,2\n120,1\n", "row 4: 60 is the time of the row above, too"),
        ("seconds\n1700000000\n1700000060\n", "row 2: 1700000000: write seconds since the trace began, not a date"),
        ("seconds\n-5\n0\n", "row 2: -5 is before 0"),
        ("seconds\n0\n9\n4\n", "row 4: 4 is earlier than the row above; sort the file"),
        ("seconds,rate\n0,1\n", "a rate needs a second row"),
        ("seconds,rate\n0,1\n60,-2\n120,0\n", "row 3: -2 requests per second is negative"),
        (
            "seconds,rate\n0,1\n60,1\n120,1\n3720,1\n3780,0\n",
            "row 4: nothing between 120 s and 3720 s, where rows usually are 60 s apart",
        ),
        ("seconds\n0\n99999999\n", "lasts 1157 days; cut it to at most 31"),
    ],
)
def test_bad_files_are_refused_with_the_row(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TrafficError) as error:
        read_csv(csv(tmp_path, text), random())
    assert message in str(error.value)
    assert "trace.csv" in str(error.value) or "cut it" in message


def test_a_rate_that_nobody_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrafficError, match=r"1e\+20 requests per second; at most 1,000,000 are simulated"):
        read_csv(csv(tmp_path, "seconds,rate\n0,1e20\n60,0\n"), random())
    with pytest.raises(TrafficError, match="inf requests per second"):
        stages([(60, float("inf"))]).trace(None)


def test_a_file_of_a_spreadsheet_begins_with_a_byte_order_mark(tmp_path: Path) -> None:
    assert read_csv(csv(tmp_path, "\ufeffseconds,rate\r\n0,0\r\n60,0\r\n"), random()).seconds == 60


def test_a_missing_file_and_a_binary_one(tmp_path: Path) -> None:
    with pytest.raises(TrafficError, match="No such file"):
        read_csv(tmp_path / "none.csv", random())
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(TrafficError, match="not a text file"):
        read_csv(tmp_path / "binary.csv", random())


def test_a_million_rows_are_read_in_seconds(tmp_path: Path) -> None:
    """Ten million take ten times as long; benchmarks/scaling.py reads them."""
    path = tmp_path / "many.csv"
    np.savetxt(path, np.arange(1_000_000) / 50, fmt="%.2f", header="seconds", comments="")
    begin = time.process_time()
    assert read_csv(path, random()).requests == 1_000_000
    assert time.process_time() - begin < 5
