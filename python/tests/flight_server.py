"""`terrace-query flight` for the tests, and connections to it by the ADBC driver as it comes from PyPI."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("TERRACE_QUERY", REPOSITORY / "target/release/terrace-query"))
TOKEN = "a-token-for-the-tests-of-flight"


def connect(location: str, token: str | None = TOKEN, **options: str) -> Any:
    import adbc_driver_flightsql.dbapi
    from adbc_driver_flightsql import DatabaseOptions

    given = {DatabaseOptions.AUTHORIZATION_HEADER.value: f"Bearer {token}"} if token else {}
    return adbc_driver_flightsql.dbapi.connect(location, db_kwargs={**given, **options}, autocommit=True)


class FlightServer:
    def __init__(self, environment: dict[str, str], *flags: str) -> None:
        self._directory = tempfile.TemporaryDirectory()
        token = Path(self._directory.name) / "token"
        token.write_text(TOKEN + "\n")
        command = [PROGRAM, "flight", "--listen", "127.0.0.1:0", "--token-file", token, *flags]
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        self.location = self.process.stdout.readline().strip()
        assert self.location.startswith("grpc"), "Flight SQL is not served"

    def connect(self, **options: str) -> Any:
        return connect(self.location, **options)

    def __enter__(self) -> FlightServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        assert self.process.wait(60) == 0
        self.process.stdout.close()
        self._directory.cleanup()
