"""Reading a page back: what a parser sees of it."""

import re
from html.parser import HTMLParser

_EMPTY = {"meta", "link", "input", "br", "wbr", "path", "line", "circle", "rect"}
#: Attributes that may lead elsewhere.
_LEADING = {"src", "href", "action", "srcset", "data", "poster"}


class Reading(HTMLParser):
    """A page taken apart; raises where elements do not end as they began."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.text, self.links, self.ids = [], [], [], [], []
        self.handlers = []
        self.feed(page)
        self.close()
        assert self.open == [], f"never ended: {self.open}"

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        for name, value in attributes:
            if name in _LEADING:
                self.links.append(value)
            if name == "id":
                self.ids.append(value)
            if name.startswith("on"):
                self.handlers.append(name)
        if tag not in _EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in _EMPTY:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open, f"{tag} ends, and was never begun"
        assert self.open[-1] == tag, f"{tag} ends inside {self.open[-1]}"
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data)

    @property
    def words(self):
        """All text that a person sees, spaces made even."""
        return " ".join("".join(self.text).split())

    def count(self, tag):
        """Return how many elements of a kind there are."""
        return sum(name == tag for name, _ in self.tags)


def read(page):
    """Return the page taken apart, after checking what holds for every page."""
    found = Reading(page)
    assert found.handlers == []
    assert len(found.ids) == len(set(found.ids))
    own = re.compile(r"#.*|data:.*|[\w%-]*explorer\.html")  # the explorer lies beside the page
    outside = [link for link in found.links if not own.fullmatch(link)]
    assert outside == []
    assert {link[1:] for link in found.links if link.startswith("#")} <= set(found.ids)
    assert found.count("script") == found.count("style") == 1
    assert found.count("table") == found.count("caption")
    assert found.count("h1") == found.count("title") == 1
    return found
