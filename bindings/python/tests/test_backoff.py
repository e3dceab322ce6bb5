"""The waits that servers ask for and the backoff, by the cases of all languages."""

import json
from datetime import timedelta
from http.client import HTTPMessage
from pathlib import Path

import polylimit
import pytest

CASES = json.loads((Path(__file__).parents[3] / "tests" / "conformance" / "server_wait.json").read_text())


def names(kind):
    return {"argvalues": CASES[kind], "ids": [case.get("name") or case["message"] for case in CASES[kind]]}


def in_us(seconds):
    return None if seconds is None else round(seconds * 1e6)


@pytest.mark.parametrize("case", **names("server_wait"))
@pytest.mark.parametrize("form", ["text", "bytes"])
def test_wait_that_a_response_asks_for(case, form):
    value = str if form == "text" else str.encode
    headers = [(value("RateLimit"), value(line)) for line in case.get("rate_limit", [])]
    if "retry_after" in case:
        headers.append((value("Retry-After"), value(case["retry_after"])))
    now = timedelta(microseconds=case["now_us"])
    assert in_us(polylimit.server_wait(headers, now=now)) == case["wait_us"]


def test_now_is_the_system_time_by_default():
    assert polylimit.server_wait({"Retry-After": "Sun, 06 Nov 1994 08:49:37 GMT"}) == 0
    assert polylimit.server_wait({"Retry-After": "Fri, 31 Dec 2100 23:59:59 GMT"}) > 0
    assert polylimit.server_wait({}) is None


def test_milliseconds_and_the_date_of_the_response_count():
    assert polylimit.server_wait({"retry-after-ms": "120", "retry-after": "1"}) == 0.12
    headers = {"date": "Sun, 06 Nov 1994 08:49:37 GMT", "retry-after": "Sun, 06 Nov 1994 08:49:39 GMT"}
    assert polylimit.server_wait(headers) == 2
    lines = HTTPMessage()
    for line in ('"a";r=0;t=4', '"b";r=0;t=9'):
        lines.add_header("RATELIMIT", line)
    assert polylimit.server_wait(lines) == 9


def backoff(settings):
    durations = {name[:-3]: timedelta(microseconds=us) for name, us in settings.items() if name.endswith("_us")}
    others = {name: value for name, value in settings.items() if not name.endswith("_us")}
    return polylimit.Backoff(**durations, **others)


@pytest.mark.parametrize("case", **names("backoff"))
def test_backoff(case):
    asked = timedelta(microseconds=case["server_wait_us"]) if "server_wait_us" in case else None
    wait = in_us(backoff(case["settings"]).wait(case["retry"], asked))
    if case["wait_us"] is None:
        assert wait is None
    else:
        assert case["wait_us"][0] <= wait <= case["wait_us"][1]


@pytest.mark.parametrize("case", **names("refused"))
def test_setting_out_of_range_is_refused(case):
    with pytest.raises(polylimit.InvalidArgumentError) as caught:
        backoff(case["settings"])
    assert str(caught.value) == case["message"]


def test_argument_of_another_type_is_refused():
    with pytest.raises(TypeError, match=r"^base is of type str: allowed are seconds as a number, or a timedelta$"):
        polylimit.Backoff(base="1s")
    for headers, message in [
        (5, r"^headers is of type int: allowed is a mapping of header names to values, or pairs of them$"),
        ("Retry-After", r"^headers is of type str: "),
        (["Retry-After"], r"^an item of headers is of type str: allowed is a pair of a name and a value$"),
        ({"Retry-After": 5}, r"^the value of a header is of type int: allowed are str and bytes$"),
        ({None: "5"}, r"^the name of a header is of type NoneType: allowed are str and bytes$"),
    ]:
        with pytest.raises(TypeError, match=message):
            polylimit.server_wait(headers)
