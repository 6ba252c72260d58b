"""The explorer on localhost: the answers, and who may ask."""

import http.client
import json
import socket
import threading
import time

import pytest

pytest.importorskip("starlette", reason="the extra explore is not installed")
pytest.importorskip("uvicorn", reason="the extra explore is not installed")

import uvicorn

from nscaching.errors import UserError
from nscaching.report import server
from nscaching.report.explorer_answers import ExplorerAnswers
from nscaching.report.server import ADDRESS, bound_socket, explorer_app


class Served:
    """A running server and plain requests to it."""

    def __init__(self, run):
        self.socket = bound_socket(0)
        self.port = self.socket.getsockname()[1]
        app = explorer_app(run, self.port)
        self.server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]})

    def __enter__(self):
        self.thread.start()
        while not self.server.started:
            time.sleep(0.02)
        return self

    def __exit__(self, *_):
        self.server.should_exit = True
        self.thread.join(10)

    def get(self, path, method="GET", **headers):
        """Return status, headers and body."""
        connection = http.client.HTTPConnection(ADDRESS, self.port, timeout=30)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.putrequest(method, path, skip_host="Host" in given)
        for name, value in given.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        return answer.status, answer.headers, body

    def json(self, path):
        """Return an answer that must be one."""
        status, _, body = self.get(path)
        assert status == 200, body
        return json.loads(body)


@pytest.fixture(scope="module")
def served(clubs_run):
    with Served(clubs_run) as server:
        yield server


def test_only_this_computer_is_served(served):
    assert served.socket.getsockname()[0] == "127.0.0.1"
    own = f"127.0.0.1:{served.port}"
    assert served.get("/")[0] == 200
    assert served.get("/", Host=f"localhost:{served.port}")[0] == 200
    assert served.get("/api/map", Origin=f"http://{own}")[0] == 200
    refused = [
        served.get("/", Host="evil.example"),
        served.get("/api/map", Host=f"evil.example:{served.port}"),
        served.get("/api/map", Host="127.0.0.1"),
        served.get("/api/map", Origin="http://evil.example"),
        served.get("/api/map", Origin="null"),
        served.get("/api/map", Origin=f"https://{own}"),
        served.get("/api/map", Sec_Fetch_Site="cross-site"),
        served.get("/api/map", Sec_Fetch_Site="same-site"),
        served.get("/api/map", "POST"),
        served.get("/api/map", "OPTIONS", Origin="http://evil.example"),
    ]
    assert [status for status, _, _ in refused] == [403] * len(refused)
    assert not any("places" in body for _, _, body in refused)


def test_headers_keep_the_page_to_itself(served):
    for path in ("/", "/api/map"):
        _, headers, _ = served.get(path)
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers.get("Access-Control-Allow-Origin") is None


def test_answers_are_those_of_the_run(served, clubs_run):
    graph = clubs_run.graph
    found = served.json("/api/find?text=P0")["entities"]
    assert found[0]["name"] == "p0"
    entity = served.json(f"/api/entity/{found[0]['id']}")
    assert sum(group["total"] for group in entity["groups"]) == entity["degree"]
    relation = graph.relation_ids["knows"]
    answered = served.json(f"/api/ask/tail/{found[0]['id']}/{relation}")
    whole = {"contradictions": True, "unlikely": True}  # the page shows them, marked
    expected = clubs_run.predict_tails("p0", "knows", 20, **whole)
    assert [each["tail"]["name"] for each in answered["answers"]] == [e.tail for e in expected]
    assert [each["probability"] for each in answered["answers"]] == pytest.approx(
        [each.probability for each in expected]
    )
    known = graph.answers("tail", found[0]["id"], relation)
    shown = {each["other"]["id"]: each["split"] for each in answered["known"]["facts"]}
    assert shown == known
    assert answered["known"]["total"] == len(known)


def test_facts_come_in_pages(served, clubs_run):
    graph = clubs_run.graph
    club, member = graph.entity_ids["club 1"], graph.relation_ids["member of"]
    answers = ExplorerAnswers(clubs_run)
    facts = served.json(f"/api/facts/head/{club}/{member}?from=3")
    assert facts == answers.facts(club, member, False, 3)
    assert len(facts) == 10 - 3
    assert served.json(f"/api/facts/tail/{club}/{member}") == []
    known = served.json(f"/api/known/head/{club}/{member}?from=3")
    assert known == {"total": 10, "facts": facts}
    assert served.json(f"/api/known/head/{club}/{member}?from=10")["facts"] == []


def test_the_queue_comes_when_it_is_ready(served, clubs_run):
    for _ in range(600):
        state = served.json("/api/queue")
        if state["ready"]:
            break
        time.sleep(0.1)
    assert state["ready"]
    assert state["facts"]
    held = {
        tuple(triple)
        for name in ("train", "valid", "test")
        for triple in clubs_run.graph.split(name).tolist()
    }
    for fact in state["facts"]:
        assert (fact["head"]["id"], fact["relation"], fact["tail"]["id"]) not in held
        assert 0 <= fact["probability"] <= 1
    first = state["facts"][0]
    path = f"{first['head']['id']}/{first['relation']}/{first['tail']['id']}"
    reasons = served.json(f"/api/explain/{path}")
    assert all(reason["sign"] in (1, -1) and reason["parts"] for reason in reasons)


def test_questions_get_in_between_where_loops_must_not_overlap(clubs_run, monkeypatch):
    """Numba ends a process in which two threads run loops at once on threads of its own."""
    lock, began, asked, held = threading.Lock(), threading.Event(), threading.Event(), []

    def queue(answers, work=None, progress=None):
        with progress.work("asking", 100) as advance:
            held.append(lock.locked())
            began.set()
            while not asked.is_set():
                advance(1)
                held.append(lock.locked())
        return []

    monkeypatch.setattr(server, "loops_may_overlap", lambda: False)
    monkeypatch.setattr(ExplorerAnswers, "queue", queue)
    found = server._queue(ExplorerAnswers(clubs_run), lock)
    assert began.wait(10)
    assert lock.acquire(timeout=10)
    assert not found()["ready"]
    asked.set()
    lock.release()
    while not found()["ready"]:
        time.sleep(0.01)
    assert all(held)
    assert not lock.locked()


@pytest.mark.parametrize(
    "path",
    [
        *("entity/99999", "ask/side/0/0", "ask/tail/0/99", "names?ids=1,x", "explain/0/0/99999"),
        *("facts/tail/0/0?from=-1", "facts/side/0/0", "facts/tail/0/99", "facts/tail/99999/0"),
        *("known/side/0/0", "known/tail/0/0?from=x", f"known/tail/0/0?from={10**20}"),
    ],
)
def test_a_wrong_question_is_answered_with_its_reason(served, path):
    status, _, body = served.get(f"/api/{path}")
    assert status == 400
    assert json.loads(body)["error"]


def test_a_browser_that_comes_early_waits():
    listening = bound_socket(0)
    with listening, socket.create_connection(listening.getsockname(), timeout=5):
        pass


def test_a_port_that_is_taken_is_named():
    with socket.socket() as other:
        other.bind((ADDRESS, 0))
        other.listen()
        with pytest.raises(UserError, match=r"choose another --port"):
            bound_socket(other.getsockname()[1])
