"""The two servers of these tests: folders made of the stock wheel's parts and ours, and processes started on them."""
import glob
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
PROTOCOLS = "http,grpc"  # protocols that our server is asked over
OUR_BACKENDS = ("tensorrtllm", "preprocessing", "postprocessing", "tensorrt_llm_bls", "multimodal_encoders", "whisper_bls")


class Parts:
    """Where the stock wheel's files and ours lie, and the mixed folders under `work` that join them."""

    def __init__(self, build):
        self.build = os.path.abspath(build)
        script = os.path.splitext(os.path.basename(sys.argv[0]))[0]
        self.work = os.path.join(self.build, "stock", script)  # scripts run side by side
        site = sysconfig.get_path("purelib")
        self.root = os.path.join(site, "pytriton/tritonserver")
        self.libs = os.path.join(site, "nvidia_pytriton.libs")
        self.core = glob.glob(os.path.join(self.libs, "libtritonserver-*.so"))[0]
        self.library_path = [self.libs, sysconfig.get_config_var("LIBDIR")]
        os.makedirs(self.work, exist_ok=True)

    def folder(self, name):
        path = os.path.join(self.work, name)
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
        return path

    def stock_python_backend(self, folder):
        """Copies the stock Python backend as it is; the stub must match this interpreter."""
        target = os.path.join(folder, "python")
        shutil.copytree(os.path.join(self.root, "backends/python"), target)
        stub = "python_backend_stubs/%d.%d/triton_python_backend_stub" % sys.version_info[:2]
        shutil.copy(os.path.join(self.root, stub), target)
        return os.path.join(target, "libtriton_python.so")

    def our_backends(self):
        """Our backends, and the stock Python backend linked to our core library's name."""
        folder = self.folder("our_backends")
        library = self.stock_python_backend(folder)
        patchelf("--replace-needed", os.path.basename(self.core), "libtritonserver.so", library)
        patchelf("--set-rpath", self.libs, library)
        for name in OUR_BACKENDS:
            os.symlink(os.path.join(self.build, "backends", name), os.path.join(folder, name))
        return folder

    def stock_backends(self):
        """The stock Python backend as it is, and ours linked to the stock core library's name."""
        folder = self.folder("stock_backends")
        patchelf("--set-rpath", self.libs, self.stock_python_backend(folder))
        for name in OUR_BACKENDS:
            shutil.copytree(os.path.join(self.build, "backends", name), os.path.join(folder, name))
            library = os.path.join(folder, name, "libtriton_%s.so" % name)
            patchelf("--replace-needed", "libtritonserver.so", os.path.basename(self.core), library)
            patchelf("--set-rpath", self.libs, library)
        return folder

    def stock_front_on_our_core(self):
        """The stock front end without its own library path, and a folder with our core under the stock core's name."""
        folder = self.folder("front")
        binary = shutil.copy(os.path.join(self.root, "bin/tritonserver"), folder)
        patchelf("--remove-rpath", binary)
        os.makedirs(os.path.join(folder, "lib"))
        shutil.copy(os.path.join(self.build, "lib/libtritonserver.so"),
                    os.path.join(folder, "lib", os.path.basename(self.core)))
        return binary, os.path.join(folder, "lib")

    def environment(self, first=()):
        env = dict(os.environ)
        env["PATH"] = os.path.join(sys.prefix, "bin") + ":" + env["PATH"]
        env["LD_LIBRARY_PATH"] = ":".join(list(first) + self.library_path)
        return env


def patchelf(*arguments):
    subprocess.run([os.path.join(sys.prefix, "bin/patchelf"), *arguments], check=True)


def free_ports(count):
    """Ports without a listener now; a start that loses the race to another process is tried again by Server."""
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Server:
    """One server process with its log; `http` and `grpc` are ports."""

    def __init__(self, name, command, env, log):
        self.name, self.command, self.env, self.log = name, command, env, log
        self.process = None
        self.starts = 0

    def start(self, timeout=120):
        for _ in range(3):
            self.http, self.grpc, self.metrics = free_ports(3)
            with open(self.log, "ab") as out:
                self.process = subprocess.Popen(self.command(self), env=self.env, stdout=out, stderr=out,
                                                start_new_session=True)
            self.starts += 1
            end = time.time() + timeout
            while time.time() < end and self.alive():
                if self.ready():
                    return self
                time.sleep(0.05)
            self.kill()
        raise RuntimeError("%s did not become ready:\n%s" % (self.name, self.tail()))

    def ready(self, path="ready"):
        try:
            with urllib.request.urlopen("http://127.0.0.1:%d/v2/health/%s" % (self.http, path), timeout=5) as reply:
                return reply.status == 200
        except OSError:
            return False

    def live(self):
        """Whether it answers; it is not ready while the last load of a model has failed."""
        return self.ready("live")

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        """Ends the process and the stubs of its Python models, which live in its session."""
        if self.process is None:
            return
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def stop(self, timeout=60):
        """Exit code after SIGTERM; -9 when it had to be killed."""
        if self.alive():
            self.process.terminate()
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            code = -9
        self.kill()
        return code

    def tail(self, size=3000):
        with open(self.log, "rb") as f:
            return f.read().decode("utf-8", "replace")[-size:]

    def __enter__(self):
        return self.start()

    def __exit__(self, error, *unused):
        if error and not self.alive():
            print("%s ended with code %s\n%s" % (self.name, self.process and self.process.returncode, self.tail()))
        self.kill()


def flags(server, repository, backends, more=()):
    """The options both servers get, in the stock spelling."""
    return ["--model-repository=" + repository, "--backend-directory=" + backends, "--http-port=%d" % server.http,
            "--grpc-port=%d" % server.grpc, "--metrics-port=%d" % server.metrics, "--http-address=127.0.0.1",
            "--grpc-address=127.0.0.1", "--log-verbose=0", *more]


def fresh_log(parts, name):
    path = os.path.join(parts.work, name + ".log")
    open(path, "wb").close()
    return path


def stock_server(parts, repository, backends=None, more=(), name="stock"):
    """The stock server as it is."""
    backends = backends or os.path.join(parts.root, "backends")
    binary = os.path.join(parts.root, "bin/tritonserver")
    caches = "--cache-directory=" + os.path.join(parts.root, "caches")
    return Server(name, lambda s: [binary, *flags(s, repository, backends, [caches, *more])], parts.environment(),
                  fresh_log(parts, name))


def our_server(parts, repository, backends, more=(), name="nereid", env=None):
    environment = parts.environment()
    environment.update(env or {})
    binary = os.path.join(parts.build, "bin/tritonserver")
    return Server(name, lambda s: [binary, *flags(s, repository, backends, more)], environment,
                  fresh_log(parts, name))


def repository_copy(parts, name="repository", more=()):
    """A fresh copy of the recorded corpus's model repository, and the models `more` of ours."""
    target = os.path.join(parts.work, name)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(os.path.join(HERE, "repository"), target)
    for model in more:
        shutil.copytree(os.path.join(HERE, "models", model), os.path.join(target, model))
    return target
