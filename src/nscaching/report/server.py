"""The explorer served to this computer only: the same page, answers as JSON from Python."""

from __future__ import annotations

import contextlib
import copy
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

from nscaching.errors import UserError
from nscaching.kernels.threads import loops_may_overlap
from nscaching.report.explorer import packed, render
from nscaching.report.explorer_answers import ExplorerAnswers
from nscaching.runs.run import Run
from nscaching.training import Progress

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.datastructures import Headers
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
    from starlette.routing import Route
except ImportError as error:  # pragma: no cover
    raise UserError(
        "Serving the explorer needs Starlette and uvicorn: pip install 'nscaching[explore]'."
    ) from error

ADDRESS = "127.0.0.1"
#: The port while it is free: a browser keeps answers of a review for an address with its port.
PORT = 8417
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "connect-src 'self'"
)
_HEADERS = {
    "Content-Security-Policy": f"{_POLICY}; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_MOST_IDS = 2000
#: Seconds in which a question gets in between two pieces of the search for new facts.
_TURN_SECONDS = 0.001


def _only_this_computer(app: Any, port: int) -> Any:
    """Refuse what does not come from the page itself: another host name, origin or method.

    A page elsewhere can make a browser send requests here, also under a name of its own that leads
    to this computer; it cannot choose the headers Host, Origin and Sec-Fetch-Site.
    """
    served = {f"{name}:{port}" for name in (ADDRESS, "localhost")}

    def allowed(scope: Any) -> bool:
        given = Headers(scope=scope)
        hosts, origins, sites = map(given.getlist, ("host", "origin", "sec-fetch-site"))
        return (
            scope["method"] in ("GET", "HEAD")
            and len(hosts) == 1
            and hosts[0] in served
            and all(origin == f"http://{hosts[0]}" for origin in origins)
            and all(site in ("same-origin", "none") for site in sites)
        )

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and not allowed(scope):
            refused = PlainTextResponse("Refused: ask from the explorer's own page.", 403)
            await refused(scope, receive, send)
        else:
            await app(scope, receive, send)

    return answer


class _Turns(Progress):
    """Holds a lock during long work, and gives it away for a moment after each piece."""

    def __init__(self, lock: threading.Lock) -> None:
        super().__init__("none")
        self.lock = lock

    @contextlib.contextmanager
    def work(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """Yield what is called after each piece."""

        def advance(done: int) -> None:
            self.lock.release()
            time.sleep(_TURN_SECONDS)  # else this thread would have it again at once
            self.lock.acquire()

        yield advance


def _queue(answers: ExplorerAnswers, lock: threading.Lock) -> Callable[[], dict[str, Any]]:
    """Look for new facts in the background; return what tells them, or that they are not there yet.

    They are looked for on a copy of the run's buffers; with the lock of the other answers where
    compiled loops must not run at once.
    """
    _ = answers.run.calibration  # fitted once, for both
    own = copy.copy(answers)
    own.run = copy.copy(answers.run)
    own.run.model = copy.copy(answers.run.model)
    found: Future[list[dict[str, Any]]] = Future()

    def work() -> None:
        try:
            if loops_may_overlap():
                found.set_result(own.queue())
            else:
                with lock:
                    found.set_result(own.queue(progress=_Turns(lock)))
        except Exception as error:  # shown on the page; the other views still work
            found.set_exception(UserError(str(error) or type(error).__name__))

    threading.Thread(target=work, daemon=True).start()
    return lambda: {"ready": (ready := found.done()), "facts": found.result() if ready else []}


def explorer_app(run: Run, port: int) -> Any:
    """Return the ASGI application that explores a run under a port of this computer."""
    answers = ExplorerAnswers(run)
    lock = threading.Lock()
    queue = _queue(answers, lock)
    page = render({**answers.info(), "embedded": False, "report": None}, _POLICY)

    def answering(work: Callable[[Request], Any]) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            try:
                with lock:  # the run's buffers serve one question at a time
                    return JSONResponse(work(request), headers=_HEADERS)
            except (UserError, ValueError) as error:
                return JSONResponse({"error": str(error)}, 400, headers=_HEADERS)

        return answer

    def known(given: object, what: str = "entity") -> int:
        number = int(str(given))
        if not 0 <= number < len(run.graph.relations if what == "relation" else run.graph.entities):
            raise ValueError(f"There is no {what} {number}.")
        return number

    def named(request: Request, *parts: str) -> list[int]:
        given = request.path_params
        return [known(given[x], "relation" if x == "relation" else "entity") for x in parts]

    def several(request: Request) -> list[int]:
        given = [part for part in request.query_params.get("ids", "").split(",") if part]
        if len(given) > _MOST_IDS:
            raise ValueError(f"Ask for at most {_MOST_IDS} entities at once.")
        return [known(part) for part in given]

    def question(request: Request) -> tuple[Any, int, int]:
        side = request.path_params["side"]
        if side not in ("head", "tail"):
            raise ValueError(f"There is no side '{side}'.")
        entity, relation = named(request, "entity", "relation")
        return side, entity, relation

    def start(request: Request) -> int:
        given = request.query_params.get("from", "0")
        if not (given.isascii() and given.isdecimal() and len(given) < 12):
            raise ValueError("A page begins at a whole number.")
        return int(given)

    def facts(request: Request) -> Any:
        side, entity, relation = question(request)
        return answers.facts(entity, relation, side == "tail", start(request))

    def places(_: Request) -> Any:
        kinds = {"places": "<u2", "types": "u1", "degree": "<i4"}
        return {name: packed(getattr(answers, name), kind) for name, kind in kinds.items()}

    calls: dict[str, Callable[[Request], Any]] = {
        "find": lambda request: answers.find(request.query_params.get("text", "")[:200]),
        "names": lambda request: answers.refs(several(request)),
        "links": lambda request: answers.links(several(request)),
        "entity/{entity:int}": lambda request: answers.entity(*named(request, "entity")),
        "new/{entity:int}": lambda request: answers.fresh(*named(request, "entity")),
        "facts/{side}/{entity:int}/{relation:int}": facts,
        "ask/{side}/{entity:int}/{relation:int}": lambda request: answers.ask(*question(request)),
        "known/{side}/{entity:int}/{relation:int}": lambda request: answers.known(
            *question(request), start(request)
        ),
        "explain/{head:int}/{relation:int}/{tail:int}": lambda request: answers.explain(
            *named(request, "head", "relation", "tail")
        ),
        "map": places,
        "queue": lambda _: queue(),
    }
    routes = [Route(f"/api/{path}", answering(work)) for path, work in calls.items()]
    routes.append(Route("/", lambda _: HTMLResponse(page, headers=_HEADERS)))
    return _only_this_computer(Starlette(routes=routes), port)


def bound_socket(port: int | None) -> socket.socket:
    """Listen on 127.0.0.1: on the given port, or the usual one, or any that is free."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((ADDRESS, PORT if port is None else port))
    except OSError as error:
        if port is not None:
            made.close()
            raise UserError(
                f"Port {port} cannot be used ({error.strerror}); choose another --port."
            ) from error
        made.bind((ADDRESS, 0))
    made.listen()  # a browser that comes before the server is ready waits
    return made


def serve(run: Run, listening: socket.socket) -> None:
    """Serve the explorer on a bound socket until the process is interrupted."""
    app = explorer_app(run, listening.getsockname()[1])
    config = uvicorn.Config(app, log_level="error", access_log=False, server_header=False)
    uvicorn.Server(config).run(sockets=[listening])
