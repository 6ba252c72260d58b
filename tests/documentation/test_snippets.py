"""Every command and snippet of README.md and docs/ runs; what is skipped says why."""

import warnings

import pytest

from .snippets import ROOT, RUN, SHOWN, BadSnippet, Reader, commands, needs, pages, snippets

#: Pages of a second or two; the others are slow.
QUICK = {"docs/api/options.md", "docs/classification.md"}


def shown(page):
    return str(page.relative_to(ROOT))


def blocks(page):
    return [*snippets(page.read_text(encoding="utf-8"), shown(page))]


WITH_SNIPPETS = [
    pytest.param(page, id=shown(page), marks=[] if shown(page) in QUICK else [pytest.mark.slow])
    for page in pages()
    if any(block.language in RUN for block in blocks(page))
]


@pytest.mark.parametrize("page", WITH_SNIPPETS)
def test_the_snippets_of_a_page_run(page, lay):
    lay(needs(page.read_text(encoding="utf-8")))
    reader = Reader()
    for block in blocks(page):
        if block.language in RUN and block.skipped is None:
            reader.follow(block)
        elif block.language in RUN:
            warnings.warn(f"{block.place} is not run: {block.skipped}", stacklevel=1)


@pytest.mark.parametrize("page", pages(), ids=shown)
def test_every_block_says_what_it_is(page):
    for block in blocks(page):
        assert block.language in RUN + SHOWN, f"{block.place}: name the language of the block"
        if block.language in SHOWN:
            assert not block.code.startswith(("nscaching ", "$ ", "pip ", "make ")), (
                f"{block.place} looks like commands: fence it as bash, so that it is run"
            )


PAGE = """
<!-- snippet: run with
--epochs 100 => --epochs 1
big => small
-->
```bash
nscaching train big --epochs 100 \\
  --out runs/x   # a comment
# another
nscaching evaluate runs/x
```

<!-- snippet: skip because it needs a GPU -->
```python
raise SystemExit
```

    ```python
    indented = 1
    ```
"""


def test_what_a_page_says_is_found():
    first, second, third = snippets(PAGE, "page.md")
    train, evaluate = commands(first.code)
    assert train.split("#")[0].strip() == "nscaching train small --epochs 1  --out runs/x"
    assert evaluate == "nscaching evaluate runs/x"
    assert (first.place, second.skipped) == ("page.md:6", "it needs a GPU")
    assert third.code == "indented = 1\n"


@pytest.mark.parametrize("order", ["run with\n--no => --such", "ran with\na => b", "run with"])
def test_a_comment_that_does_not_fit_is_an_error(order):
    with pytest.raises(BadSnippet, match=r"page\.md:\d: '.+'"):
        [*snippets(f"<!-- snippet: {order} -->\n```bash\nmake test\n```\n", "page.md")]


@pytest.mark.parametrize(
    "code", ["nscaching train nowhere.tsv", "make nothing", "pip install 'nscaching[no]'", "sl"]
)
def test_a_command_that_fails_fails_its_page(code, lay):
    lay([])
    (block,) = snippets(f"```bash\n{code}\n```\n", "page.md")
    with pytest.raises((AssertionError, BadSnippet), match=r"page\.md:1"):
        Reader().follow(block)
