"""From a call to the row of a new run, and from a run's arguments back to a call."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any
from zlib import crc32

import msgspec

from stepwell_queue.clock import Clock, Ids, utc
from stepwell_queue.contract import Hold, Kind, NewRun, Terms
from stepwell_queue.errors import RequestRefused
from stepwell_runtime.code import fingerprint
from stepwell_runtime.codec import Codec
from stepwell_runtime.definitions import DEFAULT_OPTIONS, CallOptions, Definition
from stepwell_runtime.errors import DependencyFailed
from stepwell_runtime.policy import store_options

Arguments = tuple[list[bytes], dict[str, bytes]]
"""Each value encoded on its own: by position, and by name."""

LONGEST_ID = 200
LONGEST_KEY = 255
_DERIVED = re.compile(r"/~?[\d.]+(#\d+)?\Z")
_RETRIED = re.compile(r"#\d+\Z")
pack_arguments: Callable[[Arguments], bytes] = msgspec.msgpack.Encoder().encode
_unpack: Callable[[bytes], Arguments] = msgspec.msgpack.Decoder(Arguments).decode
_NO_KEYWORDS: dict[str, bytes] = {}


def checked_id(id: object) -> str:
    """Return a run id given by the user; raise ValueError when it cannot be one."""
    if not isinstance(id, str):
        raise TypeError(f"a run id is a str, not {id!r}")
    if not id or len(id) > LONGEST_ID or "\0" in id:
        raise ValueError(f"a run id has 1 to {LONGEST_ID} characters and no NUL, not {id!r}")
    if _DERIVED.search(id):
        raise ValueError(
            f"run id {id!r} ends like the id of a child run (/ and digits): choose another one"
        )
    return id


def child_id(parent: str, path: str, attempt: int, generation: int = 0) -> str:
    """Return the id of the child at `path`; one that is asked for after a retry is another run.

    So is one of another generation of its parent.
    """
    if generation:
        parent = f"{parent}~{generation}"
    return f"{parent}/{path}" if attempt == 1 else f"{parent}/{path}#{attempt}"


def lasting_id(child: str) -> str:
    """Return the id that a node job's key is made of: the same after a retry of its run."""
    return _RETRIED.sub("", child)


def encode_arguments(
    codec: Codec, definition: Definition, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bytes:
    """Return the arguments as they are stored: each value encoded on its own."""
    if len(args) == 1 and not kwargs:
        return pack_arguments(([codec.encode(args[0], definition.its_arguments)], _NO_KEYWORDS))
    return pack_arguments(encode_each(codec, definition, args, kwargs))


def encode_each(
    codec: Codec, definition: Definition, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Arguments:
    """Return each argument encoded. Raises SerializationError."""
    encode, where = codec.encode, definition.its_arguments
    if not kwargs:
        if len(args) == 1:
            return [encode(args[0], where)], _NO_KEYWORDS
        return [encode(value, where) for value in args], _NO_KEYWORDS
    positional = [encode(value, where) for value in args]
    return positional, {name: encode(value, where) for name, value in kwargs.items()}


def decode_each(
    codec: Codec, definition: Definition, arguments: Arguments, *, trusted: bool
) -> tuple[list[Any], dict[str, Any]]:
    """Return fresh values of encoded arguments. Raises DecodingError."""
    if trusted:
        positional, named = arguments
        read = codec.read
        try:
            if not named:
                return list(map(read, positional)), {}
            return list(map(read, positional)), {name: read(one) for name, one in named.items()}
        except Exception:  # noqa: BLE001 - it is said, or mended, by what follows
            pass
    return _decode_by_type(codec, definition, arguments, trusted=trusted)


def _decode_by_type(
    codec: Codec, definition: Definition, arguments: Arguments, *, trusted: bool
) -> tuple[list[Any], dict[str, Any]]:
    positional, named = arguments
    decode, where, types = codec.decode, definition.its_arguments, definition.positional_types
    last = len(types) - 1
    args = [
        decode(one, types[min(index, last)] if types else Any, trusted=trusted, where=where)
        for index, one in enumerate(positional)
    ]
    by_name = definition.parameter_types
    return args, {
        name: decode(one, by_name.get(name, Any), trusted=trusted, where=where)
        for name, one in named.items()
    }


def decode_arguments(
    codec: Codec, definition: Definition, data: bytes, *, trusted: bool
) -> tuple[list[Any], dict[str, Any]]:
    """Return the values of stored arguments. Raises DecodingError."""
    return decode_each(codec, definition, _unpack(data), trusted=trusted)


def encode_digested(
    codec: Codec, definition: Definition, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Arguments, int]:
    """Return each argument encoded, and a number that tells other arguments apart.

    It does that well enough for a hint in the log. Raises SerializationError.
    """
    if len(args) == 1 and not kwargs:  # the usual step
        data = codec.encode(args[0], definition.its_arguments)
        return ([data], _NO_KEYWORDS), crc32(data)
    encoded = encode_each(codec, definition, args, kwargs)
    digest = 0
    for one in encoded[0]:
        digest = crc32(one, digest)
    for name, one in encoded[1].items():
        digest = crc32(one, crc32(name.encode("utf-8", "surrogatepass"), digest))
    return encoded, digest


def derived_nonce(seed: str, path: str) -> int:
    """Return the start nonce of a child: the same whenever its parent asks for it again."""
    digest = hashlib.blake2b(
        f"{seed}/{path}".encode("utf-8", "surrogatepass"), digest_size=8
    ).digest()
    return int.from_bytes(digest, "big") >> 1


def signature_hash(definition: Definition) -> bytes:
    text = ",".join(f"{name}:{p.kind}" for name, p in definition.signature.parameters.items())
    return hashlib.blake2b(text.encode(), digest_size=4).digest()


def _named(definition: Definition, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments by parameter: how they were passed makes no difference."""
    return dict(definition.signature.bind(*args, **kwargs).arguments)


class Launcher:
    """Makes the rows of new runs."""

    def __init__(
        self, codec: Codec, clock: Clock, ids: Ids, code: str | None = None, *, marks: bool = True
    ) -> None:
        self._codec, self._clock, self._ids = codec, clock, ids
        self._code, self._marks = code, marks
        self._signatures: dict[Definition, bytes] = {}
        self._codes: dict[Definition, str] = {}
        self._marked: dict[Definition, bytes] = {}  # the options of calls that say nothing

    def new_run(
        self,
        definition: Definition,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: CallOptions,
    ) -> NewRun:
        """Return the row for a run started by a client. Raises SerializationError, ValueError."""
        if options.on_parent_cancel is not None:
            raise ValueError(
                f"on_parent_cancel= is for children, and {definition.name}(…) is started as a run "
                "of its own, which has no parent: take it away"
            )
        ids = self._ids
        if options.id is None:
            id, digest = ids.run_id(), b""
        else:
            # Only an id that the user chose can meet an existing run, so only then arguments are
            # ever compared.
            id, digest = checked_id(options.id), self._digest(definition, args, kwargs)
        encoded = encode_arguments(self._codec, definition, args, kwargs)
        key = options.key
        if key is None and definition.key is not None:
            key = key_of(definition, args, kwargs)
        return self._row(definition, encoded, options, id, ids.nonce(), digest, key)

    def child_row(
        self, definition: Definition, args: Arguments, options: CallOptions, id: str, nonce: int
    ) -> NewRun:
        """Return the row for a child, whose arguments are encoded. Raises RequestRefused."""
        if options.unique or options.after:
            name = "unique=" if options.unique else "after="
            raise RequestRefused(
                f"{name} is for runs of their own, and {definition.name}(…) is a child, whose end "
                "its workflow waits for: take it away, or enqueue it in a step with current_app()"
            )
        key = options.key
        if key is None and definition.key is not None:
            values, named = decode_each(self._codec, definition, args, trusted=True)
            key = key_of(definition, tuple(values), named)
        return self._row(definition, pack_arguments(args), options, id, nonce, b"", key)

    def _digest(
        self, definition: Definition, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> bytes:
        signature = self._signatures.get(definition)
        if signature is None:
            signature = self._signatures[definition] = signature_hash(definition)
        return signature + self._codec.digest(_named(definition, args, kwargs))

    def _row(
        self,
        definition: Definition,
        args: bytes,
        options: CallOptions,
        id: str,
        nonce: int,
        digest: bytes,
        key: str | None,
    ) -> NewRun:
        now = self._clock.now()
        kind, name, version, queue, deadline = definition.heading
        if options is DEFAULT_OPTIONS and not definition.on_terms:
            until = None if deadline is None else now + deadline
            marked = self._marked.get(definition)
            if marked is None:
                marked = store_options(options, self._code_of(definition))
                self._marked[definition] = marked
            return NewRun(
                id, kind, name, version, queue, args, digest, nonce, now, 0, None, until, marked
            )
        if options.deadline is not None:
            deadline = options.deadline
        due = options.at if options.delay is None else now + options.delay
        terms = self._terms(definition, options, key, now)
        if due is not None and terms is not None and terms.expires is not None:
            _refuse_unstartable(definition, options, due, terms.expires)
        return NewRun(
            id,
            kind,
            name,
            version,
            options.queue or queue,
            args,
            digest,
            nonce,
            now,
            definition.priority if options.priority is None else options.priority,
            due,
            None if deadline is None else now + deadline,
            store_options(options, self._code_of(definition)),
            terms,
        )

    def _code_of(self, definition: Definition) -> str | None:
        """Return which code this process has of a workflow, for people; of others it is none."""
        if definition.kind is not Kind.WORKFLOW or not self._marks:
            return None
        if self._code is not None:
            return self._code
        found = self._codes.get(definition)
        if found is None:
            found = self._codes[definition] = fingerprint(definition.fn)
        return found

    def _terms(
        self, definition: Definition, options: CallOptions, key: str | None, now: float
    ) -> Terms | None:
        limit = definition.expires if options.expires is None else options.expires
        expires: float | None = None
        if isinstance(limit, datetime):
            expires = limit.timestamp()
        elif limit is not None:
            expires = now + limit
        if not (key or options.unique or options.after) and expires is None:
            return None
        hold = Hold.UNENDED if options.unique_while != "pending" else Hold.PENDING
        until = None
        if options.unique_for is not None:
            hold, until = Hold.UNTIL, now + options.unique_for
        after, anyhow = options.after or (), options.after_failed == "start"
        return Terms(
            key or "",
            expires,
            options.unique or "",
            int(hold),
            until,
            bool(options.replace),
            after,
            anyhow,
            () if anyhow else [self._failure(definition, id) for id in after],
        )

    def _failure(self, definition: Definition, id: str) -> bytes:
        """What a run fails with when that which it waits for does not end well."""
        where = f"a run of {definition.word} {definition.name!r}"
        return self._codec.encode_error(DependencyFailed(id), where)


def _refuse_unstartable(
    definition: Definition, options: CallOptions, due: float, expires: float
) -> None:
    """Raise ValueError for a run that expires before it may start."""
    if due < expires:
        return
    start = f"at={utc(due).isoformat()}" if options.delay is None else f"delay={options.delay:g}"
    limit = definition.expires if options.expires is None else options.expires
    end = f"expires={limit:g}" if isinstance(limit, float) else f"expires={limit}"
    whose = "its decorator's " if options.expires is None else ""
    raise ValueError(
        f"{definition.word} {definition.name!r} with {start} and {whose}{end} could never start, "
        "as it would expire before: give a later expires=, whose seconds count from now"
    )


def key_of(definition: Definition, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return the key that a definition makes of arguments. Raises TypeError, ValueError."""
    made = definition.key
    assert made is not None
    key: object = made(*args, **kwargs)
    where = f"key= of {definition.word} {definition.name!r} ({definition.place})"
    if not isinstance(key, str):
        raise TypeError(f"{where} must return a str, not {key!r}")
    if not key or len(key) > LONGEST_KEY or not key.isprintable():
        raise ValueError(
            f"{where} must return 1 to {LONGEST_KEY} printable characters, not {key[:300]!r}"
        )
    return key
