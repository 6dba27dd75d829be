"""`nereid serve` of models/quickstart or another folder for the time of a test."""
import contextlib
import os
import subprocess
import tempfile
import time

MODEL = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "models", "quickstart"))


@contextlib.contextmanager
def serving(nereid, *arguments, model=MODEL):
    """Gives the address of its HTTP port; it must end well when it is stopped."""
    with tempfile.TemporaryDirectory() as folder:
        ports = os.path.join(folder, "ports")
        with open(os.path.join(folder, "log"), "w+", encoding="utf-8") as log:
            server = subprocess.Popen([nereid, "serve", model, "--http-port", "0", "--metrics-port", "0", "--port-file", ports,
                                       *arguments], stdout=log, stderr=subprocess.STDOUT)
            try:
                while not os.path.exists(ports):
                    assert server.poll() is None, open(log.name, encoding="utf-8").read()
                    time.sleep(0.05)
                with open(ports, encoding="utf-8") as file:
                    yield "http://127.0.0.1:" + dict(line.strip().split("=") for line in file)["http"]
            finally:
                server.terminate()
                assert server.wait(60) == 0
