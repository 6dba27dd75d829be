"""Proves deploy/grafana/nereid.json: a Prometheus scrapes a live server while requests of every kind are sent, then
every query of every panel is evaluated as Grafana would. A query must succeed, give finite samples, legends that distinguish
its series apart, and more than zero where it counts what was sent. The file must also be what make_dashboard.py writes
and hold what Grafana needs to load it.

usage: dashboard.py PROMETHEUS_BINARY METRICS_URL HTTP_URL [--seconds N] [--record FILE]
--seconds: of traffic, at least [5].   --record: keeps what the panels show, for deploy/grafana/render.py"""
import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "..", "..", "deploy", "grafana")
SLOW = os.environ.get("NEREID_E2E_SLOW") == "1"
STEP = 3 if SLOW else 1  # seconds: the scrape interval, and with it Grafana's $__interval
RATE_INTERVAL = 4 * STEP
BUILT_IN = {"__interval": f"{STEP}s", "__rate_interval": f"{RATE_INTERVAL}s"}
UNITS = {"short", "reqps", "ops", "s", "µs", "bytes", "percentunit", "watt"}
# Legends of counters that may stay at zero: nothing that this test sends moves them.
MAY_BE_ZERO = {"paused", "HTTP, refused", "gRPC, cancelled", "gRPC, refused"}


def fetch(url, body=None):
    """Status and body."""
    data = json.dumps(body).encode() if body is not None else None
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data), timeout=120) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


class Prometheus:
    """A Prometheus with a folder and a free port of its own that scrapes one page."""

    def __init__(self, binary, folder, metrics_url):
        target = urllib.parse.urlsplit(metrics_url).netloc
        config = os.path.join(folder, "prometheus.yml")
        with open(config, "w") as file:
            file.write(f"global: {{scrape_interval: {STEP}s, scrape_timeout: {STEP}s}}\n"
                       f"scrape_configs: [{{job_name: nereid, static_configs: [{{targets: ['{target}']}}]}}]\n")
        self.log_path = os.path.join(folder, "log")
        self.process = subprocess.Popen(
            [binary, "--config.file", config, "--storage.tsdb.path", os.path.join(folder, "data"),
             "--web.listen-address=127.0.0.1:0"], stdout=open(self.log_path, "w"), stderr=subprocess.STDOUT)
        self.url = None

    def wait_until_ready(self):
        """Returns when scrapes fill a window of rate(): what is counted later is an increase. How far rate() extrapolates
        a window that begins before the first scrape differs from counter to counter, so that a share can pass 1."""
        self.wait("port", lambda: re.search(r'"Listening on" address=(127\.0\.0\.1:\d+)', self.log()))
        self.url = "http://" + re.search(r'"Listening on" address=(\S+)', self.log())[1]
        self.wait("readiness", lambda: fetch(self.url + "/-/ready")[0] == 200)
        self.wait_for_scrape(0)
        self.wait_for_scrape(time.time() + RATE_INTERVAL)

    def wait_for_scrape(self, after):
        self.wait("a scrape", lambda: any(float(s["value"][1]) > after
                                          for s in self.ask("query", query="timestamp(up == 1)")["result"]))

    def wait(self, what, is_there):
        deadline = time.monotonic() + 60
        while not is_there():
            assert self.process.poll() is None, "Prometheus ended:\n" + self.log()
            assert time.monotonic() < deadline, f"no {what} of Prometheus:\n{self.log()}"
            time.sleep(0.05)

    def log(self):
        with open(self.log_path) as file:
            return file.read()

    def ask(self, path, **parameters):
        """The data of a reply; ValueError with Prometheus' own words for a query that it refuses."""
        status, text = fetch(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters, doseq=True)}")
        reply = json.loads(text) if text.startswith("{") else {"error": text}
        if status != 200 or reply["status"] != "success":
            raise ValueError(reply.get("error", text))
        return reply["data"]

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def one_round(url):
    """Requests of every kind, good and bad, each with the status that it must have."""
    text = {"text_input": "Tell me about the sea and the ships. " * 6, "max_tokens": 24}
    query = {"inputs": [{"name": "QUERY", "datatype": "BYTES", "shape": [1, 1], "data": ["The sea"]},
                        {"name": "REQUEST_OUTPUT_LEN", "datatype": "INT32", "shape": [1, 1], "data": [4]}]}
    chat = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}
    for status, path, body in (
            (200, "/v2/models/ensemble/generate", text),
            (200, "/v2/models/ensemble/generate_stream", dict(text, stream=True)),
            (200, "/v2/models/tensorrt_llm_bls/generate", text),
            (200, "/v2/models/tensorrt_llm/generate",
             {"input_ids": [5, 6, 7], "input_lengths": 3, "request_output_len": 4}),
            (200, "/v2/models/preprocessing/infer", query),
            (200, "/v1/completions", {"prompt": "The sea", "max_tokens": 8, "stream": True}),
            (200, "/v1/chat/completions", chat),
            (400, "/v2/models/ensemble/generate", {"text_input": "word " * 6000, "max_tokens": 2}),
            (400, "/v2/models/ensemble/generate", dict(text, beam_width=99)),
            (404, "/v2/models/nope/generate", text)):
        got = fetch(url + path, body)
        assert got[0] == status, (path, got)
    endless = {"prompt": "The sea", "max_tokens": 1500, "ignore_eos": True, "stream": True}
    with urllib.request.urlopen(url + "/v1/completions", json.dumps(endless).encode(), timeout=120) as reply:
        reply.readline()  # and leave


def send(url, seconds):
    """Rounds from three clients at once for so long, and at least one of each."""
    problems = []

    def client():
        until = time.monotonic() + seconds
        try:
            one_round(url)
            while time.monotonic() < until:
                one_round(url)
                time.sleep(0.05)
        except Exception as error:
            problems.append(error)
    clients = [threading.Thread(target=client) for _ in range(3)]
    for c in clients:
        c.start()
    for c in clients:
        c.join()
    assert not problems, problems


def check_structure(dashboard):
    """Checks the members that Grafana needs to load the file and to find the data."""
    assert isinstance(dashboard["schemaVersion"], int) and dashboard["schemaVersion"] >= 36, "schemaVersion"
    assert dashboard["title"] and re.fullmatch(r"[\w-]{1,40}", dashboard["uid"]), "title and uid"
    names = [v["name"] for v in dashboard["templating"]["list"]]
    assert len(names) == len(set(names)), f"variables twice: {names}"
    sources = {"${%s}" % v["name"] for v in dashboard["templating"]["list"] if v["type"] == "datasource"}
    assert len(sources) == 1, "one variable for the data source"
    panels = dashboard["panels"]
    ids = [p["id"] for p in panels]
    assert all(isinstance(i, int) and i > 0 for i in ids) and len(ids) == len(set(ids)), f"panel ids: {ids}"
    cells = {}
    for panel in panels:
        title, grid = panel["title"], panel["gridPos"]
        assert grid["w"] > 0 and grid["h"] > 0, f"panel {title!r}: {grid}"
        assert 0 <= grid["x"] and grid["x"] + grid["w"] <= 24 and 0 <= grid["y"], f"panel {title!r}: {grid}"
        for cell in [(x, y) for x in range(grid["x"], grid["x"] + grid["w"])
                     for y in range(grid["y"], grid["y"] + grid["h"])]:
            assert cell not in cells, f"panels {cells[cell]!r} and {title!r} overlap"
            cells[cell] = title
        if panel["type"] == "row":
            assert panel["panels"] == [] and not panel["collapsed"], f"row {title!r}"
            continue
        unit = panel["fieldConfig"]["defaults"]["unit"]
        assert unit in UNITS or unit.startswith("suffix:"), f"panel {title!r}: unit {unit!r}"
        refs = [t["refId"] for t in panel["targets"]]
        assert refs and all(refs) and len(refs) == len(set(refs)), f"panel {title!r}: refIds {refs}"
        for holder in [panel] + panel["targets"]:
            assert holder["datasource"]["type"] == "prometheus" and holder["datasource"]["uid"] in sources, holder
        for target in panel["targets"]:
            assert target["expr"] and target["legendFormat"], f"panel {title!r}: {target}"
    for holder in dashboard["templating"]["list"]:
        assert holder["type"] == "datasource" or holder["datasource"]["uid"] in sources, holder


def substitute(expression, values):
    """Grafana's $name and ${name}; several values become a regular expression."""
    def value_of(match):
        name = match[1] or match[2]
        assert name in values, f"no variable {name!r}: {expression}"
        return values[name]
    return re.sub(r"\$(?:(\w+)|\{(\w+)\})", value_of, expression)


def read_variables(prometheus, dashboard):
    """name -> (what "All" becomes, the single values), the queries asked in the order of the list as Grafana does."""
    out, values = {}, dict(BUILT_IN)
    for variable in dashboard["templating"]["list"]:
        if variable["type"] != "query":
            continue
        name = variable["name"]
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", substitute(variable["query"], values))
        assert found, f"variable {name}: {variable['query']}"
        single = prometheus.ask(f"label/{found[2]}/values", **{"match[]": found[1]})
        assert single, f"variable {name} has no values: {variable['query']}"
        escaped = [re.sub(r"([\\$^*+?.()|{}\[\]/])", r"\\\\\1", v) for v in single]
        values[name] = variable.get("allValue") or "(" + "|".join(escaped) + ")"
        out[name] = (values[name], escaped)
    return out


class Query:
    """One target of one panel, seen over a time range (start, end)."""

    def __init__(self, panel, target, prometheus, span):
        self.panel, self.target, self.prometheus, self.span = panel, target, prometheus, span
        self.is_of_gpu = "nv_gpu_" in target["expr"]

    def name(self):
        return f"panel {self.panel['title']!r}, query {self.target['refId']}"

    def evaluate(self, values):
        """[(legend, [(time, value)])], finite values only."""
        text = substitute(self.target["expr"], values)
        try:
            data = self.prometheus.ask("query_range", query=text, start=self.span[0], end=self.span[1], step=STEP)
        except ValueError as error:
            raise AssertionError(f"{self.name()}: {error}\n  {text}")
        out = []
        for series in data["result"]:
            labels = series["metric"]
            legend = re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda m: labels.get(m[1], ""), self.target["legendFormat"])
            missing = [m for m in re.findall(r"\{\{\s*(\w+)\s*\}\}", self.target["legendFormat"]) if m not in labels]
            assert not missing, f"{self.name()}: the legend asks for {missing}, the series has {sorted(labels)}"
            samples = [(t, float(v)) for t, v in series["values"] if math.isfinite(float(v))]
            if samples:
                out.append((legend, samples))
        assert out or self.is_of_gpu, f"{self.name()}: no finite sample\n  {text}"
        return out

    def check_values(self, series):
        values = [v for _, samples in series for _, v in samples]
        top = self.panel["fieldConfig"]["defaults"].get("max", math.inf)
        assert all(0 <= v <= top * 1.01 for v in values), f"{self.name()}: out of its axis: {series}"
        may_be_zero = self.target["legendFormat"] in MAY_BE_ZERO or "rate(" not in self.target["expr"]
        assert may_be_zero or self.is_of_gpu or max(values) > 0, f"{self.name()}: always 0 under traffic"


def evaluate_all(prometheus, dashboard, span, has_gpu):
    """The panels' data, [(panel, [(legend, samples)])], after all checks; prints the reason for what is empty."""
    variables = read_variables(prometheus, dashboard)
    everything = {**BUILT_IN, **{name: all_value for name, (all_value, _) in variables.items()}}
    shown, without_gpu, num_queries = [], [], 0
    for panel in dashboard["panels"]:
        lines = []
        for target in panel.get("targets", []):
            query = Query(panel, target, prometheus, span)
            series = query.evaluate(everything)
            num_queries += 1
            if not series:
                assert not has_gpu, f"{query.name()}: no sample, but the page has GPU families"
                without_gpu.append(panel["title"])
                continue
            query.check_values(series)
            lines += series
            for name, (_, single) in variables.items():  # each choice of a variable fills the panel, too
                if re.search(rf"\$(?:{name}\b|\{{{name}\}})", target["expr"]):
                    for value in single:
                        query.evaluate({**everything, name: value})
        legends = [legend for legend, _ in lines]
        assert len(legends) == len(set(legends)), f"panel {panel['title']!r}: the same legend twice: {legends}"
        shown.append((panel, lines))
    if without_gpu:
        print(f"dashboard: nothing to show without a GPU (the page has no nv_gpu_ family): {', '.join(without_gpu)}")
    print(f"dashboard: {num_queries} queries, {sum(len(lines) for _, lines in shown)} series")
    return shown


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("prometheus")
    parser.add_argument("metrics_url")
    parser.add_argument("http_url")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--record")
    args = parser.parse_args()
    made = subprocess.run([sys.executable, os.path.join(FOLDER, "make_dashboard.py")], capture_output=True, text=True,
                          check=True).stdout
    with open(os.path.join(FOLDER, "nereid.json")) as file:
        text = file.read()
    assert made == text, "nereid.json is not what make_dashboard.py writes"
    dashboard = json.loads(text)
    check_structure(dashboard)
    has_gpu = "nv_gpu_" in fetch(args.metrics_url + "/metrics")[1]
    with tempfile.TemporaryDirectory() as folder:
        prometheus = Prometheus(args.prometheus, folder, args.metrics_url)
        try:
            prometheus.wait_until_ready()
            start = time.time()
            send(args.http_url, max(args.seconds, 2 * STEP))
            prometheus.wait_for_scrape(time.time())
            end = time.time()  # the last step: it sees the last scrape
            span = end - STEP * math.floor((end - start) / STEP), end
            shown = evaluate_all(prometheus, dashboard, span, has_gpu)
        finally:
            prometheus.stop()
    if args.record:
        with open(args.record, "w") as file:
            json.dump([{"panel": panel, "series": lines} for panel, lines in shown], file)


main()
