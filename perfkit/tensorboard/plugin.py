"""The plugin that TensorBoard finds by its entry point: routes, and answers that never are an error page.

index.js            the page as an ES module; style.css and timeline/* are what it loads
runs                what is under the logdir
report?run=         a report; answered at once with {"state": "reading", …} until it is made
ranks?run=          the report on the traces of ranks in a folder
memory?run=         allocations over time
diff?run=&backend=&other=&other_backend=
timeline?run=&backend=    binary columns
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable
from typing import Any

import msgspec
from tensorboard.backend import http_util
from tensorboard.plugins import base_plugin
from werkzeug import wrappers

from perfkit.errors import PerfkitError
from perfkit.render import frontend, views
from perfkit.tensorboard.library import Library, Task
from perfkit.tensorboard.logdir import Logdir, LogdirFiles, Outside
from perfkit.tensorboard.makers import Makers

NAME = "perfkit"
JSON, BINARY, SCRIPT, STYLE = "application/json", "application/octet-stream", "text/javascript", "text/css"
# Nothing here is a page: opened as one, it may load and run nothing.
_HEADERS = [
    ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
]

Make = Callable[[Task], tuple[Any, int]]
App = Callable[..., Any]


class PerfkitPlugin(base_plugin.TBPlugin):
    """perfkit in TensorBoard."""

    plugin_name = NAME

    def __init__(self, context: base_plugin.TBContext) -> None:
        # Under --logdir_spec the context's logdir is empty.
        flags = getattr(context, "flags", None)
        self.logdir = Logdir(context.logdir, getattr(flags, "logdir_spec", None))
        self.library = Library()
        self.makers = Makers(self.library)

    def get_plugin_apps(self) -> dict[str, App]:
        """The routes under /data/plugin/perfkit."""
        return {
            "/index.js": _app(lambda request: _text(request, frontend.script(), SCRIPT)),
            "/style.css": _app(lambda request: _text(request, frontend.style(), STYLE)),
            "/timeline/*": _app(_timeline_file),
            "/runs": _app(self._runs),
            "/report": _app(self._report),
            "/ranks": _app(self._ranks),
            "/memory": _app(self._memory),
            "/diff": _app(self._diff),
            "/timeline": _app(self._timeline),
        }

    def is_active(self) -> bool:
        """Return whether the logdir holds anything that perfkit can show."""
        return self.logdir.any()

    def frontend_metadata(self) -> base_plugin.FrontendMetadata:
        """Return the place of the page."""
        return base_plugin.FrontendMetadata(es_module_path="/index.js", tab_name=NAME)

    def _runs(self, request: wrappers.Request) -> Any:
        return _json(request, msgspec.json.encode(self.logdir.listing()))

    def _report(self, request: wrappers.Request) -> Any:
        place = self._place(request)
        return self._made(request, ("report json", place.state()), lambda t: self.makers.report_json(place, t), [place])

    def _ranks(self, request: wrappers.Request) -> Any:
        place = self._place(request)
        return self._made(request, ("ranks", place.state()), lambda t: self.makers.ranks_json(place, t), [place])

    def _memory(self, request: wrappers.Request) -> Any:
        place = self._place(request)
        return self._made(request, ("memory", place.state()), lambda t: self.makers.memory_json(place, t), [place])

    def _diff(self, request: wrappers.Request) -> Any:
        places = (self._place(request), self._place(request, "other"))
        backends = (request.args.get("backend", ""), request.args.get("other_backend", ""))
        key = ("diff", places[0].state(), places[1].state(), backends)
        return self._made(request, key, lambda t: self.makers.diff_json(places, backends, t), places)

    def _timeline(self, request: wrappers.Request) -> Any:
        place, backend = self._place(request), request.args.get("backend", "")
        key = ("timeline", place.state(), backend)
        return self._made(request, key, lambda t: self.makers.timeline(place, backend, t), [place], BINARY)

    def _place(self, request: wrappers.Request, name: str = "run") -> LogdirFiles:
        return self.logdir.place(request.args.get(name, ""))

    def _made(self, request: wrappers.Request, key: Hashable, make: Make, places: Any, media_type: str = JSON) -> Any:
        """The result of a task as it is, or what is to be said instead: that it is being made, or why it failed."""
        task = self.library.ask(key, make)
        if not task.result.done():
            state = {"state": "reading", "stage": task.stage, "seconds": round(task.seconds, 1)}
            return _json(request, json.dumps(state).encode(), 202)
        error = task.result.exception()
        if error is None:
            return http_util.Respond(request, task.result.result(), media_type, headers=list(_HEADERS))
        # Answered with 200: a damaged file is something to show, not a failure of the page.
        return _failed(request, error, places)


def _app(answer: Callable[[wrappers.Request], Any]) -> App:
    """A WSGI application that answers GET and HEAD with `answer`, and mistakes in the request with a sentence."""

    @wrappers.Request.application
    def application(request: wrappers.Request) -> Any:
        if request.method not in ("GET", "HEAD"):
            return _json(request, _said("This can only be read.", "Use GET."), 405)
        try:
            return answer(request)
        except Outside as error:
            return _json(request, _said(error.message, error.hint), 404)
        except PerfkitError as error:
            return _json(request, _said(error.message, error.hint), 500)

    made: App = application
    return made


def _timeline_file(request: wrappers.Request) -> Any:
    found = frontend.timeline_file(request.path.rpartition("/")[2])
    if found is None:
        raise Outside("There is no such file.")
    return _text(request, *found)


def _text(request: wrappers.Request, text: str, media_type: str) -> Any:
    return http_util.Respond(request, text, media_type, headers=list(_HEADERS))


def _json(request: wrappers.Request, content: bytes, code: int = 200) -> Any:
    return http_util.Respond(request, content, JSON, code=code, headers=list(_HEADERS))


def _failed(request: wrappers.Request, error: BaseException, places: Any) -> Any:
    message, hint = (error.message, error.hint) if isinstance(error, PerfkitError) else (str(error), "")
    for place in places:  # as it is named on the page, not on the disk
        message = message.replace(str(place.path), place.name)
    return _json(request, _said(message, hint))


def _said(message: str, hint: str = "") -> bytes:
    return views.encoded({"state": "failed", "message": message, "hint": hint})
