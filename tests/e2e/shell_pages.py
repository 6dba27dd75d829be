"""Man pages and completions have every flag that `--help` of their command has, shells read them, and `nereid version --json`
and `nereid doctor` say what is so.

usage: shell_pages.py NEREID"""
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile

from skips import skip

NEREID = os.path.abspath(sys.argv[1])


def run(*words, code=0, output="stdout", **more):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, **more)
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return getattr(done, output)


def flags_of(command):
    """Flags at the beginning of a line of the command's help."""
    found = set()
    # tritonserver's help goes to stderr with exit code 1, as the stock server's.
    code, output = (1, "stderr") if command == "tritonserver" else (0, "stdout")
    for line in run(NEREID, command, "--help", code=code, output=output).splitlines():
        assert len(line) <= 80 or " " not in line.strip(), f"{command} --help: {line}"
        if re.match(r"  ?-", line):
            found.update(re.findall(r"(?<![\w-])--?[A-Za-z][\w.-]*", re.split(r"  |[ ][^-]", line.strip())[0]))
    return found


def completed(script, *words):
    """What bash offers for the last one of the words of a command line."""
    program = f'source {script}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _nereid; printf "%s\\n" "${{COMPREPLY[@]}}"'
    return set(run("bash", "-c", program, "bash", "nereid", *words).split())


def check_pages(folder):
    scripts = {shell: os.path.join(folder, "nereid." + shell) for shell in ("bash", "zsh", "fish")}
    for shell, path in scripts.items():
        with open(path, "w", encoding="utf-8") as file:
            file.write(run(NEREID, "completions", shell))
    commands = completed(scripts["bash"], "") - {"--help", "--version"}
    assert {"serve", "generate", "convert", "tritonserver", "doctor"} <= commands, commands
    first_page = run(NEREID, "man")
    pages = []
    for command in sorted(commands):
        page = run(NEREID, "man", command)
        flags = flags_of(command)
        assert flags or command == "trtllm-llmapi-launch", command
        offered = completed(scripts["bash"], command, "-")
        for flag in flags:
            assert "\\fB" + flag.replace("-", "\\-") + "\\fR" in page, f"man {command}: {flag}"
            assert flag in offered, f"{command}: {flag} is not offered"
        assert f"\\fB{command}\\fR".replace("-", "\\-") in first_page, command
        pages.append(os.path.join(folder, f"nereid-{command}.1"))
        with open(pages[-1], "w", encoding="utf-8") as file:
            file.write(page)
    assert completed(scripts["bash"], "serve", "--weights", "in") == {"int8", "int4"}
    assert completed(scripts["bash"], "serve", "--weights", "=", "w") == {"w8a8"}
    assert "Did you mean 'serve'?" in subprocess.run([NEREID, "man", "serv"], capture_output=True, text=True, check=False).stderr
    for shell in ("zsh", "fish"):
        if shutil.which(shell):
            run(shell, "-n", scripts[shell])
        else:
            skip(f"completions in {shell}", "no such shell")
    if shutil.which("fish"):
        offers = run("fish", "-c", f"source {scripts['fish']}; complete -C 'nereid serve --weights in'")
        assert {line.split("\t")[0] for line in offers.splitlines()} == {"int8", "int4"}, offers
    if shutil.which("mandoc"):
        # The pages have no date: they are of a version.
        lines = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", *pages], capture_output=True, text=True, check=False).stdout
        assert not [line for line in lines.splitlines() if "missing date" not in line], lines
    else:
        skip("mandoc's check of man pages", "no mandoc")
    print(f"shell_pages: {len(commands)} commands")


def check_flags_page():
    """docs/flags.md is what the program prints, whatever machine it is written on."""
    page = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "flags.md")
    with open(page, encoding="utf-8") as file:
        text = file.read()
    printed = run(NEREID, "flags", env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"})
    assert text == printed, "docs/flags.md: write it again: make options"
    assert text == run(NEREID, "flags"), "the page depends on the environment"


def check_version():
    version = json.loads(run(NEREID, "version", "--json"))
    assert run(NEREID, "version") == f"nereid {version['version']}\n" == run(NEREID, "--version")
    assert "generic" in version["features"]["usable_isas"] and version["build"]["compiler"], version


def check_doctor(folder):
    def doctor(code, **environment):
        lines = run(NEREID, "doctor", code=code, env={**os.environ, **environment}).splitlines()
        return {line[7:20].strip(): (line[:5].strip(), line[22:]) for line in lines}

    # The default ports may be in use by other programs: that is the only fault here.
    cache = os.path.join(folder, "cache")
    taken = []
    for port in (8000, 8002):
        try:
            taken.append(socket.create_server(("127.0.0.1", port)))
        except OSError:
            pass
    report = doctor(1, NEREID_CACHE_DIR=cache)
    assert {name for name, (kind, _) in report.items() if kind == "FAULT"} == {"port 8000", "port 8002"}, report
    assert report["cache"][1].startswith(cache) and not os.path.exists(cache)
    assert {"processor", "memory", "huge pages", "backends", "open files", "threads"} <= set(report), report
    with open(os.path.join(folder, "file"), "w", encoding="utf-8"):
        pass
    report = doctor(1, NEREID_CACHE_DIR=os.path.join(folder, "file", "cache"))
    assert report["cache"][0] == "FAULT" and "--cache-dir" in report["cache"][1], report
    for server in taken:
        server.close()


with tempfile.TemporaryDirectory() as scratch:
    check_pages(scratch)
    check_flags_page()
    check_version()
    check_doctor(scratch)
print("shell_pages: ok")
