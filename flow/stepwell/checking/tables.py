"""Names that workflow code must not use: of Python, and of packages that many programs use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Banned:
    """A rule that a name breaks. `remedy`: None = that of the rule."""

    rule: str
    remedy: str | None = None


def _each(rule: str, remedy: str | None, prefix: str, names: str) -> dict[str, Banned]:
    banned = Banned(rule, remedy)
    return {f"{prefix}{name}": banned for name in names.split()}


_SLEEP: Final = "use await stepwell.sleep(...)"
_TIMEOUT: Final = (
    "use race(...) with sleep(...), or the timeout= of a step; for a part of a workflow, deadline"
)
_PARALLEL: Final = "use await stepwell.parallel(...) or race(...)"
_SIGNAL: Final = "use a Signal and wait_for_signal(...), or a variable: branches never run at once"
_THREAD: Final = "make it a plain def @step, which runs in a thread"
_ZONE: Final = "give the time zone; without one it is that of the machine"

# What is wrong with or without arguments, called or handed on.
EXACT: Final[dict[str, Banned]] = {
    **_each(
        "clock",
        None,
        "time.",
        "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time "
        "process_time_ns thread_time thread_time_ns clock_gettime clock_gettime_ns",
    ),
    **_each(
        "clock",
        None,
        "",
        "datetime.datetime.now datetime.datetime.utcnow datetime.datetime.today "
        "datetime.date.today django.utils.timezone.now django.utils.timezone.localdate "
        "pendulum.now pendulum.today "
        "arrow.now arrow.utcnow pandas.Timestamp.now pandas.Timestamp.utcnow timeit.default_timer",
    ),
    **_each("random", "use stepwell.uuid4()", "uuid.", "uuid1 uuid4 uuid6 uuid7 uuid8 getnode"),
    **_each("random", None, "os.", "urandom getrandom"),
    **_each(
        "environment",
        None,
        "os.",
        "getenv getenvb putenv unsetenv getpid getppid getcwd getcwdb getlogin cpu_count "
        "process_cpu_count uname getuid geteuid getgid getloadavg times name path.expandvars "
        "path.expanduser path.abspath path.realpath",
    ),
    **_each("environment", None, "sys.", "argv path executable platform modules orig_argv"),
    **_each("environment", None, "socket.", "gethostname getfqdn gethostbyname getaddrinfo"),
    **_each(
        "environment",
        None,
        "",
        "getpass.getuser threading.get_ident threading.get_native_id threading.current_thread "
        "pathlib.Path.cwd pathlib.Path.home pathlib.Path.expanduser pathlib.Path.absolute "
        "pathlib.Path.resolve pydantic_settings.BaseSettings",
    ),
    **_each(
        "environment",
        "compare by value: hash() and id() differ from process to process",
        "builtins.",
        "hash id",
    ),
    **_each("io", None, "builtins.", "open input breakpoint"),
    **_each("io", None, "", "io.open io.open_code io.FileIO codecs.open webbrowser.open"),
    **_each("io", None, "sys.", "stdin"),
    **_each(
        "io",
        None,
        "pathlib.Path.",
        "open read_text read_bytes write_text write_bytes mkdir rmdir unlink rename replace touch "
        "exists is_file is_dir is_symlink is_mount stat lstat iterdir glob rglob walk chmod "
        "symlink_to hardlink_to samefile owner group readlink",
    ),
    **_each(
        "io",
        None,
        "os.",
        "system popen remove unlink rename renames replace mkdir makedirs rmdir removedirs listdir "
        "scandir walk stat lstat open read write access chmod chown link symlink readlink truncate "
        "kill killpg fork forkpty execv execve execl execvp spawnv spawnl posix_spawn startfile "
        "path.exists path.isfile path.isdir path.getsize path.getmtime path.getctime path.lexists "
        "path.islink path.samefile fsync utime",
    ),
    **_each(
        "io", None, "sqlalchemy.", "create_engine orm.Session orm.sessionmaker orm.scoped_session"
    ),
    **_each("io", None, "urllib.request.", "urlopen urlretrieve Request build_opener"),
    **_each("blocking", _SLEEP, "time.", "sleep"),
    **_each("event-loop", _SLEEP, "", "asyncio.sleep anyio.sleep anyio.sleep_until trio.sleep"),
    **_each(
        "event-loop",
        _TIMEOUT,
        "",
        "asyncio.timeout asyncio.timeout_at asyncio.wait_for anyio.fail_after anyio.move_on_after "
        "anyio.CancelScope trio.fail_after trio.move_on_after trio.CancelScope "
        "async_timeout.timeout",
    ),
    **_each(
        "event-loop",
        _PARALLEL,
        "",
        "asyncio.gather asyncio.wait asyncio.as_completed asyncio.create_task "
        "asyncio.ensure_future asyncio.TaskGroup asyncio.shield anyio.create_task_group "
        "trio.open_nursery",
    ),
    **_each(
        "event-loop",
        _SIGNAL,
        "asyncio.",
        "Event Queue PriorityQueue LifoQueue Lock Condition Semaphore BoundedSemaphore Barrier "
        "Future",
    ),
    **_each(
        "event-loop",
        _THREAD,
        "",
        "asyncio.to_thread asyncio.run_coroutine_threadsafe anyio.to_thread.run_sync "
        "trio.to_thread.run_sync asgiref.sync.sync_to_async",
    ),
    **_each(
        "unjournaled",
        "await a @step or task, or start(...) a child; in a @step, current_app() works",
        "stepwell.",
        "current_app run Stepwell BlockingStepwell BlockingCalls",
    ),
    **_each(
        "unjournaled",
        "use current_run(): there is no attempt of a step here",
        "stepwell.",
        "current_step current_job",
    ),
    **_each(
        "global-state",
        "read it in a @step, where a worker's lifespan provides it",
        "contextvars.ContextVar.",
        "get",
    ),
}

# What is wrong only if it is called without arguments: then it reads the clock, or takes its seed
# or zone from the system.
BARE: Final[dict[str, Banned]] = {
    **_each("clock", None, "time.", "localtime gmtime ctime asctime"),
    **_each("random", "use stepwell.random(), or give it a seed", "", "random.Random"),
    **_each("random", None, "numpy.random.", "default_rng RandomState"),
    **_each("environment", _ZONE, "datetime.datetime.", "astimezone"),
}

# Every function and class of these, and of what they make.
TREES: Final[dict[str, Banned]] = {
    **_each("random", None, "", "random secrets numpy.random"),
    **_each("environment", None, "", "os.environ os.environb platform"),
    **_each("blocking", None, "", "threading multiprocessing concurrent.futures _thread queue"),
    **_each("event-loop", None, "", "asyncio anyio trio curio"),
    **_each(
        "io",
        None,
        "",
        "subprocess socket ssl sqlite3 shutil tempfile glob select selectors http.client "
        "http.server urllib3 requests httpx aiohttp aiofiles aiosqlite websockets smtplib "
        "aiosmtplib imaplib poplib ftplib xmlrpc.client socketserver dbm shelve boto3 botocore "
        "aiobotocore "
        "psycopg psycopg2 asyncpg pymysql aiomysql MySQLdb redis pymongo motor elasticsearch "
        "cassandra pika aio_pika kafka confluent_kafka aiokafka nats paramiko asyncssh grpc openai "
        "anthropic stripe twilio google.cloud azure docker kubernetes sqlalchemy.ext.asyncio",
    ),
}

HARMLESS: Final = frozenset(
    (
        "asyncio.iscoroutine",
        "asyncio.iscoroutinefunction",
        "glob.escape",
        "numpy.random.RandomState",
        "numpy.random.default_rng",
        "random.Random",
        "secrets.compare_digest",
        "socket.htonl",
        "socket.htons",
        "socket.inet_aton",
        "socket.inet_ntoa",
    )
)

# An `except` of these catches nothing that workflow code is told.
_CANCELLED: Final = "catch stepwell.Cancelled: that is what a cancelled run gets"
NEVER_RAISED: Final[dict[str, str]] = {
    "asyncio.CancelledError": _CANCELLED,
    "asyncio.exceptions.CancelledError": _CANCELLED,
    "concurrent.futures.CancelledError": _CANCELLED,
}

# What cannot be stored, so an exception that has it cannot be put together again.
NOT_STORABLE: Final = (
    "threading",
    "asyncio",
    "socket",
    "ssl",
    "sqlite3",
    "subprocess",
    "requests",
    "httpx",
    "aiohttp",
    "types.TracebackType",
    "builtins.open",
    "builtins.memoryview",
    "builtins.type",
    "io",
    "typing.Callable",
    "collections.abc.Callable",
    "collections.abc.Iterator",
    "collections.abc.Generator",
    "collections.abc.Coroutine",
    "collections.abc.Awaitable",
    "typing.Iterator",
    "typing.Generator",
)


def under(name: str, trees: tuple[str, ...]) -> bool:
    return any(name == tree or name.startswith(f"{tree}.") for tree in trees)


def tree_of(name: str) -> tuple[str, Banned] | None:
    """Return the shortest banned tree that `name` is in."""
    end = name.find(".")
    while end >= 0:
        found = TREES.get(name[:end])
        if found is not None:
            return name[:end], found
        end = name.find(".", end + 1)
    found = TREES.get(name)
    return None if found is None else (name, found)
