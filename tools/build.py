#!/usr/bin/env python3
"""Builds targets and shows how far it is: on a terminal a line with percent and the time left, elsewhere a line for each
tenth. What compilers print (warnings, errors) is passed on; the commands are not.
usage: build.py BUILD_DIR TARGET...    Exit status: ninja's."""
import os
import re
import subprocess
import sys
import time

STATUS = re.compile(r"^@(\d+) (\d+)@ ")
SAID_ANYWAY = ("ninja: Entering directory", "ninja: no work", "-- ")
WIDTH = 30


def duration(seconds):
    minutes, seconds = divmod(max(int(seconds), 0), 60)
    return f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"


class Progress:
    def __init__(self):
        self.begun = time.monotonic()
        self.is_terminal = sys.stdout.isatty()
        self.is_open = False  # a line of progress stands on the terminal
        self.tenth = 0

    def show(self, done, total):
        if done == 0:
            return
        passed = time.monotonic() - self.begun
        left = passed * (total - done) / done
        text = f"{100 * done // total:3} %  {done} of {total}"
        if done < total and passed > 3:
            text += f", about {duration(left)} left"
        if self.is_terminal:
            full = WIDTH * done // total
            print(f"\r\033[Kcompiling [{'#' * full}{'-' * (WIDTH - full)}] {text}", end="", flush=True)
            self.is_open = True
        elif 10 * done // total > self.tenth:
            self.tenth = 10 * done // total
            print(f"compiling {text}", flush=True)

    def close(self):
        if self.is_open:
            print("\r\033[K", end="", flush=True)
        self.is_open = False


def main():
    build, targets = sys.argv[1], sys.argv[2:]
    progress = Progress()
    ninja = subprocess.Popen(["ninja", "-C", build, *targets], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                             env={**os.environ, "NINJA_STATUS": "@%f %t@ "})
    compiled = False
    for line in ninja.stdout:
        if found := STATUS.match(line):
            compiled = True
            progress.show(int(found[1]), int(found[2]))
        elif not line.startswith(SAID_ANYWAY):
            progress.close()
            print(line, end="", flush=True)
    progress.close()
    if ninja.wait() == 0:
        took = f"compiled in {duration(time.monotonic() - progress.begun)}" if compiled else "nothing to compile"
        print(f"build: {took}: {build}/bin/{targets[0]}")
    return ninja.returncode


if __name__ == "__main__":
    sys.exit(main())
