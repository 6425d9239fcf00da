"""A Kubernetes API stand-in over real HTTP: create, get, list by labels, delete, owners, admission by schema; faults on
demand. And a kubelet stand-in that runs sandbox Pods as real Postgres servers on loopback addresses.

No controllers and no watch: nobody here watches.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from shared.embedded_postgres import unprivileged
from tests.deploy.checking import check
from tests.deploy.manifests import Manifest

_PATH = re.compile(r"^/(?P<group>apis?/.*?)/namespaces/(?P<namespace>[^/]+)/(?P<plural>[a-z]+)(/(?P<name>[^/]+))?$")


class ApiStandIn:
    """Objects by (resource, name), in one namespace."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Manifest] = {}
        self.created: list[str] = []
        """Names of everything that was ever created."""
        self.guard = threading.RLock()
        self.is_down = False
        """Connections end without an answer, and nothing is done."""
        self.lost_answers = 0
        """So many changes are done whose answer is lost."""
        self.answers: list[tuple[str, int, str]] = []
        """(method, status, message): the next call of that method gets this in place of being done."""
        self.lingering = False
        """Deleted objects stay, marked, until `finish_deletions`: a node that does not answer, a grace period."""
        self.on_create: Callable[[str, Manifest], None] = lambda resource, manifest: None
        self.on_delete: Callable[[str, Manifest], None] = lambda resource, manifest: None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()

    def names(self, plural: str) -> list[str]:
        """Objects of a kind that exist and are not ending."""
        with self.guard:
            return [
                name
                for (resource, name), manifest in self.objects.items()
                if resource.endswith(f"/{plural}") and "deletionTimestamp" not in manifest["metadata"]
            ]

    def set_status(self, plural: str, name: str, **status: Any) -> None:
        """What a controller would write."""
        with self.guard:
            (manifest,) = [found for (resource, n), found in self.objects.items() if n == name and plural in resource]
            manifest["status"] = status

    def put(self, resource: str, manifest: Manifest) -> Manifest:
        """Create as the API does. Raises KeyError when the name is taken, AssertionError for an invalid manifest."""
        with self.guard:
            key = (resource, manifest["metadata"]["name"])
            if key in self.objects:
                raise KeyError(key[1])
            check(manifest, "1.33")
            manifest["metadata"]["uid"] = str(uuid.uuid4())
            self.objects[key] = manifest
            self.created.append(key[1])
        self.on_create(resource, manifest)
        return manifest

    def remove(self, resource: str, name: str) -> bool:
        """Delete an object and what it owns; False when there is none."""
        with self.guard:
            manifest = self.objects.get((resource, name))
            if manifest is None:
                return False
            manifest["metadata"]["deletionTimestamp"] = "2026-11-30T00:00:00Z"
            uid = manifest["metadata"]["uid"]
            owned = [
                key
                for key, other in self.objects.items()
                if any(owner["uid"] == uid for owner in other["metadata"].get("ownerReferences", []))
            ]
        for key in owned:
            self.remove(*key)
        if not self.lingering:
            self._finish(resource, name)
        return True

    def finish_deletions(self) -> None:
        """What lingers is gone."""
        self.lingering = False
        with self.guard:
            ending = [key for key, manifest in self.objects.items() if "deletionTimestamp" in manifest["metadata"]]
        for key in ending:
            self._finish(*key)

    def _finish(self, resource: str, name: str) -> None:
        with self.guard:
            manifest = self.objects.pop((resource, name), None)
        if manifest is not None:
            self.on_delete(resource, manifest)

    def _answer(self, method: str, path: str, query: dict[str, list[str]], body: bytes) -> tuple[int, Manifest]:
        with self.guard:
            for scripted in self.answers:
                if scripted[0] == method:
                    self.answers.remove(scripted)
                    return scripted[1], {"kind": "Status", "message": scripted[2]}
        if path == "/version":
            return 200, {"gitVersion": "v1.33.1"}
        match = _PATH.match(path)
        if match is None:
            return 404, {"message": f"no {path}"}
        resource, name = f"{match['group']}/{match['plural']}", match["name"]
        with self.guard:
            if method == "GET" and name:
                found = self.objects.get((resource, name))
                return (404, {"message": "not found"}) if found is None else (200, json.loads(json.dumps(found)))
            if method == "GET":
                wanted = dict(part.split("=") for part in query.get("labelSelector", [""])[0].split(",") if part)
                items = [
                    manifest
                    for (kind, _), manifest in self.objects.items()
                    if kind == resource and wanted.items() <= manifest["metadata"].get("labels", {}).items()
                ]
                return 200, {"items": json.loads(json.dumps(items))}
        if method == "POST":
            try:
                return 201, self.put(resource, json.loads(body))
            except KeyError as error:
                return 409, {"message": f"{error} already exists"}
            except AssertionError as error:
                return 422, {"message": str(error)}
        return (200, {"kind": "Status"}) if self.remove(resource, name or "") else (404, {"message": "not found"})

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                parts = urlsplit(self.path)
                if api.is_down:
                    self.close_connection = True
                    return
                status, answer = api._answer(self.command, parts.path, parse_qs(parts.query), body)
                if self.command in ("POST", "DELETE") and api.lost_answers:
                    api.lost_answers -= 1
                    self.close_connection = True
                    return
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_DELETE = _serve

            def log_message(self, format: str, *args: Any) -> None:
                """Silent."""

        return Handler


class KubeletStandIn:
    """Runs each sandbox Pod's command as a process that listens on a loopback address of its own."""

    def __init__(self, api: ApiStandIn, folder: Path, base: Path) -> None:
        self._api = api
        self._folder = folder
        self._base = base
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.waiting: str | None = None
        """Containers wait for this reason and never start."""
        api.on_create, api.on_delete = self._start, self._end

    def _start(self, resource: str, pod: Manifest) -> None:
        if pod["kind"] != "Pod":
            return
        name = pod["metadata"]["name"]
        if self.waiting:
            state = {"waiting": {"reason": self.waiting, "message": "back-off pulling image"}}
            pod["status"] = {"phase": "Pending", "containerStatuses": [{"state": state}]}
            return
        address = f"127.0.{os.getpid() % 200 + 20}.{len(self.processes) + 2}"
        container = pod["spec"]["containers"][0]
        folder = self._folder / name
        folder.mkdir()
        given = {"/opt/sandbox/template": str(self._base), "/sandbox": str(folder), "python": sys.executable}
        argv = [given.get(word, word) for word in container["args"]] + ["--listen", address]
        environment = {variable["name"]: variable["value"] for variable in container["env"]}
        environment |= {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
        with (folder / "log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                unprivileged(argv, folder),
                env=environment,
                stdin=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        pod["status"] = {"phase": "Running", "podIP": address}

    def _end(self, resource: str, pod: Manifest) -> None:
        self.kill(pod["metadata"]["name"])

    def kill(self, name: str) -> None:
        """End a Pod's processes, as an eviction does."""
        process = self.processes.get(name)
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=10)
            shutil.rmtree(self._folder / name, ignore_errors=True)

    def close(self) -> None:
        """End all."""
        for name in list(self.processes):
            self.kill(name)
