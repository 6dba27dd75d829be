"""A server that speaks the protocol of the Hugging Face hub, and a second one that has the bytes of large files, as the
hub's network for content does. A test changes how they answer."""
import contextlib
import hashlib
import http.server
import json
import re
import ssl
import threading
import time
import urllib.parse


def git_blob(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Hub:
    """Models by name, each with revisions (name -> commit) and commits (commit -> file -> bytes)."""

    def __init__(self):
        self.models = {}
        self.log = []  # (server, method, path, headers) of each request
        self.token = None  # what callers must show
        self.gated = False
        self.large = 20_000  # files of this size and more are in large file storage, at the other server
        self.plain_list = False  # the list has names alone
        self.answer = None  # (server, method, path, headers) -> None, or (status, headers, body)
        self.rate = None  # bytes per second of large files
        self.cut = 0  # the next so many answers with content end after half of it
        self.lock = threading.Lock()
        self.servers = {name: self._start(name) for name in ("hub", "cdn")}
        self.url = self._url("hub")
        self.cdn = self._url("cdn")

    def _url(self, name):
        return "http://127.0.0.1:%d" % self.servers[name].server_address[1]

    def use_tls(self, certificate, key):
        """The hub, not the other server, speaks TLS from now on."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server = self.servers["hub"]
        server.socket = context.wrap_socket(server.socket, server_side=True)
        self.url = self._url("hub").replace("http:", "https:")

    def add(self, name, files, revision="main"):
        commit = hashlib.sha1(repr(sorted(files.items())).encode() + revision.encode()).hexdigest()
        model = self.models.setdefault(name, {"revisions": {}, "commits": {}})
        model["revisions"][revision] = commit
        model["commits"][commit] = files
        return commit

    def requests(self, server="hub", method=None):
        with self.lock:
            return [entry for entry in self.log if entry[0] == server and method in (None, entry[1])]

    def forget(self):
        with self.lock:
            self.log.clear()

    def stop(self):
        for server in self.servers.values():
            server.shutdown()
            server.server_close()

    def _start(self, name):
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                hub.serve(self, name, "GET")

            def do_HEAD(self):
                hub.serve(self, name, "HEAD")

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.handle_error = lambda *_: None  # clients that leave
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return server

    def serve(self, handler, server, method):
        headers = {key.lower(): value for key, value in handler.headers.items()}
        with self.lock:
            self.log.append((server, method, handler.path, headers))
        answer = self.answer and self.answer(server, method, handler.path, headers)
        status, extra, body = answer or self.route(server, handler.path, headers)
        try:
            self.send(handler, method, status, extra, body)
        except OSError:
            handler.close_connection = True

    def send(self, handler, method, status, extra, body):
        if status == 200 and "range" in {key.lower() for key in handler.headers} and extra.get("Accept-Ranges"):
            begin = int(re.match(r"bytes=(\d+)-$", handler.headers["Range"]).group(1))
            if begin >= len(body):
                status, extra, body = 416, {"Content-Range": "bytes */%d" % len(body)}, b""
            else:
                status = 206
                extra = {**extra, "Content-Range": "bytes %d-%d/%d" % (begin, len(body) - 1, len(body))}
                body = body[begin:]
        handler.send_response(status)
        for key, value in extra.items():
            if value:  # an empty length: none is sent
                handler.send_header(key, value)
        if "Content-Length" not in extra:
            handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if method == "HEAD":
            return
        if self.cut > 0 and status in (200, 206) and extra.get("Accept-Ranges"):
            self.cut -= 1
            handler.wfile.write(body[:len(body) // 2])
            handler.close_connection = True
            return
        if self.rate is None or not extra.get("Accept-Ranges"):
            handler.wfile.write(body)
            return
        piece = max(self.rate // 20, 1)
        for at in range(0, len(body), piece):
            handler.wfile.write(body[at:at + piece])
            handler.wfile.flush()
            time.sleep(0.05)

    def route(self, server, path, headers):
        path, _, query = path.partition("?")
        if server == "cdn":
            files = {hashlib.sha256(data).hexdigest(): data for model in self.models.values()
                     for commit in model["commits"].values() for data in commit.values()}
            data = files.get(path.strip("/"))
            return (404, {}, b"") if data is None else (200, {"Accept-Ranges": "bytes"}, data)
        if self.token is not None and headers.get("authorization") != "Bearer " + self.token:
            code = {"X-Error-Code": "GatedRepo"} if self.gated else {}
            return 401, code, b'{"error": "Invalid credentials in Authorization header"}'
        listed = re.match(r"/api/models/([^/]+/[^/]+)/revision/([^/]+)$", path)
        if listed:
            return self.list(listed.group(1), urllib.parse.unquote(listed.group(2)), "blobs=true" in query)
        wanted = re.match(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)$", path)
        if wanted:
            return self.resolve(*map(urllib.parse.unquote, wanted.groups()))
        return 404, {}, b"not found"

    def list(self, name, revision, blobs):
        model = self.models.get(name)
        if model is None:
            return 404, {"X-Error-Code": "RepoNotFound"}, b'{"error": "Repository not found"}'
        commit = model["revisions"].get(revision, revision)
        if commit not in model["commits"]:
            return 404, {"X-Error-Code": "RevisionNotFound"}, b'{"error": "Invalid rev id"}'
        siblings = []
        for file, data in model["commits"][commit].items():
            entry = {"rfilename": file}
            if blobs and not self.plain_list:
                entry.update(size=len(data), blobId=git_blob(data))
                if len(data) >= self.large:
                    entry["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
            siblings.append(entry)
        return 200, {}, json.dumps({"id": name, "sha": commit, "siblings": siblings}).encode()

    def resolve(self, name, revision, file):
        commit = self.models[name]["revisions"].get(revision, revision)
        data = self.models[name]["commits"][commit].get(file)
        if data is None:
            return 404, {"X-Error-Code": "EntryNotFound"}, b""
        facts = {"X-Repo-Commit": commit}
        if len(data) < self.large:
            return 200, {**facts, "ETag": '"%s"' % git_blob(data), "Accept-Ranges": "bytes"}, data
        sha = hashlib.sha256(data).hexdigest()
        return 302, {**facts, "X-Linked-Size": str(len(data)), "X-Linked-Etag": '"%s"' % sha,
                     "Location": "%s/%s?signature=1" % (self.cdn, sha)}, b""


@contextlib.contextmanager
def running():
    hub = Hub()
    try:
        yield hub
    finally:
        hub.stop()
