"""The log of a start, compared with a stock server's recorded on the same repository with the same flags."""
import re

# Rows of the option table that differ: name -> why. None stands for a row that is not there.
OPTIONS = {
    "server_version": "each server's own",
    "model_repository_path[0]": "where the copy lies",
    "server_extensions": "only what is served: no cuda_shared_memory without a GPU",
}
LANDMARKS = ("| Repository Agent ", "| Backend ", "| Model ", "| Option ", "Started GRPCInferenceService at",
             "Started HTTPService at", "Started Metrics Service at")


def start_messages(log):
    """Texts of the lines that have a head, without it and without the quotes, until the server is up."""
    return re.findall(r'^[IWEV]\d{4} [\d:.]+ \d+ \S*\] "?(.*?)"?$', log.partition("Started HTTPService")[0], re.M)


def table(log, title):
    """Rows of the table whose first column has this title, as lists of cells."""
    lines = log.splitlines()
    begin = next(i for i, line in enumerate(lines) if re.match(r"\| %s +\|" % title, line))
    rows = []
    for line in lines[begin + 2:]:
        if not line.startswith("|"):
            return rows
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def loading(log):
    """(model, version) as their loads begin."""
    return [tuple(text[len("loading: "):].split(":")) for text in start_messages(log) if text.startswith("loading: ")]


def loaded(log):
    """The models that came up."""
    names = [re.match(r"successfully loaded '([^']+)'$", text) for text in start_messages(log)]
    return sorted({match[1] for match in names if match})


def compare(want, got):
    """Problems, as texts."""
    problems = []

    def same(what, of):
        expected, found = of(want), of(got)
        if expected != found:
            problems.append("start: %s: expected %s, got %s" % (what, expected, found))

    same("models and versions", lambda log: sorted(loading(log)))  # their order: ours load side by side
    same("models that loaded", loaded)
    for title in ("Repository Agent", "Model"):
        same("table " + title, lambda log: table(log, title))
    same("table Backend", lambda log: [[row[0], sorted(re.findall(r'"([\w-]+)":', row[2]))] for row in table(log, "Backend")])
    options, ours = dict(table(want, "Option")), dict(table(got, "Option"))
    differing = {name for name in {*options, *ours} if options.get(name) != ours.get(name)}
    for name in sorted(differing ^ set(OPTIONS)):
        problems.append("start: option %s: expected %r, got %r%s" % (
            name, options.get(name), ours.get(name), ", which is listed as different" if name in OPTIONS else ""))
    left = set(options["server_extensions"].split()) - set(ours["server_extensions"].split())
    if left != {"cuda_shared_memory"} or set(ours["server_extensions"].split()) - set(options["server_extensions"].split()):
        problems.append("start: extensions: %s" % ours["server_extensions"])
    places = [got.find(text) for text in LANDMARKS]
    if -1 in places or places != sorted(places):
        problems.append("start: the tables and the lines of the ports are not in order: %s" % places)
    return problems
