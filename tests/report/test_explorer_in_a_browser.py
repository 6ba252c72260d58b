"""The explorer in Chromium: find, ask, click through, review, reload, export, keyboard, phone."""

import json
import re
import shutil
import time

import numpy as np
import pytest
import torch

import nscaching as ns
from nscaching.graph import KnowledgeGraph
from nscaching.models import SCORING, Side
from nscaching.report.explorer import FILE_NAME, SCORED_IN_PAGE, write_explorer
from nscaching.report.explorer_answers import ExplorerAnswers
from nscaching.training import TrainConfig

from ..conftest import random_model
from ..training.helpers import ring, train
from .chromium import EXECUTABLE
from .conftest import NASTY
from .explorer_browser import ExplorerBrowser

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(EXECUTABLE is None, reason="Chromium is not installed"),
]
VIEWS = ("#/", "#/entity/0", "#/ask/tail/0/0", "#/map", "#/review", "#/help")
#: Names that turn text around, hide in it, or look like what JSON and JavaScript mean.
HOSTILE = (
    *NASTY,
    "\u202eesrever\u202c",
    "مرحبا بالعالم",
    "bell\u0007 and escape\u001b[31m",
    "line\u2028separator",
    "__proto__",
    "constructor",
    "\\u003cscript>alert(4)</script>",
    "javascript:alert(5)",
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with ExplorerBrowser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def page(clubs_run):
    return write_explorer(clubs_run, clubs_run.folder.path / FILE_NAME)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    plain = ring()
    entities, relations = list(plain.entities), list(plain.relations)
    entities[: len(HOSTILE)] = HOSTILE
    relations[0], relations[1] = "</script><script>alert(6)</script>", "\u202e<b>r</b>\u0000"
    splits = (plain.train, plain.valid, plain.test)
    graph = KnowledgeGraph(entities, relations, *splits, name="</title><script>alert(7)</script>")
    return train(graph, out=tmp_path_factory.mktemp("runs") / "hostile", epochs=2)


@pytest.fixture(scope="module")
def hostile_page(hostile):
    return write_explorer(hostile, hostile.folder.path / FILE_NAME)


@pytest.fixture
def fresh(browser, page):
    """Open the page with nothing kept from another test."""
    browser.visit(page)
    browser.run("localStorage.clear()")
    browser.visit(page)
    return browser


def test_the_first_view_needs_no_network(fresh):
    assert fresh.requests() == []
    assert fresh.complaints() == []
    assert fresh.text("main h1") == "ComplEx on clubs"
    assert "44 entities" in fresh.text("main .lead")


def test_find_ask_and_click_through(fresh, clubs_run):
    graph = clubs_run.graph
    fresh.click("#find")
    fresh.type("P1")
    fresh.wait("document.querySelectorAll('#found [role=option]').length > 0")
    # The name itself is first, then those that begin so: p10 to p19.
    assert fresh.text("#found li bdi") == "p1"
    assert fresh.text("#said") == "11 entities found"
    fresh.press("Enter")
    fresh.wait("document.querySelector('main h1')?.textContent === 'p1'")
    fresh.run("document.querySelectorAll('.group button').forEach(e => e.click())")  # all of them
    facts = np.concatenate([graph.train, graph.valid, graph.test])
    p1 = graph.entity_ids["p1"]
    ends = facts[(facts[:, 0] == p1) | (facts[:, 2] == p1)][:, [0, 2]]
    assert set(names_in(fresh, ".group a.entity")) == {
        graph.entities[i] for i in np.unique(ends)
    } - {"p1"}
    # Ask for (p1, knows, ?): the answers are those of Python, best first.
    fresh.run(f"document.querySelector('#question').value = 'tail {graph.relation_ids['knows']}'")
    fresh.click(".asking button")
    fresh.wait("document.querySelector('main h1 .hole') !== null")
    expected = [each.tail for each in clubs_run.predict_tails("p1", "knows", 20)]
    shown = names_in(fresh, ".facts td:first-child > a.entity")
    assert shown[0] == expected[0]
    assert set(shown[:3]) <= set(expected[:6])  # int8: close scores may change places
    # A click on an answer leads to that entity, and back leads to the question.
    fresh.click(".facts td a.entity")
    fresh.wait(f"document.querySelector('main h1')?.textContent === {expected[0]!r}")
    fresh.run("history.back()")
    fresh.wait("document.querySelector('main h1 .hole') !== null")
    assert fresh.complaints() == []


def sentence(reason):
    """Return the text of a flag or a reason."""
    return "".join(part if isinstance(part, str) else part["name"] for part in reason["parts"])


def names_in(browser, selector):
    """Return the texts of elements."""
    return browser.run(f"[...document.querySelectorAll('{selector}')].map(e => e.textContent)")


def test_probabilities_in_the_page_are_those_of_python(browser, page, clubs_run):
    graph = clubs_run.graph
    member = graph.relation_ids["member of"]
    held_out = np.concatenate([graph.valid, graph.test])
    # A person whose club is held out is judged as one who has a club.
    asked = [(head, member, None) for head in held_out[held_out[:, 1] == member, 0].tolist()]
    assert asked
    asked += [("p1", "knows", None), (None, "member of", "club 2"), (None, "knows", "club 1")]
    browser.visit(page)
    for head, relation, tail in asked:
        question = [(head, relation, tail)]
        expected = clubs_run.ask(question, 40, contradictions=True, unlikely=True)
        side, anchor = ("tail", expected[0].head) if tail is None else ("head", expected[0].tail)
        number = relation if isinstance(relation, int) else graph.relation_ids[relation]
        place = f"'{side}', {graph.entity_ids[anchor]}, {number}, 40"
        answered = browser.promised(f"explorer.source.ask({place})")["answers"]
        shown = {(each["head"]["name"], each["tail"]["name"]): each for each in answered}
        assert len(shown) == len(expected) > 0
        for each in expected:
            own = shown[each.head, each.tail]
            assert own["probability"] == pytest.approx(each.probability, abs=0.05)
            assert [sentence(flag) for flag in own["flags"]] == each.flags


def test_a_rejected_fact_is_not_offered(browser, clubs_run, tmp_path):
    folder = shutil.copytree(clubs_run.folder.path, tmp_path / "R")
    best = clubs_run.predict_tails("p1", "knows", 2)
    names = (best[0].head, best[0].relation, best[0].tail)
    (folder / "rejected.tsv").write_text("\t".join(names) + "\n")
    run = ns.load_run(folder)
    assert run.rejected == {names}
    browser.visit(write_explorer(run, run.folder.path / FILE_NAME))
    place = f"{run.graph.entity_ids['p1']}, {run.graph.relation_ids['knows']}"
    found = browser.promised(f"explorer.source.ask('tail', {place}, 40)")["answers"]
    assert best[0].tail not in [each["tail"]["name"] for each in found]
    assert found[0]["tail"]["name"] == best[1].tail
    queued = browser.promised("explorer.source.queue()")["facts"]
    assert names[::2] not in [(each["head"]["name"], each["tail"]["name"]) for each in queued]


def test_names_of_a_review_are_asked_for_in_blocks(fresh):
    sizes = fresh.promised(
        """(async () => {
          const sizes = [], info = { fingerprint: "many", relations: ["r"] };
          const refs = async (ids) => {
            sizes.push(ids.length);
            return ids.map((id) => ({ id, name: `e${id}` }));
          };
          const review = new explorer.source.review.constructor({ info, refs });
          review.given = Array.from({ length: 1300 }, (_, at) => [2 * at, 0, 2 * at + 1, "y"]);
          const { text, left } = await review.file("y");
          return [sizes, left, text.split("\\n").length];
        })()"""
    )
    assert sizes == [[1000, 1000, 600], 0, 1301]


def test_reasons_are_given_on_request(fresh, clubs_run):
    graph = clubs_run.graph
    fresh.go(f"#/ask/tail/{graph.entity_ids['p4']}/{graph.relation_ids['knows']}")
    fresh.click(".facts .plain")
    fresh.wait("document.querySelector('.why:not([hidden]) ul') !== null")
    assert fresh.run("document.querySelector('.facts .plain').ariaExpanded") == "true"
    # Paths are counted as Python counts them.
    place = [graph.entity_ids["p4"], graph.relation_ids["knows"], graph.entity_ids["p8"]]
    shown = fresh.promised(f"explorer.source.explain({', '.join(map(str, place))})")
    expected = ExplorerAnswers(clubs_run).explain(*place)
    counted = [path_counts(each) for each in (shown, expected)]
    assert counted[0]
    assert set(counted[0]) & set(counted[1])
    for kind in set(counted[0]) & set(counted[1]):
        assert counted[0][kind] == counted[1][kind]


def test_an_entity_is_doubted_only_where_entities_recur(fresh, clubs_run):
    graph = clubs_run.graph
    member, knows, club = (
        *(graph.relation_ids[name] for name in ("member of", "knows")),
        graph.entity_ids["club 1"],
    )
    members = graph.train[graph.train[:, 1] == member, 0]
    new = next(i for i in range(graph.num_entities) if i not in members and i != club)
    for fact, doubts in (((new, member, club), 0), ((graph.entity_ids["p1"], knows, club), 1)):
        reasons = fresh.promised(f"explorer.source.explain({', '.join(map(str, fact))})")
        assert sum("is never the" in sentence(each) for each in reasons) == doubts


def path_counts(reasons):
    """Return the counts of each kind of path: the relations and directions of its steps."""
    found = {}
    for reason in reasons:
        said = sentence(reason)
        if counts := re.search(r"Of ([\d,]+) pairs linked like this, ([\d,]+) ha", said):
            steps = [part for part in reason["parts"][:-1] if isinstance(part, str)]
            found[tuple(steps)] = counts.groups()
    return found


def test_review_by_key_survives_a_reload_and_is_exported(fresh, page, tmp_path):
    fresh.downloads_to(tmp_path)
    fresh.go("#/review")
    fresh.wait("document.querySelector('.review .large') !== null")
    waiting = int(fresh.text("#waiting"))
    assert waiting >= 5
    facts = []
    for key in "ynsy":
        facts.append(names_in(fresh, ".large bdi"))
        fresh.press(key)
        fresh.wait(f"document.querySelector('#waiting').textContent === '{waiting - len(facts)}'")
    assert len({tuple(fact) for fact in facts}) == 4
    fresh.press("u")  # the last yes is taken back, and its fact comes again
    fresh.wait(f"document.querySelector('#waiting').textContent === '{waiting - 3}'")
    assert names_in(fresh, ".large bdi") == facts[3]
    fresh.visit(page)
    fresh.go("#/review")
    tally = "1 accepted · 1 rejected · 1 skipped"
    fresh.wait(f"document.querySelector('.tally').textContent.includes('{tally}')")
    assert names_in(fresh, ".large bdi") == facts[3]
    for place, name in enumerate(("accepted", "rejected")):
        fresh.click(f".files button:nth-child({place + 1})")
        fresh.wait(f"document.querySelector('#said').textContent.startsWith('{name}.tsv')")
        wait_for(tmp_path / f"{name}.tsv")
        assert (tmp_path / f"{name}.tsv").read_text() == "\t".join(facts[place]) + "\n"
    assert fresh.complaints() == []


def wait_for(path, patience=10.0):
    """Wait until a download is there."""
    deadline = time.monotonic() + patience
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} was never written"
        time.sleep(0.05)


def test_skipped_facts_come_again_when_all_are_seen(fresh):
    fresh.go("#/review")
    fresh.wait("document.querySelector('.review .large') !== null")
    for _ in range(int(fresh.text("#waiting"))):
        fresh.press("s")
    fresh.wait("document.querySelector('#waiting').textContent === '0'")
    fresh.wait("document.querySelector('.review h2')?.textContent === 'All facts are reviewed.'")
    fresh.run("[...document.querySelectorAll('.review button')].at(-1).click()")
    fresh.wait("document.querySelector('.review .large') !== null")


def test_keys_in_the_box_are_text_and_no_answers(fresh):
    fresh.go("#/review")
    fresh.wait("document.querySelector('.review .large') !== null")
    before = fresh.text("#waiting")
    fresh.press("/")
    assert fresh.focused().startswith("INPUT#find")
    fresh.type("yns")
    assert fresh.run("document.querySelector('#find').value") == "yns"
    assert fresh.text("#waiting") == before


def test_everything_is_reached_by_keyboard(fresh):
    fresh.run("document.activeElement.blur()")
    seen = []
    for _ in range(8):
        fresh.press("Tab")
        seen.append(fresh.focused())
    assert seen[0].startswith("A#skip")
    assert any(each.startswith("INPUT#find") for each in seen)
    assert any("Map" in each for each in seen)
    fresh.press("/")
    fresh.type("p2")
    fresh.wait("!document.querySelector('#found').hidden")
    fresh.press("ArrowDown")
    fresh.press("ArrowDown")
    active = fresh.run("document.querySelector('#find').getAttribute('aria-activedescendant')")
    assert active == "found-1"
    chosen = fresh.text("#found-1 bdi")
    fresh.press("Enter")
    fresh.wait(f"document.querySelector('main h1')?.textContent === {chosen!r}")
    fresh.wait("document.activeElement.tagName === 'H1'")  # a reader begins to read there
    fresh.go("#/map")
    fresh.run("document.querySelector('canvas').focus()")
    fresh.press("+")
    fresh.press("ArrowLeft")
    fresh.press("Enter")
    fresh.wait("location.hash.startsWith('#/entity/')")
    assert fresh.complaints() == []


def test_names_roles_and_labels_for_a_screen_reader(fresh):
    for place in VIEWS:
        fresh.go(place)
        unnamed = fresh.run(
            "[...document.querySelectorAll('button, a[href], input, select, canvas')].filter(e =>"
            "!(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length))"
            ".map(e => e.outerHTML.slice(0, 90))"
        )
        assert unnamed == []
        assert fresh.run("document.querySelectorAll('main h1').length") == 1
        assert fresh.run("document.querySelectorAll('table:not(:has(caption))').length") == 0
    assert fresh.run("document.querySelector('#said').getAttribute('role')") == "status"


def test_the_map_is_zoomed_and_clicked(fresh):
    fresh.go("#/map")
    fresh.wait("document.querySelector('#in-the-middle li') !== null")
    in_sight = fresh.text("#in-the-middle p")
    assert in_sight.startswith("44 entities")
    fresh.click(".zoom button")
    fresh.click(".zoom button")
    fresh.click(".zoom button")
    fresh.wait(f"document.querySelector('#in-the-middle p').textContent !== {in_sight!r}")
    fresh.press("/")
    fresh.type("p7")
    fresh.wait("document.querySelector('#found-0 bdi')?.textContent === 'p7'")
    fresh.press("Enter")
    fresh.wait("document.querySelector('#in-the-middle a')?.textContent === 'p7'")
    fresh.click("canvas")  # the middle of the canvas is where p7 is
    fresh.wait("document.querySelector('main h1')?.textContent === 'p7'")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390, 320])
@pytest.mark.parametrize("which", ["plain", "hostile"])
def test_nothing_overflows_or_runs(browser, page, hostile_page, which, width, dark):
    browser.visit(page if which == "plain" else hostile_page, width, dark)
    for place in (
        "#/",
        "#/entity/0",
        "#/entity/5",
        "#/ask/tail/0/0",
        "#/map",
        "#/review",
        "#/help",
    ):
        browser.go(place)
        browser.wait("!document.querySelector('[aria-busy]')")
        assert browser.run("document.documentElement.scrollWidth") <= width, place
        out = browser.run(
            "[...document.querySelectorAll('body *:not(svg *, .spoken)')]"
            ".filter(e => e.getBoundingClientRect().right > innerWidth + 1)"
            ".map(e => e.outerHTML.slice(0, 80))"
        )
        assert out == [], place
    assert browser.requests() == []
    assert browser.complaints() == []
    paper = browser.run("getComputedStyle(document.body).backgroundColor")
    channels = [int(part) for part in paper.removeprefix("rgb(").removesuffix(")").split(",")]
    assert (max(channels) < 80) == dark


def test_hostile_names_are_only_text(browser, hostile, hostile_page):
    browser.visit(hostile_page)
    entities = hostile.graph.entities
    assert browser.run("explorer.source.names") == entities
    assert browser.run("document.querySelectorAll('script').length") == 2
    for number, name in enumerate(HOSTILE):
        browser.go(f"#/entity/{number}")
        shown = "".join(chr(0x2400 + ord(c)) if ord(c) < 32 else c for c in name)
        assert browser.text("main h1") == shown
        assert browser.run("document.querySelectorAll('main :is(script, img, b)').length") == 0
        found = browser.promised(f"explorer.source.find({json.dumps(name)})")
        assert name in [each["name"] for each in found["entities"]]
    assert browser.complaints() == []


@pytest.mark.parametrize("scoring", sorted(SCORING))
@pytest.mark.parametrize(
    "options", [{"norm": 1}, {"norm": 2}, {"reciprocal": True}, {"normalize": False}], ids=str
)
def test_the_page_scores_as_the_model_does(browser, tmp_path, scoring, options):
    assert scoring in SCORED_IN_PAGE
    run = train(ring(), scoring=scoring, epochs=3, dim=12, **options)
    browser.visit(write_explorer(run, tmp_path / "page.html"))
    for side in Side:
        anchors, relations = torch.tensor([3, 7]), torch.tensor([1, 2])
        expected = run.model.score_all(side, anchors, relations).numpy()
        word = "tail" if side is Side.TAIL else "head"
        shown = browser.run(
            f"[[3, 1], [7, 2]].map(([e, r]) => [...explorer.source.model.scores('{word}', e, r)])"
        )
        spread = expected.std() + 1e-6
        assert (
            np.abs(np.array(shown) - expected).max() < 0.08 * spread + 0.02 * np.abs(expected).max()
        )


def test_the_page_knows_what_python_knows(browser, page, clubs_run):
    browser.visit(page)
    answers = ExplorerAnswers(clubs_run)
    for number in (0, 11, 29):
        shown = browser.promised(f"explorer.source.entity({number})")
        expected = answers.entity(number)
        assert shown["groups"] == expected["groups"]
        assert shown["neighbours"] == expected["neighbours"]
        assert [x["id"] for x in shown["similar"][:3]] == [x["id"] for x in expected["similar"][:3]]
        assert shown["degree"] == expected["degree"]
        assert shown["type"] == expected["type"]


def test_a_key_press_among_100_000_entities_takes_less_than_100_ms(browser, large_page):
    query = "name 99 a"
    browser.visit(large_page)
    browser.wait("explorer.source.index !== null")
    browser.run(
        "window.taken = []; document.querySelector('#find').addEventListener('input', () => {"
        "const start = performance.now(); requestAnimationFrame(() => setTimeout(() =>"
        "taken.push(performance.now() - start))); }, true)"
    )
    rounds = 3  # a busy machine makes a key press wait: of each the fastest of three counts
    for done in range(rounds):
        browser.click("#find")
        for count, sign in enumerate(query, 1 + done * len(query)):
            browser.press(sign)
            browser.wait(f"window.taken.length >= {count}")
        assert int(browser.text("#said").split()[0].replace(",", "")) > 0
        browser.press("Escape")
    taken = np.array(browser.run("window.taken")).reshape(rounds, len(query)).min(0)
    assert taken.max() < 100, taken


@pytest.fixture
def large_page(tmp_path_factory, monkeypatch):
    monkeypatch.setattr(ExplorerAnswers, "queue", lambda *_, **__: [])  # not what is tested here
    n = 100_000
    rng = np.random.default_rng(0)
    words = ["name", "of", "a", "Thing", "São", "Zürich", "x"]
    names = [f"{words[i % 7]} name {i % 100} {words[(i // 7) % 7]} {i}" for i in range(n)]
    facts = np.column_stack([rng.permutation(n), rng.integers(0, 5, n), rng.integers(0, n, n)])
    graph = KnowledgeGraph(names, [f"r{i}" for i in range(5)], facts, name="large")
    run = ns.Run(TrainConfig(scoring="distmult", dim=4), graph, random_model("distmult", n, 5, 4))
    return write_explorer(run, tmp_path_factory.mktemp("large") / "explorer.html")
