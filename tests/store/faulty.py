"""A connection that fails where a test says, as a disk would."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

Fault = Callable[[str], sqlite3.Error | None]


def error(code: int, message: str) -> sqlite3.OperationalError:
    made = sqlite3.OperationalError(message)
    made.sqlite_errorcode = code
    return made


def busy() -> sqlite3.OperationalError:
    return error(sqlite3.SQLITE_BUSY, "database is locked")


def io_error() -> sqlite3.OperationalError:
    return error(sqlite3.SQLITE_IOERR, "disk I/O error")


class Faults:
    """Decides before each statement whether it fails; `after` statements succeed first."""

    def __init__(self) -> None:
        self.after = -1
        self.times = 0
        self.make: Callable[[], sqlite3.Error] = io_error
        self.also_rollback = False
        self.opened = 0
        self.statements: list[str] = []

    def arm(
        self,
        after: int,
        make: Callable[[], sqlite3.Error],
        *,
        times: int = 1,
        also_rollback: bool = False,
    ) -> None:
        self.after, self.make, self.times = after, make, times
        self.also_rollback = also_rollback

    def check(self, sql: str) -> None:
        self.statements.append(sql.split()[0])
        if sql == "ROLLBACK":
            if self.also_rollback:
                self.also_rollback = False
                raise self.make()
            return
        if self.after > 0:
            self.after -= 1
        elif self.after == 0 and self.times:
            self.times -= 1
            raise self.make()

    def connect(self, *arguments: Any, **options: Any) -> sqlite3.Connection:
        self.opened += 1
        faults = self

        class Cursor(sqlite3.Cursor):
            def execute(self, sql: str, parameters: Any = ()) -> Any:
                faults.check(sql)
                return super().execute(sql, parameters)

            def executemany(self, sql: str, parameters: Any) -> Any:
                faults.check(sql)
                return super().executemany(sql, parameters)

        class Connection(sqlite3.Connection):
            def cursor(self, factory: Any = None) -> Any:
                return super().cursor(factory or Cursor)

            def execute(self, sql: str, parameters: Any = ()) -> Any:
                if sql == "ROLLBACK":
                    faults.check(sql)
                return super().execute(sql, parameters)

        return sqlite3.connect(*arguments, **options, factory=Connection)
