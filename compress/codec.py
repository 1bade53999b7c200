"""What a codec is: an immutable value whose fields are its parameters, whose docstring is its page, and whose native row is its kernels.

A codec is declared once::

    class BlockInt(Codec, name="block_int"):
        '''Integers of 2 to 8 bits on a scale per block.'''
        bits: int = param(8, Int(2, 8), "bits a value")

Declaring it registers it: the spec parser, the collectives, the benchmark and the tests find it in `codecs()`.
"""
from __future__ import annotations

import dataclasses
import functools
import math
import struct
from typing import ClassVar

import numpy as np

from .. import _native
from .array import dtype_code, view

_ROWS = _native.kernels()
_CODECS: dict[str, type[Codec]] = {}
_ALIASES: dict[str, tuple[str, dict]] = {}


class WireError(ValueError):
    """Bytes that are not what they should be: truncated, foreign, damaged, or of other parameters."""


# --- parameters: each kind checks, parses and packs its values ---


class Int:
    """A whole number from `low` to `high`."""

    def __init__(self, low, high, power_of_two=False):
        self.low, self.high, self.power_of_two = low, high, power_of_two
        self.code = "i" if -(2**31) <= low and high < 2**31 else "q"

    def __str__(self):
        return f"a {'power of two' if self.power_of_two else 'whole number'} from {self.low} to {self.high}"

    def check(self, value):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise TypeError
        if not self.low <= value <= self.high or (self.power_of_two and value & (value - 1)):
            raise ValueError
        return int(value)

    parse = staticmethod(int)

    def pack(self, value):
        return value


class Real:
    """A finite number; `low` itself is allowed unless `above`."""

    code = "d"

    def __init__(self, low, high=math.inf, above=False):
        self.low, self.high, self.above = low, high, above

    def __str__(self):
        return f"a finite number {'above' if self.above else 'from'} {self.low}" + (f" to {self.high}" if self.high < math.inf else "")

    def check(self, value):
        if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
            raise TypeError
        value = float(value)
        if not math.isfinite(value) or not self.low <= value <= self.high or (self.above and value == self.low):
            raise ValueError
        return value

    parse = staticmethod(float)

    def pack(self, value):
        return value


class Choice:
    """One of a few words; packed as its place among them."""

    code = "i"

    def __init__(self, *words):
        self.words = words

    def __str__(self):
        return "one of " + ", ".join(map(repr, self.words))

    def check(self, value):
        if not isinstance(value, str):
            raise TypeError
        if value not in self.words:
            raise ValueError
        return value

    parse = staticmethod(str)

    def pack(self, value):
        return self.words.index(value)


class Flag:
    """True or false."""

    code = "i"

    def __str__(self):
        return "true or false"

    def check(self, value):
        if not isinstance(value, (bool, np.bool_)):
            raise TypeError
        return bool(value)

    @staticmethod
    def parse(text):
        if text.lower() not in ("true", "false"):
            raise ValueError
        return text.lower() == "true"

    def pack(self, value):
        return int(value)


class Stage:
    """The codec that follows a transform or a selection: what stands behind `|` in a spec."""

    room = 64  # bytes of parameters that a stage may have, in C++ too
    code = f"i{room}s"

    def __str__(self):
        return "a codec"

    def check(self, value):
        if not isinstance(value, (str, Codec)):
            raise TypeError
        value = codec(value)
        if not isinstance(value.kernels, _native.Kernels):
            raise ValueError(f"{value.name} has no kernels that another codec could call: it comes first")
        return value

    parse = staticmethod(str)

    def pack(self, value):
        return value.kernels.number, value.params


def param(default, kind, doc):
    return dataclasses.field(default=default, metadata={"kind": kind, "doc": doc})


class Codec:
    """Base of all codecs. Frozen and hashable; `eval(repr(codec), vars(thinwire)) == codec`.

    Class attributes
        name      the word in specs and the noun of every file that belongs to it
        lossless  decoding gives back every bit
        identity  the wire is the array itself
        selects   it keeps some entries and sends no others
        keeps_all whatever is not zero is kept
        algebra   what a reduction may do with wires of several ranks: "decode" them, "sum" them as they are, or take their "union"
        kernels   the native row of this name; a codec in Python brings an object with the same methods, its number from 128 on
    """

    name: ClassVar[str]
    lossless: ClassVar[bool] = False
    identity: ClassVar[bool] = False
    selects: ClassVar[bool] = False
    keeps_all: ClassVar[bool] = False
    algebra: ClassVar[str] = "decode"
    kernels: ClassVar[_native.Kernels]

    def __init_subclass__(cls, name=None, **attributes):
        if name is None:  # what several codecs share
            return
        cls.name = name
        for key, value in attributes.items():
            setattr(cls, key, value)
        if "kernels" not in vars(cls):
            cls.kernels = _ROWS[name]
        dataclasses.dataclass(frozen=True)(cls)
        cls._layout = struct.Struct("=" + "".join(f.metadata["kind"].code for f in dataclasses.fields(cls)))
        if cls._layout.size != cls.kernels.params_size:
            raise ImportError(f"{name}: Python packs {cls._layout.size} bytes of parameters, its kernels take {cls.kernels.params_size}")
        _CODECS[name] = cls
        fields = [f"    {f.name} = {f.default!r}: {f.metadata['doc']}; {f.metadata['kind']}\n" for f in dataclasses.fields(cls)]
        cls.__doc__ = f"{cls.__doc__.rstrip()}\n\n    Parameters\n\n{''.join(fields)}    " if fields else cls.__doc__

    def __post_init__(self):
        packed = []
        for field in dataclasses.fields(self):
            kind, value = field.metadata["kind"], getattr(self, field.name)
            try:
                value = kind.check(value)
            except (TypeError, ValueError) as error:
                if str(error):
                    raise
                raise type(error)(f"{self.name}: {field.name} must be {kind}, not {value!r}") from None
            object.__setattr__(self, field.name, value)
            code = kind.pack(value)
            packed.extend(code if isinstance(code, tuple) else (code,))
        object.__setattr__(self, "params", self._layout.pack(*packed))

    def __str__(self):
        """The shortest spec that gives this codec: "int4:block=64"."""
        return self._short

    @functools.cached_property
    def _short(self):
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        given = {f.name: f.default for f in dataclasses.fields(self)}
        name = self.name
        for short, (target, params) in _ALIASES.items():
            if target == self.name and all(values[k] == v for k, v in params.items()):
                name, given = short, given | params
                break
        own = [f"{k}={_text(v)}" for k, v in values.items() if not isinstance(v, Codec) and v != given[k]]
        stage = "".join(f"|{v}" for v in values.values() if isinstance(v, Codec))
        return name + (":" + ",".join(own) if own else "") + stage

    @functools.cached_property
    def spec(self) -> str:
        """The spec with every parameter spelled out: what frames carry and digests cover."""
        values = [(f.name, getattr(self, f.name)) for f in dataclasses.fields(self)]
        own = [f"{k}={_text(v)}" for k, v in values if not isinstance(v, Codec)]
        stage = "".join(f"|{v.spec}" for _, v in values if isinstance(v, Codec))
        return self.name + (":" + ",".join(own) if own else "") + stage

    @functools.cached_property
    def digest(self) -> int:
        """CRC-32C of the full spec."""
        return _native.crc32c(self.spec.encode())

    @property
    def error(self) -> float:
        """Most that a finite value can be off, as a part of its array's largest magnitude; infinite where that is not bounded."""
        return 0.0 if self.lossless else math.inf

    @functools.cached_property
    def granule(self) -> int:
        """Values per independently coded piece, of a size fixed by its count; 0 if an array is coded as a whole."""
        return self.kernels.granule(self.params)

    @property
    def cut_at(self) -> int:
        """An array may be cut at multiples of this many values into parts that decode to the same values; 0: it is coded as a whole."""
        return self.granule

    def takes(self, dtype) -> bool:
        """Whether this codec takes arrays of this dtype."""
        return self.kernels.takes(dtype_code(np.dtype(dtype)))

    def check(self, dtype, code):
        """TypeError unless this codec takes arrays of this dtype."""
        if not self.kernels.takes(code):
            raise TypeError(f"{self.name} does not take {dtype} arrays")

    def bound(self, n, dtype="float32") -> int:
        """Most bytes that n values of this dtype can take; exactly what they take if the codec has a granule."""
        dtype = np.dtype(dtype)
        code = dtype_code(dtype)
        self.check(dtype, code)
        return self.kernels.bound(self.params, n, code)

    def encode(self, x, out=None, *, seed=0) -> np.ndarray:
        """The wire of an array, as a uint8 array (a slice of `out` if that is given, a uint8 array of at least `bound` bytes).

        x: array of any shape and kind; seed: for codecs that draw random bits. Raises TypeError for a dtype that the codec
        does not take, ValueError for an `out` too small.
        """
        v = view(x)
        self.check(v.dtype, v.code)
        if out is None:
            out = np.empty(self.kernels.bound(self.params, v.n, v.code), np.uint8)
        elif not isinstance(out, np.ndarray) or out.dtype != np.uint8 or not out.flags.c_contiguous or not out.flags.writeable:
            raise TypeError("out must be a writable contiguous uint8 array")
        return out[: self.kernels.encode(self.params, v.flat, 0, v.n, v.code, out, 0, seed & 0xFFFFFFFFFFFFFFFF)]

    def decode(self, wire, out, *, add=False, dtype=None):
        """The values of a wire, into `out` (returned): as many as `out` has.

        add: add them to `out`, unrounded; `out` is then float32, or float64 for a float64 wire (integers: their own type).
        dtype: what the wire holds, if not `out`'s own dtype. Raises WireError for bytes that are no wire of so many values.
        """
        v = view(out)
        target = v.target(out)
        code = v.code if dtype is None else dtype_code(np.dtype(dtype))
        if not self.kernels.takes(code):
            raise TypeError(f"{self.name} does not take {np.dtype(dtype) if dtype is not None else v.dtype} arrays")
        if code != v.code and (not add or v.dtype != accumulator(code)):
            raise TypeError(f"a wire of {np.dtype(dtype)} values is decoded into that dtype, or added to {accumulator(code)}, not {v.dtype}")
        if add and v.dtype != accumulator(code):
            raise TypeError(f"{v.dtype} values are added in {accumulator(code)}; out is {v.dtype} (pass dtype= for the wire's own)")
        wire = np.frombuffer(wire, np.uint8)
        if not self.kernels.decode(self.params, wire, 0, wire.size, target.flat, 0, v.n, code, _native.ADD if add else _native.SET):
            raise WireError(f"{self}: {wire.size} bytes are no wire of {v.n} {np.dtype(dtype) if dtype is not None else v.dtype} values")
        return target.finish()


def _text(value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def accumulator(code: int) -> np.dtype:
    """The type in which values of this dtype are summed: float32 for floats, float64 for float64, others as they are."""
    from .array import dtype_of

    return np.dtype(np.float32) if code <= 6 and code != 2 else dtype_of(code)


def alias(name, target, **params):
    """`name` in a spec means this codec with these parameters, which the spec may override."""
    _ALIASES[name] = (target, params)


def codecs() -> dict[str, type[Codec]]:
    """Every codec, by name; each can be made without arguments."""
    return dict(_CODECS)


def aliases() -> dict[str, Codec]:
    """Short names for codecs with parameters: "int4" is BlockInt(bits=4)."""
    return {name: codec(name) for name in _ALIASES}


@functools.lru_cache(maxsize=1024)
def _parse(spec: str) -> Codec:
    if spec.count("|") > 8:
        raise ValueError(f"{spec[:40]!r}...: more stages than any codec has")
    head, bar, rest = spec.partition("|")
    name, colon, text = head.strip().partition(":")
    target, params = _ALIASES.get(name, (name, {}))
    cls = _CODECS.get(target)
    if cls is None:
        raise ValueError(f"no codec {name!r}; there are {', '.join([*_CODECS, *_ALIASES])}")
    fields = {f.name: f.metadata["kind"] for f in dataclasses.fields(cls)}
    stages = [k for k, kind in fields.items() if isinstance(kind, Stage)]
    plain = [k for k in fields if k not in stages and k not in params]
    params, given = dict(params), set()
    for place, item in enumerate(text.split(",") if colon else ()):
        key, equals, value = item.partition("=")
        if not equals:
            if place or not plain:
                raise ValueError(f"{spec!r}: {item!r} is no key=value")
            key, value = plain[0], item
        key = key.strip()
        if key not in fields or key in stages:
            raise ValueError(f"{name} has no parameter {key!r}; it has {', '.join(k for k in fields if k not in stages) or 'none'}")
        if key in given:
            raise ValueError(f"{spec!r} gives {key} twice")
        given.add(key)
        try:
            params[key] = fields[key].parse(value.strip())
        except ValueError:
            raise ValueError(f"{name}: {key} must be {fields[key]}, not {value.strip()!r}") from None
    if bar:
        if not stages:
            raise ValueError(f"{spec!r}: nothing can follow {name}, which is no transform or selection")
        params[stages[0]] = _parse(rest)
    return cls(**params)


def codec(spec) -> Codec:
    """A codec from a spec: `name`, `name:value`, `name:value,key=value`, stages joined by `|`; a codec is given back as it is.

    Raises ValueError for an unknown name, parameter or value (naming the valid range), TypeError for anything but text and codecs.
    """
    if isinstance(spec, Codec):
        return spec
    if not isinstance(spec, str):
        raise TypeError(f"a codec is a spec such as 'int4:block=64' or a Codec, not {type(spec).__name__}")
    return _parse(spec)


def auto_quality(spec) -> float | None:
    """The quality that "auto" or "auto:quality=Q" asks a communicator for; None for what names a codec. ValueError for other parameters."""
    if not isinstance(spec, str):
        return None
    name, colon, text = spec.strip().partition(":")
    if name != "auto":
        return None
    if not colon:
        return 0.0
    kind = Real(0.0, 1.0)
    try:
        key, equals, value = text.partition("=")
        if equals and key.strip() != "quality":
            raise ValueError
        return kind.check(float(value if equals else text))
    except ValueError:
        raise ValueError(f"auto: quality must be {kind}: the largest error allowed, as a part of the array's largest magnitude; not {text!r}") from None
