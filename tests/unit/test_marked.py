"""Parts of pages that scripts write."""

import pytest

from docs.marked import replaced

PAGE = "head\n<!-- begin: a -->\n\nold\n\n<!-- end: a -->\nbetween\n<!-- begin: b -->\n<!-- end: b -->\ntail\n"


def test_only_what_stands_between_the_comments_is_replaced() -> None:
    assert replaced(PAGE, {"a": "new", "b": "first"}) == (
        "head\n<!-- begin: a -->\n\nnew\n\n<!-- end: a -->\n"
        "between\n<!-- begin: b -->\n\nfirst\n\n<!-- end: b -->\ntail\n"
    )


def test_a_page_is_replaced_by_itself() -> None:
    once = replaced(PAGE, {"a": "new"})
    assert replaced(once, {"a": "new"}) == once


@pytest.mark.parametrize("page", ["", PAGE + PAGE], ids=["none", "twice"])
def test_comments_stand_exactly_once(page: str) -> None:
    with pytest.raises(ValueError, match="<!-- begin: a --> and <!-- end: a --> once each"):
        replaced(page, {"a": "new"})
