"""Exceptions as data: caught again as themselves where they can be, as StepFailed where not."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import pydantic
import pytest

import stepwell_runtime.errors
from stepwell_runtime.codec import Codec, DecodingError, PayloadTooLarge, SerializationError
from stepwell_runtime.errors import ChildDied, GiveUp, RetryLater, StepFailed
from tests.codec.conftest import Deploy
from tests.codec.kinds import Colour, Item, Model


class Coded(Exception):
    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class KeywordOnly(Exception):
    def __init__(self, *, order: Item, colour: Colour) -> None:
        super().__init__(f"order {order.name}")
        self.order, self.colour = order, colour


class WithSlots(Exception):
    __slots__ = ("amount", "unset")

    def __init__(self, amount: int) -> None:
        self.amount = amount


class OwnNew(Exception):
    """Cannot be made without an argument that `args` does not have."""

    def __new__(cls, required: int) -> Self:
        made = super().__new__(cls)
        made.required = required
        return made

    def __init__(self, required: int) -> None:
        self.required = required


class Refusing(Exception):
    """Its `__init__` must not run again."""

    built = 0

    def __init__(self) -> None:
        type(self).built += 1
        super().__init__("once")


class DiskProblem(OSError):
    def __init__(self, path: str) -> None:
        super().__init__(5, "input/output error", path)
        self.hint = "replace it"


@dataclass
class DataError(Exception):
    code: int
    model: Model


class Holding(Exception):
    def __init__(self, message: str, held: object) -> None:
        super().__init__(message)
        self.held = held


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


class AngryProperty(Exception):
    __slots__ = ()

    @property
    def __dict__(self) -> Any:  # type: ignore[override]  # what is tested
        raise RuntimeError("no")


class Group(ExceptionGroup[Exception]):
    pass


def thrown(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001 - any kind is tested
        return caught


def again(codec: Codec, error: BaseException) -> BaseException:
    return codec.decode_error(codec.encode_error(thrown(error), "step 'charge'"))


def unicode_error() -> UnicodeDecodeError:
    return UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")


REBUILT: list[BaseException] = [
    ValueError("x"),
    ValueError(),
    KeyError(("a", 1)),
    ZeroDivisionError("division by zero"),
    OSError(2, "No such file", "/x"),
    FileNotFoundError(2, "No such file", "/x", None, "/y"),
    OSError("only text"),
    TimeoutError("late"),
    TimeoutError(),
    ConnectionResetError(104, "reset"),
    unicode_error(),
    SyntaxError("bad", ("f.py", 3, 7, "x = (")),
    ImportError("no", name="x", path="/p"),
    ModuleNotFoundError("no module", name="y"),
    NameError("name 'x' is not defined", name="x"),
    SystemExit(3),
    KeyboardInterrupt(),
    asyncio.CancelledError("why"),
    json.JSONDecodeError("Expecting value", "doc", 0),
    subprocess.CalledProcessError(2, ["ls"], b"out", b"err"),
    Coded("m", 7),
    Coded("m", code=10**30),
    KeywordOnly(order=Item("a"), colour=Colour.BLUE),
    WithSlots(5),
    OwnNew(3),
    DiskProblem("/x"),
    DataError(1, Model(a=2)),
    Holding("m", {"path": Path("x"), 1: (2,)}),
    SerializationError("step 's'", "[0]", "object", "no"),
    PayloadTooLarge("step 's'", "bytes", 10, 5),
    DecodingError("w", "app:M", "gone"),
    StepFailed("app.Gone", "m"),
    RetryLater(3.0),
    RetryLater(timedelta(minutes=1)),
    GiveUp("why"),
    ChildDied("task 't'", -9),
]


@pytest.mark.parametrize("error", REBUILT, ids=lambda error: type(error).__name__)
def test_an_exception_comes_back_as_itself(error: BaseException, codec: Codec) -> None:
    back = again(codec, error)
    assert type(back) is type(error)
    assert back.args == error.args
    assert str(back) == str(error)
    assert vars(back) == vars(error)
    for name in ("errno", "strerror", "filename", "filename2", "amount", "name", "code", "lineno"):
        assert getattr(back, name, None) == getattr(error, name, None)
    assert back.__traceback__ is None
    with pytest.raises(type(error)):
        raise back


def test_it_is_a_fresh_instance_each_time(codec: Codec) -> None:
    data = codec.encode_error(Coded("m", 7), "here")
    first, second = codec.decode_error(data), codec.decode_error(data)
    assert first is not second
    first.add_note("only here")
    assert not hasattr(second, "__notes__")
    assert not hasattr(codec.decode_error(data), "__notes__")


def test_init_does_not_run_again(codec: Codec) -> None:
    data = codec.encode_error(Refusing(), "here")
    built = Refusing.built
    assert str(codec.decode_error(data)) == "once"
    assert Refusing.built == built


def test_notes_are_kept_apart_from_content(codec: Codec) -> None:
    error = Coded("m", 7)
    error.add_note("first")
    error.add_note("second \ud800")
    back = again(codec, error)
    assert back.__notes__ == ["first", "second \\ud800"]


class TestChains:
    def test_cause_and_context_are_kept(self, codec: Codec) -> None:
        def fail() -> None:
            try:
                try:
                    raise KeyError("k")
                except KeyError as inner:
                    raise Coded("middle", 1) from inner
            except Coded:
                raise ValueError("outer")  # noqa: B904 - the context is what is tested

        with pytest.raises(ValueError, match="outer") as caught:
            fail()
        back = codec.decode_error(codec.encode_error(caught.value, "here"))
        assert back.__cause__ is None
        assert isinstance(back.__context__, Coded)
        assert isinstance(back.__context__.__cause__, KeyError)
        assert back.__context__.__suppress_context__

    def test_raise_from_none_hides_the_context(self, codec: Codec) -> None:
        error = ValueError("v")
        error.__context__ = KeyError("k")
        error.__suppress_context__ = True
        data = codec.encode_error(error, "here")
        assert codec.decode_error(data).__suppress_context__
        assert codec.error_info(data).cause is None

    def test_a_chain_that_loops_ends(self, codec: Codec) -> None:
        first, second = ValueError("1"), KeyError("2")
        first.__cause__, second.__cause__ = second, first
        back = codec.decode_error(codec.encode_error(first, "here"))
        assert isinstance(back.__cause__, KeyError)
        assert back.__cause__.__cause__ is None

    def test_a_long_chain_is_cut(self, codec: Codec) -> None:
        error = ValueError("0")
        for i in range(5000):
            outer = ValueError(str(i))
            outer.__context__ = error
            error = outer
        data = codec.encode_error(error, "here")
        assert len(data) < 5000
        assert str(codec.decode_error(data)) == "4999"

    def test_a_cause_that_cannot_be_kept_becomes_step_failed(self, codec: Codec) -> None:
        error = ValueError("v")
        error.__cause__ = Holding("h", threading.Lock())
        back = again(codec, error)
        assert type(back) is ValueError
        assert isinstance(back.__cause__, StepFailed)


class TestGroups:
    @pytest.mark.parametrize("kind", [ExceptionGroup, BaseExceptionGroup, Group])
    def test_members_are_kept(self, kind: Any, codec: Codec) -> None:
        group = kind("several", [Coded("a", 1), ExceptionGroup("inner", [KeyError("b")])])
        group.add_note("note")
        back: Any = again(codec, group)
        assert type(back) is type(group)
        assert back.message == "several"
        assert back.__notes__ == ["note"]
        matched, rest = back.split(Coded)
        assert matched.exceptions[0].code == 1
        assert rest.exceptions[0].exceptions[0].args == ("b",)

    def test_a_member_that_cannot_be_kept_becomes_step_failed(self, codec: Codec) -> None:
        group = ExceptionGroup("g", [Holding("h", threading.Lock()), KeyError("k")])
        back: Any = again(codec, group)
        assert [type(member) for member in back.exceptions] == [StepFailed, KeyError]

    def test_a_huge_group_is_cut_and_says_so(self, codec: Codec) -> None:
        back: Any = again(codec, ExceptionGroup("g", [ValueError(i) for i in range(1000)]))
        assert 50 < len(back.exceptions) <= 100
        assert "members were left out" in back.__notes__[-1]

    def test_groups_that_multiply_end(self, codec: Codec) -> None:
        error: Any = ValueError("x")
        for _ in range(50):
            members: list[Any] = [error] * 50
            error = ExceptionGroup("g", members)
        assert len(codec.encode_error(error, "here")) < 100_000


class TestStepFailed:
    @pytest.mark.parametrize("held", [threading.Lock(), object(), lambda: None, memoryview(b"x")])
    def test_content_that_cannot_be_stored(self, held: object, codec: Codec) -> None:
        back = again(codec, Holding("the message", held))
        assert isinstance(back, StepFailed)
        assert back.type_name == f"{__name__}.Holding"
        assert back.message == "the message"
        assert "step 'charge'" in back.__notes__[0]
        assert "['held']" in back.__notes__[0]

    def test_arguments_that_cannot_be_stored(self, codec: Codec) -> None:
        back = again(codec, ValueError("x", object()))
        assert isinstance(back, StepFailed)
        assert back.type_name == "ValueError"
        assert "('x', <object" in back.message

    @pytest.mark.parametrize("kind", [StopIteration, StopAsyncIteration, GeneratorExit])
    def test_what_would_end_a_coroutine(self, kind: type[BaseException], codec: Codec) -> None:
        subclass = type("Own", (kind,), {"__module__": __name__})
        for error in (kind(1), subclass(1)):
            back = again(codec, error)
            assert isinstance(back, StepFailed)
            assert back.message == "1"
            assert "would end the code" in back.__notes__[0]

    def test_a_local_class(self, codec: Codec) -> None:
        class Local(Exception):
            pass

        back = again(codec, Local("m"))
        assert isinstance(back, StepFailed)
        assert back.message == "m"

    def test_a_class_that_is_gone_or_has_become_something_else(
        self, codec: Codec, deploy: Deploy
    ) -> None:
        module = deploy("app", "class E(Exception): pass\n")
        data = codec.encode_error(module.E("m"), "here")
        assert type(codec.decode_error(data)) is module.E
        for source in ("x = 1\n", "class E: pass\n", "E = 3\n", "class E(StopIteration): pass\n"):
            deploy("app", source)
            back = codec.decode_error(data)
            assert isinstance(back, StepFailed)
            assert (back.type_name, back.message) == ("app.E", "m")
        deploy("app", None)
        assert isinstance(codec.decode_error(data), StepFailed)
        assert codec.error_info(data).message == "m"

    def test_content_whose_class_is_gone(self, codec: Codec, deploy: Deploy) -> None:
        module = deploy("app", "@dataclass\nclass M:\n    a: int\n")
        data = codec.encode_error(Holding("m", module.M(1)), "here")
        deploy("app", None)
        assert isinstance(codec.decode_error(data), StepFailed)

    def test_an_exception_made_in_c_that_cannot_be_rebuilt(self, codec: Codec) -> None:
        with pytest.raises(pydantic.ValidationError) as caught:
            Model.model_validate({})
        back = again(codec, caught.value)
        assert isinstance(back, StepFailed)
        assert "Field required" in back.message

    def test_content_that_is_too_large(self) -> None:
        small = Codec(max_size=2000)
        back = again(small, Holding("m", b"x" * 5000))
        assert isinstance(back, StepFailed)
        assert back.message == "m"

    def test_a_message_that_is_too_large_is_cut(self, codec: Codec) -> None:
        data = codec.encode_error(ValueError("x" * (50 * 1024 * 1024)), "here")
        assert len(data) < 50_000
        back = codec.decode_error(data)
        assert isinstance(back, StepFailed)
        assert back.message.endswith("more characters)")


class TestNeverFails:
    @pytest.mark.parametrize("error", [Unprintable("x"), AngryProperty("x")])
    def test_classes_that_raise_when_looked_at(self, error: Exception, codec: Codec) -> None:
        data = codec.encode_error(error, "here")
        codec.decode_error(data)
        assert codec.error_info(data).type == type(error).__name__

    def test_notes_that_are_not_text(self, codec: Codec) -> None:
        error = ValueError("x")
        error.__notes__ = [1, "good"]  # type: ignore[list-item]  # what users do
        assert again(codec, error).__notes__ == ["good"]
        error.__notes__ = 5  # type: ignore[assignment]  # as above
        assert not hasattr(again(codec, error), "__notes__")

    def test_an_exception_that_holds_itself(self, codec: Codec) -> None:
        error = Holding("m", None)
        error.held = [error]
        assert isinstance(again(codec, error), StepFailed)

    def test_a_deep_recursion_error(self, codec: Codec) -> None:
        def dive() -> None:
            dive()

        with pytest.raises(RecursionError) as caught:
            dive()
        data = codec.encode_error(caught.value, "here")
        assert isinstance(codec.decode_error(data), RecursionError)
        assert 0 < len(codec.error_info(data).frames) <= 50

    def test_a_tiny_limit(self) -> None:
        error = thrown(Holding("m" * 3000, b"x" * 3000))
        error.__cause__ = ValueError("y" * 3000)
        assert isinstance(Codec(max_size=100).encode_error(error, "here"), bytes)


class TestInfo:
    def test_type_message_frames_notes_and_cause_for_display(self, codec: Codec) -> None:
        error = Coded("m", 7)
        error.__cause__ = KeyError("k")
        error.add_note("n")
        info = codec.error_info(codec.encode_error(thrown(error), "here"))
        assert (info.type, info.module, info.message) == ("Coded", __name__, "m")
        file, line, function = info.frames[-1]
        assert file == __file__
        assert line > 0
        assert function == "thrown"
        assert info.notes == ("n",)
        assert info.cause is not None
        assert info.cause.type == "KeyError"

    def test_the_runtime_that_called_the_code_is_left_out(self, codec: Codec) -> None:
        def fail() -> None:
            in_runtime(called)

        def called() -> None:
            raise Coded("m", 7)

        names = functions_of(codec, in_runtime, in_runtime, fail)
        assert names == ["fail", "run", "called"]

    def test_what_the_runtime_itself_raised_is_shown(self, codec: Codec) -> None:
        assert functions_of(codec, in_runtime, in_runtime, int, "x") == ["run", "run"]

    def test_members_of_a_group_are_shown(self, codec: Codec) -> None:
        info = codec.error_info(codec.encode_error(ExceptionGroup("g", [Coded("a", 1)]), "here"))
        assert [member.type for member in info.members] == ["Coded"]

    def test_what_is_no_exception_is_refused(self, codec: Codec) -> None:
        for data in (codec.encode(1, "here"), codec.encode((1,), "here"), b"", b"\xc1"):
            with pytest.raises(DecodingError, match="exception"):
                codec.error_info(data)
            with pytest.raises(DecodingError, match="exception"):
                codec.decode_error(data)

    def test_a_stored_exception_is_not_taken_for_a_value(self, codec: Codec) -> None:
        with pytest.raises(DecodingError):
            codec.decode(codec.encode_error(ValueError("x"), "here"))


def made_in_runtime() -> Callable[..., Any]:
    made: dict[str, Callable[..., Any]] = {}
    source = "def run(function, *args): return function(*args)"
    exec(compile(source, stepwell_runtime.errors.__file__, "exec"), made)
    return made["run"]


in_runtime = made_in_runtime()
"""Calls a function; its frame is of a file of the runtime."""


def functions_of(codec: Codec, function: Callable[..., Any], *args: object) -> list[str]:
    """The frames that are stored of what the function raises."""
    data = b""
    try:
        function(*args)
    except (Coded, ValueError) as error:
        traceback = error.__traceback__
        error.__traceback__ = traceback and traceback.tb_next  # without this one
        data = codec.encode_error(error, "here")
    return [function.rpartition(".")[2] for _, _, function in codec.error_info(data).frames]


class Held:
    pass


def test_locals_of_failed_code_are_released(codec: Codec) -> None:
    def failing() -> weakref.ref[Held]:
        held = Held()
        kept.append(weakref.ref(held))
        raise Coded("m", 7)

    kept: list[weakref.ref[Held]] = []
    results: list[tuple[bytes, BaseException]] = []
    for _ in range(20):
        try:
            failing()
        except Coded as caught:
            data = codec.encode_error(caught, "here")
            results.append((data, codec.decode_error(data)))
    gc.collect()
    assert [ref() for ref in kept] == [None] * 20


def test_an_error_of_a_reloaded_module_is_of_its_new_class(codec: Codec, deploy: Deploy) -> None:
    source = "class Gone(Exception):\n    pass\n"
    former: list[weakref.ref[type]] = []
    error: BaseException = ValueError()
    for _ in range(5):
        stored = codec.encode_error(error, "here")
        cls = deploy("app", source).Gone
        if former:
            assert type(codec.decode_error(stored)) is cls
            assert isinstance(codec.decode_error(codec.encode_error(error, "here")), StepFailed)
        error = cls("no")
        codec.decode_error(codec.encode_error(error, "here"))
        former.append(weakref.ref(cls))
        del cls
    gc.collect()
    assert [ref() is None for ref in former] == [True] * 4 + [False]
