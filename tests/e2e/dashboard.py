"""Checks deploy/grafana/nereid.json against the page of a live server: every metric and label that a panel asks for is
there, and each query yields a value. usage: dashboard.py METRICS_URL [HTTP_URL]   With HTTP_URL it sends requests first.

GPU families are only looked for where the page has them."""
import json
import os
import re
import subprocess
import sys
import urllib.request

FUNCTIONS = {"sum", "max", "by", "rate", "clamp_min", "histogram_quantile", "le", "e"}
HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "..", "..", "deploy", "grafana")


def page(url):
    """series name -> set of label sets, as text."""
    with urllib.request.urlopen(url + "/metrics") as reply:
        lines = reply.read().decode().splitlines()
    out = {}
    for line in lines:
        if line and not line.startswith("#"):
            series = line.rpartition(" ")[0]
            name, _, labels = series.partition("{")
            out.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return out


def metrics_of(expression):
    """(metric, labels that the query selects or groups by)."""
    grouped = [label.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(",")]
    plain = re.sub(r"by \([^)]*\)", "", expression)
    for name, selector in re.findall(r"([a-zA-Z_:][\w:]*)(\{[^}]*\})?(?=[\[\s){/]|$)", plain):
        if name in FUNCTIONS or name.startswith("__"):
            continue
        yield name, grouped + re.findall(r"(\w+)=~?", selector)


def main():
    metrics_url = sys.argv[1]
    if len(sys.argv) > 2:
        body = json.dumps({"text_input": "The sea", "max_tokens": 8}).encode()
        for _ in range(3):
            request = urllib.request.Request(sys.argv[2] + "/v2/models/ensemble/generate", body)
            urllib.request.urlopen(request).read()
    made = subprocess.run([sys.executable, os.path.join(FOLDER, "make_dashboard.py")], capture_output=True, text=True,
                          check=True).stdout
    with open(os.path.join(FOLDER, "nereid.json")) as file:
        text = file.read()
    assert made == text, "nereid.json is not what make_dashboard.py writes"
    live = page(metrics_url)
    problems, asked = [], set()
    for panel in json.loads(text)["panels"]:
        for target in panel.get("targets", []):
            for name, labels in metrics_of(target["expr"]):
                asked.add(name)
                if name not in live:
                    if not name.startswith("nv_gpu"):
                        problems.append(f"panel {panel['title']!r}: no metric {name}")
                elif missing := set(labels) - live[name]:
                    problems.append(f"panel {panel['title']!r}: {name} has no label {sorted(missing)}")
    assert len(asked) > 30, f"only {len(asked)} metrics recognised in the queries"
    assert not problems, "\n".join(problems)
    print(f"dashboard: {len(asked)} metrics, all on the page")


main()
