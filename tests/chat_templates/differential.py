"""Chat templates against Jinja2 as transformers sets it up: same text, or an error on both sides.
usage: differential.py TEMPLATE_LINES [--conversations N] [--seed S] [--only NAME]"""
import argparse
import json
import os
import pathlib
import random
import re
import subprocess

import conversations

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
HERE = pathlib.Path(__file__).parent

# Sources that do not parse, each with a reason of its own.
BROKEN = [
    "{{ 1", "{{ }}", "{% if %}{% endif %}", "{% if 1 %}", "{% for x in %}{% endfor %}", "{% for in y %}{% endfor %}", "{% endif %}", "{% else %}",
    "{% nosuch %}", "{{ 'open }}", "{{ (1 }}", "{{ 1) }}", "{{ [1, }}", "{{ {'a' 1} }}", "{# open", "{% raw %} x", "{% set %}", "{% set 1 = 2 %}",
    "{% set a.b %}{% endset %}{{", "{% macro %}{% endmacro %}", "{% macro f(a=1, b) %}{% endmacro %}", "{{ a b }}", "{{ a | }}", "{{ a is }}", "{{ a. }}",
    "{{ a[ }}", "{{ f(a=1, 2) }}", "{% set true = 1 %}", "{% for x in y %}{% endif %}", "{{ a ? b }}", "{{ $ }}", "{% call 1 %}{% endcall %}",
    "{% if a %}{% elif %}{% endif %}", "{% with a %}{% endwith %}", "a\nb\n{{ c }\n", "{% filter %}{% endfilter %}", "{{ a if }}", "{{ not }}",
    "{{ 1 + }}", "{{ ** 2 }}", "{% generation %}", "{{ a is b is c }}", "{% for x in y %}", "{{ a == == b }}", "{{ x|nosuch }}", "{{ x is nosuch }}",
]


class Lines:
    """Our side: a process that answers JSON lines."""

    def __init__(self, program):
        self.program = program

    def ask(self, requests):
        text = "".join(json.dumps(r) + "\n" for r in requests)
        done = subprocess.run([self.program], input=text.encode(), stdout=subprocess.PIPE, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]


def render(template, context):
    """(text, None), or (None, the message of raise_exception or None)."""
    import jinja2
    try:
        return template.render(**context), None
    except Exception as error:
        return None, str(error) if type(error) is jinja2.exceptions.TemplateError else None


def difference(expected, raised, answer):
    """The difference, or None."""
    if expected is not None:
        return None if answer == expected else f"expected {json.dumps(expected)}\n    got      {json.dumps(answer)}"
    if not isinstance(answer, dict):
        return f"expected an error\n    got      {json.dumps(answer)}"
    if not re.match(r"line \d+(, column \d+)?: .", answer["error"]):
        return f"the error names no line: {answer['error']}"
    if raised is not None and not answer["error"].endswith(f": {raised}"):
        return f"expected the message {json.dumps(raised)}\n    got      {json.dumps(answer['error'])}"
    return None


def compare_renderings(lines, name, source, contexts, compile_template):
    template = compile_template(source)
    answers = lines.ask([{"parse": source}] + [{"render": c} for c in contexts])
    assert answers[0] is True, f"{name}: {answers[0]}"
    wrong = rendered = 0
    for context, answer in zip(contexts, answers[1:]):
        expected, raised = render(template, context)
        rendered += expected is not None
        found = difference(expected, raised, answer)
        if found:
            wrong += 1
            if wrong <= 2:
                print(f"  {name}: {json.dumps(context)}\n    {found}")
    return wrong, rendered


def compare_broken(lines, compile_template):
    wrong = 0
    for source in BROKEN:
        try:
            render_ok = render(compile_template(source), {})[0] is not None
        except Exception:
            render_ok = False
        parsed, text = lines.ask([{"parse": source}, {"render": {}}])
        answer = parsed if parsed is not True else text
        found = "the reference takes it" if render_ok else difference(None, None, answer)
        if found:
            wrong += 1
            print(f"  broken {json.dumps(source)}: {found}")
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--conversations", type=int, default=500)
    parser.add_argument("--seed", type=int, default=20261123)
    parser.add_argument("--only")
    options = parser.parse_args()
    from transformers.utils.chat_template_utils import _compile_jinja_template as compile_template
    lines = Lines(options.program)
    rng = random.Random(options.seed)
    contexts = [conversations.context(rng) for _ in range(options.conversations)]
    paths = [p for p in sorted((HERE / "templates").glob("*.jinja")) if options.only in (None, p.stem)]
    wrong = compare_broken(lines, compile_template)
    rendered = 0
    for path in paths:
        with open(path, encoding="utf-8", newline="") as file:
            bad, good = compare_renderings(lines, path.stem, file.read(), contexts, compile_template)
        wrong += bad
        rendered += good
        if good == 0 and options.conversations >= 100:
            wrong += 1
            print(f"  {path.stem}: no conversation renders")
    print(f"chat templates: {len(paths)} templates, {len(contexts)} conversations, {rendered} texts, "
          f"{len(paths) * len(contexts) - rendered} errors, {len(BROKEN)} broken sources, {wrong} differences")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
