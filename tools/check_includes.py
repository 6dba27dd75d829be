#!/usr/bin/env python3
"""Fails when a C++ file uses a name whose header neither it nor what it includes of the project includes.

Release builds hide that: headers are precompiled, and several sources are compiled as one. Known are the names of
libraries in STANDARD, classes, enums and aliases that one header of src/ or include/ alone declares, and functions
that are called with the name of their folder (io::place_weights).
(The debug preset compiles each file by itself, which takes an hour.)  usage: tools/check_includes.py"""
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("src", "include", "bench", "tests", "examples")
STRINGS = re.compile(r'R"(\w*)\(.*?\)\1"|#\s*include[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', re.S)
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
DECLARED = re.compile(r"^(?:template <.*>\n)?(?:class|struct|enum class|enum|union)\s+(?:\[\[\w+\]\]\s+)?([A-Z]\w+)"
                      r"(?:\s+final)?\s*(?::[^;{]*)?\{|^using ([A-Z]\w+) =", re.M)
ANYWHERE = re.compile(r"\b(?:class|struct|enum class|enum|union|using|typename|concept)\s+(?:alignas\(\w+\)\s+)?(?:\w+::)*([A-Z]\w+)")
FUNCTION = re.compile(r"^(?:template <[^\n]*>\n)?(?:\[\[\w+\]\] )?(?:inline |constexpr )*[A-Za-z][\w:<>,*& ]*?[\s&*]([a-z]\w+)\(", re.M)
CALL = re.compile(r"(?<![\w:])([a-z]\w+)::([a-z]\w+)\(")
TEST_NAME = re.compile(r"^(?:TYPED_)?TEST(?:_F|_P)?\([^)]*\)", re.M)
STANDARD = {
    "algorithm": "(?:ranges::)?(?:sort|stable_sort|find|find_if|all_of|any_of|none_of|copy|count|count_if|fill|replace|"
                 "min_element|max_element|lower_bound|upper_bound|reverse|equal|clamp|transform|unique|shuffle|nth_element)",
    "array": "array", "atomic": "atomic(?:_flag|_bool)?|memory_order_\\w+", "bit": "bit_cast|popcount|countr_zero|bit_width",
    "chrono": "chrono", "cmath": "(?:sqrt|exp|log|pow|abs|lround|isnan|isfinite|tanh|ceil|floor)(?=\\()",
    "condition_variable": "condition_variable(?:_any)?", "cstring": "mem(?:cpy|cmp|set|move)", "deque": "deque",
    "filesystem": "filesystem", "fstream": "[io]?fstream", "functional": "function|hash|move_only_function|less|greater",
    "limits": "numeric_limits", "map": "(?:multi)?map", "memory": "(?:unique|shared|weak)_ptr|make_(?:unique|shared)",
    "mutex": "mutex|lock_guard|unique_lock|scoped_lock|once_flag|call_once", "numeric": "accumulate|iota|reduce",
    "optional": "optional|nullopt", "queue": "(?:priority_)?queue", "random": "mt19937(?:_64)?|\\w+_distribution",
    "set": "(?:multi)?set", "shared_mutex": "shared_mutex|shared_lock", "span": "span|as_(?:writable_)?bytes",
    "sstream": "[io]?stringstream", "string": "string|to_string", "string_view": "string_view",
    "thread": "thread|jthread|this_thread", "tuple": "tuple|tie", "unordered_map": "unordered_map",
    "unordered_set": "unordered_set", "variant": "variant|visit|get_if|holds_alternative|monostate", "vector": "vector",
}
STANDARD = {header: re.compile(rf"\bstd::(?:{names})\b") for header, names in STANDARD.items()}
# The project's headers in the precompiled header, with their names. Backends have a log of their own.
PROJECT = {"src/base/json.h": "json::", "src/base/log.h": "log_(?:debug|info|warn|error)\\(",
           "src/base/status.h": "RETURN_IF_ERROR|ASSIGN_OR_RETURN|(?:invalid_argument|not_found|unavailable)\\("}
PROJECT = {pathlib.Path(header): re.compile(rf"(?<![\w.>:])(?:{names})") for header, names in PROJECT.items()}
STANDARD["gtest/gtest.h"] = re.compile(r"\b(?:EXPECT|ASSERT)_[A-Z]+\b|\bADD_FAILURE\b")
# Other headers that the standard guarantees to declare these names.
ALSO = {"string": {"string_view", "sstream", "fstream"}, "string_view": {"string"}, "mutex": {"condition_variable"},
        "memory": {"functional"}, "sstream": {"fstream"}, "chrono": {"thread", "condition_variable"}, "gtest/gtest.h": {"gmock/gmock.h"}}
ALSO["string_view"] |= {"sstream", "fstream"}


def read():
    """{path below ROOT: text} of every C++ file."""
    suffixes = {".h", ".cc", ".cu", ".cuh"}
    return {path.relative_to(ROOT): path.read_text() for folder in FOLDERS for path in (ROOT / folder).rglob("*")
            if path.suffix in suffixes}


def find(files, includer, name):
    for place in (includer.parent / name, pathlib.Path("src") / name, pathlib.Path("include") / name):
        parts = []
        for part in place.parts:
            parts = parts[:-1] if part == ".." else parts + [part]
        if (path := pathlib.Path(*parts)) in files:
            return path
    return None


def main():
    texts = read()
    bare = {path: TEST_NAME.sub(" ", STRINGS.sub(" ", text)) for path, text in texts.items()}
    own, system = collections.defaultdict(set), collections.defaultdict(set)
    for path, text in texts.items():
        for _, name in INCLUDE.findall(text):
            header = find(texts, path, name)
            (own[path] if header else system[path]).add(header or name)

    def reach(path):
        seen, todo = {path}, [path]
        while todo:
            for header in own[todo.pop()] - seen:
                seen.add(header)
                todo.append(header)
        return seen

    homes, others, functions = (collections.defaultdict(set) for _ in range(3))
    for path, text in bare.items():
        declared = {a or b for a, b in DECLARED.findall(text)} if path.suffix == ".h" else set()
        for name in declared:
            homes[name].add(path)
        for name in set(ANYWHERE.findall(text)) - declared:
            others[name].add(path)
        for name in FUNCTION.findall(text) if path.suffix == ".h" and path.parts[0] == "src" else []:
            functions[path.parts[1], name].add(path)
    faults = []
    for path, text in sorted(bare.items()):
        if path.name == "precompiled.h" or path.suffix in (".cu", ".cuh"):
            continue
        files = reach(path)
        headers = set().union(*(system[f] for f in files))
        for header, names in STANDARD.items():
            if header not in headers and not headers & ALSO.get(header, set()) and (used := names.search(text)):
                faults.append(f"{path}: {used.group()} needs <{header}>")
        for header, names in PROJECT.items():
            if header not in files and (used := names.search(text)) and path.parts[:2] != ("src", "backend"):
                faults.append(f"{path}: {used.group()} needs \"{header}\"")
        for call in sorted(set(CALL.findall(text))):
            if functions.get(call) and not functions[call] & files:
                faults.append(f"{path}: {'::'.join(call)}() needs \"{next(iter(functions[call]))}\"")
        for name in sorted(set(re.findall(r"(?<![\w.:])(?<!->)[A-Z]\w+", text))):
            if len(homes.get(name, ())) == 1 and not (homes[name] | others[name]) & files:
                faults.append(f"{path}: {name} needs \"{next(iter(homes[name]))}\"")
    for fault in faults:
        print("check_includes:", fault)
    print(f"check_includes: {len(texts)} files, {len(faults)} faults")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
