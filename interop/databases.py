"""Private PostgreSQL and MariaDB servers on loopback ports."""

import glob
import os
import pwd
import shutil
import socket
import subprocess
import tempfile

from peer import until


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Database:
    """A server that runs as `user` where we are root, because it refuses to be root."""

    def __init__(self, user):
        self.user = user if os.getuid() == 0 else None
        self.port = free_port()
        self.dir = tempfile.mkdtemp(prefix="distlock-interop-")
        os.chmod(self.dir, 0o755)
        if self.user:
            account = pwd.getpwnam(self.user)
            os.chown(self.dir, account.pw_uid, account.pw_gid)
        self.data = os.path.join(self.dir, "data")
        self.log = open(os.path.join(self.dir, "log"), "w+")

    def run(self, *words):
        subprocess.run(words, check=True, cwd=self.dir, user=self.user, stdout=self.log, stderr=self.log)

    def start(self, *words):
        self.process = subprocess.Popen(words, cwd=self.dir, user=self.user, stdout=self.log, stderr=self.log)
        until(lambda: self.sql("SELECT 1") == "1", "the server to answer")

    def stop(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


class Postgres(Database):
    def __init__(self):
        super().__init__("postgres")
        bin = max(glob.glob("/usr/lib/postgresql/*/bin"), default="/usr/bin")
        self.run(f"{bin}/initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C")
        settings = ("listen_addresses=127.0.0.1", f"unix_socket_directories={self.dir}", "fsync=off")
        options = [word for setting in settings for word in ("-c", setting)]
        self.start(f"{bin}/postgres", "-D", self.data, "-p", str(self.port), *options)
        self.url = f"postgres://postgres@127.0.0.1:{self.port}/postgres"
        self.jdbc = f"jdbc:postgresql://127.0.0.1:{self.port}/postgres?user=postgres"

    def sql(self, text):
        words = ["psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-Atqc", text]
        return subprocess.run(words, capture_output=True, text=True).stdout.strip()


class MariaDb(Database):
    def __init__(self):
        super().__init__("mysql")
        self.run("mariadb-install-db", "--no-defaults", f"--datadir={self.data}", "--auth-root-authentication-method=normal", "--skip-test-db")
        where = (f"--datadir={self.data}", f"--port={self.port}", f"--socket={self.dir}/s.sock", f"--pid-file={self.dir}/pid")
        self.start("/usr/sbin/mariadbd", "--no-defaults", "--bind-address=127.0.0.1", "--skip-name-resolve", "--skip-log-bin", *where)
        self.sql("CREATE DATABASE distlock")
        self.url = f"mysql://root@127.0.0.1:{self.port}/distlock"
        self.jdbc = f"jdbc:mariadb://127.0.0.1:{self.port}/distlock?user=root"

    def sql(self, text):
        words = ["mariadb", "--no-defaults", "-h", "127.0.0.1", "-P", str(self.port), "-u", "root", "-Ne", text]
        return subprocess.run(words, capture_output=True, text=True).stdout.strip()
