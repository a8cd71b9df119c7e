"""Importing the codec is light, and its surface is what it says."""

from __future__ import annotations

import subprocess
import sys

import stepwell_runtime.codec


def test_importing_the_codec_imports_nothing_heavy() -> None:
    code = (
        "import sys, stepwell_runtime.codec\n"
        "codec = stepwell_runtime.codec.Codec()\n"
        "assert codec.decode(codec.encode({'a': (1, 2)}, 'here')) == {'a': (1, 2)}\n"
        "print([name for name in ('pydantic', 'pickle', 'sqlite3', 'aiosqlite')"
        " if name in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-Ic", code], check=True, capture_output=True, text=True
    )
    assert answer.stdout == "[]\n"


def test_the_surface() -> None:
    assert stepwell_runtime.codec.__all__ == [
        "Codec",
        "DecodingError",
        "ErrorInfo",
        "PayloadTooLarge",
        "SerializationError",
    ]
    public = {name for name in vars(stepwell_runtime.codec) if not name.startswith("_")}
    assert public - {"annotations", "errors"} == set(stepwell_runtime.codec.__all__)
