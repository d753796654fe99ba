"""Parts of a page that a script writes, between the comments `begin: NAME` and `end: NAME`."""

from collections.abc import Mapping


def replaced(page: str, parts: Mapping[str, str]) -> str:
    """The page with these parts, by name. Raises `ValueError` where the comments of one are not there exactly once."""
    for name, part in parts.items():
        begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
        if page.count(begin) != 1 or page.count(end) != 1:
            raise ValueError(f"the page has to have {begin} and {end} once each")
        page = f"{page.partition(begin)[0]}{begin}\n\n{part}\n\n{end}{page.partition(end)[2]}"
    return page
