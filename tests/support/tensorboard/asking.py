"""A client that asks the plugin as the page does."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tensorboard.plugins import base_plugin
from werkzeug.test import Client, TestResponse

from perfkit.tensorboard.plugin import PerfkitPlugin


class Asking:
    """The plugin on a logdir, asked through its WSGI applications."""

    def __init__(self, logdir: Path | str, spec: str = "") -> None:
        flags = type("Flags", (), {"logdir": str(logdir), "logdir_spec": spec})()
        self.plugin = PerfkitPlugin(base_plugin.TBContext(logdir=str(logdir), flags=flags))
        self.apps = self.plugin.get_plugin_apps()

    def get(self, route: str, method: str = "GET", **parameters: str) -> TestResponse:
        query = "&".join(f"{k}={quote(v, safe='')}" for k, v in parameters.items())
        app = self.apps.get(route) or self.apps["/timeline/*"]
        return Client(app).open(f"/data/plugin/perfkit{route}?{query}", method=method)

    def made(self, route: str, **parameters: str) -> TestResponse:
        """The answer when it is made: asked again while it is not, for a minute."""
        for _ in range(600):
            answer = self.get(route, **parameters)
            if answer.status_code != 202:
                return answer
            assert answer.json and answer.json["state"] == "reading" and answer.json["stage"]
            time.sleep(0.1)
        raise AssertionError(f"{route} was not made in a minute")

    def json(self, route: str, **parameters: str) -> Any:
        answer = self.made(route, **parameters)
        assert answer.status_code == 200, answer.text
        return answer.json

    def names(self) -> list[str]:
        return sorted(entry["name"] for entry in self.json("/runs")["entries"])
