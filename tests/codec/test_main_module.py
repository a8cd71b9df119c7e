"""Classes of a script: stored by one run of it, read by another, or by who imports it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
from dataclasses import dataclass
from pathlib import Path
from stepwell_runtime.codec import Codec

class Base:
    pass

@dataclass
class Job(Base):
    n: int

class Problem(Exception):
    pass

codec = Codec()

def write(file):
    Path(file).write_bytes(codec.encode([Job(1)], "here"))
    Path(file + ".error").write_bytes(codec.encode_error(Problem("p"), "here"))

def read(file):
    [job] = codec.decode(Path(file).read_bytes())
    assert codec.decode(Path(file).read_bytes(), list[Base], trusted=False) == [job]
    error = codec.decode_error(Path(file + ".error").read_bytes())
    assert type(job) is Job and job.n == 1, type(job).__module__
    assert type(error) is Problem, type(error)
    print(codec.digest(job).hex(), "tool" in sys.modules)

if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](sys.argv[2])
"""

IMPORTED = "import sys, tool; getattr(tool, sys.argv[1])(sys.argv[2])"

AS_SCRIPT = ["tool.py"]
AS_MODULE = ["-m", "tool"]
AS_IMPORT = ["-c", IMPORTED]


def python(folder: Path, *arguments: str) -> str:
    result = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize(
    "reader", [AS_SCRIPT, AS_MODULE, AS_IMPORT], ids=["script", "-m", "import"]
)
@pytest.mark.parametrize(
    "writer", [AS_SCRIPT, AS_MODULE, AS_IMPORT], ids=["script", "-m", "import"]
)
def test_a_script_reads_what_it_wrote_however_either_was_started(
    writer: list[str], reader: list[str], tmp_path: Path
) -> None:
    (tmp_path / "tool.py").write_text(SCRIPT)
    python(tmp_path, *writer, "write", "data")
    digest, imported = python(tmp_path, *reader, "read", "data").split()
    assert imported == str(reader is AS_IMPORT), "a script must not import itself a second time"
    assert digest == "c94b9a443baa3d06d8c78949"  # stored: it must never change


def test_a_child_process_reads_what_its_parent_wrote(tmp_path: Path) -> None:
    source = SCRIPT.replace(
        "if __name__",
        """
def child(data, queue):
    job = codec.decode(data)
    queue.put((type(job) is Job, codec.encode(job, "child")))

def parent():
    import multiprocessing
    spawn = multiprocessing.get_context("spawn")
    queue = spawn.Queue()
    process = spawn.Process(target=child, args=(codec.encode(Job(1), "parent"), queue))
    process.start()
    right, back = queue.get(timeout=30)
    process.join()
    assert right and codec.decode(back) == Job(1)
    print("ok")

if __name__""",
        1,
    ).replace('{"write": write, "read": read}[sys.argv[1]](sys.argv[2])', "parent()")
    (tmp_path / "tool.py").write_text(source)
    assert python(tmp_path, "tool.py") == "ok\n"


def test_an_interactive_class_works_inside_its_session_and_is_explained_outside(
    tmp_path: Path,
) -> None:
    define = (
        "from dataclasses import dataclass\n"
        "from pathlib import Path\n"
        "from stepwell_runtime.codec import Codec, DecodingError\n"
        "codec = Codec()\n"
    )
    inside = define + (
        "@dataclass\nclass Cell:\n    a: int\n"
        "data = codec.encode(Cell(1), 'here')\n"
        "assert codec.decode(data) == Cell(1)\n"
        "Path('data').write_bytes(data)\n"
    )
    outside = define + (
        "try:\n    codec.decode(Path('data').read_bytes())\n"
        "except DecodingError as error:\n    print(error)\n"
    )
    python(tmp_path, "-c", inside)
    (tmp_path / "other.py").write_text(outside)
    assert "Cell" in python(tmp_path, "other.py")
