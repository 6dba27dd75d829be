"""The metrics page after the whole corpus, compared with a stock server's: families, labels and all that is counted."""
import re

# Families whose values are times, sizes or loads: only their series are compared.
MEASURED = re.compile(r"duration|nv_cpu_|nv_cache_util")
# Families of ours that stock does not have.
OWN = re.compile(r"nereid_|process_|nv_model_load_duration_secs$")


GONE = "stock keeps the failures of a model that is gone"
ANEW = ("unloaded in the corpus after a failure in the middle of an answer: stock never lets go of such an ensemble and its "
        "models, so that they go on counting; here a model that comes back starts at nothing")
REFUSED = "requests that stock passes on and this server refuses (deliberate.py)"
CACHE = "other shapes and requested outputs are other questions to the response cache"


def gone(want, got):
    return got is None


def less(want, got):
    return got is None or got < want


def hardly_more(want, got):
    return got is None or got <= want + 2


def some(want, got):
    return got is not None and 0 < got <= want


# (pattern of "family{labels}", ours minus stock's or what holds of both, why)
DIFFERENT = [
    (r'nv_inference_request_failure\{model="(from|g)_files"', gone, GONE),
    (r'nv_inference_(request_success|(exec_)?count)\{model="(ensemble|ensemble_plain|post)"', less, ANEW),
    (r'nv_inference_request_failure\{model="(ensemble|ensemble_plain|post)"', hardly_more, ANEW + "; when it is cancelled is a matter of time"),
    (r'nv_inference_(request_success|count)\{model="llm"', -7, REFUSED),
    (r'nv_inference_exec_count\{model="llm"', some, REFUSED + "; how many form a batch is a matter of time"),
    (r'nv_inference_(request_success|(exec_)?count)\{model="one"', -5, REFUSED),
    (r'nv_inference_(request_success|(exec_)?count)\{model="types"', -3, REFUSED),
    (r'nv_inference_request_failure\{model="(bytes1|llm|types)",reason="BACKEND"', -1, REFUSED),
    (r'nv_cache_num_hits', -1, CACHE),
    (r'nv_cache_num_(misses|entries)|nv_inference_(exec_)?count\{model="cached"', 1, CACHE),
]


class Page:
    def __init__(self, text):
        self.help, self.type, self.series = {}, {}, {}
        for line in text.splitlines():
            if line.startswith("# "):
                _, what, family, rest = line.split(" ", 3)
                {"HELP": self.help, "TYPE": self.type}[what][family] = rest
            elif match := re.fullmatch(r"(\w+)(\{.*\})? (\S+)", line):
                self.series[match[1], match[2] or ""] = match[3]

    def families(self):
        return {family for family in self.type if not OWN.match(family)}


def number(text):
    return float(text) if text is not None else None


def is_as_listed(wanted, left, right):
    if callable(wanted):
        return wanted(left, right)
    return left is not None and right is not None and right - left == wanted


def compare(want, got):
    """Problems, as texts: differences that DIFFERENT does not have, and its rows without a difference."""
    problems, used = [], set()
    for family, labels, left, right in differences(Page(want), Page(got)):
        rows = [row for row in DIFFERENT if re.match(row[0], family + labels)]
        if rows and is_as_listed(rows[0][1], left, right):
            used.add(rows[0])
        else:
            problems.append("metrics: %s%s: expected %s, got %s" % (family, labels, left, right))
    problems += ["metrics: a listed difference that is none: %s" % row[0] for row in DIFFERENT if row not in used]
    return problems


def differences(want, got):
    """(family, labels, stock's value, ours), for what stock's page or ours alone has too."""
    out = []
    for family in sorted(want.families() ^ got.families()):
        out.append((family, "", want.type.get(family), got.type.get(family)))
    for family in sorted(want.families() & got.families()):
        for of in ("help", "type"):
            if getattr(want, of)[family] != getattr(got, of)[family]:
                out.append((family, of, getattr(want, of)[family], getattr(got, of)[family]))
    keys = {key for page in (want, got) for key in page.series if key[0] in want.families() & got.families()}
    for key in sorted(keys):
        left, right = (number(page.series.get(key)) for page in (want, got))
        if (left is None) != (right is None) or (left != right and not MEASURED.search(key[0])):
            out.append((*key, left, right))
    return out
