"""Frames: a header of 32 bytes, then the wire. What travels between ranks and what is stored.

Header, little endian: "TW" at 0, version 2, codec 3, dtype 4, flags 5, reserved 6-7, count u64 at 8, digest u32 at 16, sequence u32
at 20, bytes that follow u64 at 24. docs/wire.md is the specification.
"""
from __future__ import annotations

import struct

import numpy as np

from .. import _native
from .array import DTYPES, View, target, view
from .codec import Codec, WireError, codec as to_codec

HEADER = struct.Struct("<2sBBBBHQIIQ")
SIZE = HEADER.size
MAGIC, VERSION = b"TW", 1
SPEC = 1  # flag: the codec's full spec stands before the wire, so that the frame explains itself
CHECKSUM = 2  # flag: the CRC-32C of the wire stands behind it
LARGEST = 1 << 48  # more values than any memory holds: a header that claims them is damaged

_LENGTH = struct.Struct("<H")


def spec_block(codec: Codec) -> bytes:
    """Length u16, the spec in ASCII, zeros up to a multiple of 16 bytes."""
    spec = codec.spec.encode("ascii")
    block = _LENGTH.pack(len(spec)) + spec
    return block + bytes(-len(block) % 16)


def pack(buffer, codec: Codec, code: int, n: int, size: int, *, flags=0, digest=0, sequence=0):
    """Write a header into buffer[0:32]."""
    HEADER.pack_into(buffer, 0, MAGIC, VERSION, codec.kernels.number, code, flags, 0, n, digest, sequence & 0xFFFFFFFF, size)


def unpack(buffer):
    """(codec number, dtype code, flags, count, digest, sequence, bytes that follow) of a frame; WireError if it is none."""
    if len(buffer) < SIZE:
        raise WireError(f"a frame has a header of {SIZE} bytes; these are {len(buffer)}")
    magic, version, number, code, flags, reserved, n, digest, sequence, size = HEADER.unpack_from(buffer)
    if magic != MAGIC:
        raise WireError(f"a frame starts with {MAGIC!r}, not {magic!r}")
    if version != VERSION:
        raise WireError(f"frame version {version}; this thinwire reads {VERSION}")
    if code not in DTYPES:
        raise WireError(f"no dtype has code {code}")
    if n > LARGEST or size > LARGEST or reserved or flags & ~(SPEC | CHECKSUM):
        raise WireError(f"damaged frame header: {n} values, {size} bytes, flags {flags}, reserved {reserved}")
    return number, code, flags, n, digest, sequence, size


def encode_frame(v: View, codec: Codec, seed: int = 0, checksum: bool = False) -> np.ndarray:
    """A self-describing frame of a view's values, as a uint8 array."""
    codec.check(v.dtype, v.code)
    block = spec_block(codec)
    start = SIZE + len(block)
    buffer = np.empty(start + codec.kernels.bound(codec.params, v.n, v.code) + 4 * checksum, np.uint8)
    used = codec.kernels.encode(codec.params, v.flat, 0, v.n, v.code, buffer, start, seed & 0xFFFFFFFFFFFFFFFF)
    end = start + used
    if checksum:
        buffer[end : end + 4] = np.frombuffer(struct.pack("<I", _native.crc32c(buffer[start:end])), np.uint8)
        end += 4
    buffer[SIZE:start] = np.frombuffer(block, np.uint8)
    pack(buffer, codec, v.code, v.n, end - SIZE, flags=SPEC | CHECKSUM * checksum, digest=codec.digest)
    return buffer[:end]


def decode_frame(frame, out=None):
    """The values of a self-describing frame: flat, or into `out`. Raises WireError for anything that is not one such frame."""
    frame = np.frombuffer(frame, np.uint8)
    number, code, flags, n, digest, _, size = unpack(frame)
    if frame.size != SIZE + size:
        raise WireError(f"the header announces {size} bytes; {frame.size - SIZE} follow it")
    if not flags & SPEC:
        raise WireError("this frame does not name its codec: it belongs to a collective")
    start, end = SIZE, frame.size
    if size < 2 or SIZE + 2 + (length := _LENGTH.unpack_from(frame, SIZE)[0]) > end:
        raise WireError("the frame ends inside its codec's spec")
    text = frame[start + 2 : start + 2 + length].tobytes()
    start += length + 2 + -(length + 2) % 16
    try:
        codec = to_codec(text.decode("ascii"))
    except (ValueError, TypeError) as error:
        raise WireError(f"no codec is called {text!r}: {error}") from None
    if codec.kernels.number != number or codec.digest != digest or codec.spec.encode() != text:
        raise WireError(f"the header's codec ({number}, digest {digest:08x}) is not {codec}")
    if not codec.kernels.takes(code):
        raise WireError(f"{codec.name} does not take {DTYPES[code]}")
    if flags & CHECKSUM:
        end -= 4
        if end < start or _native.crc32c(frame[start:end]) != struct.unpack_from("<I", frame, end)[0]:
            raise WireError("the frame's checksum does not match its wire")
    if start > end or (codec.granule and codec.kernels.bound(codec.params, n, code) != end - start):
        raise WireError(f"{codec}: {end - start} bytes are no wire of {n} {DTYPES[code]} values")
    try:
        result = target(out, n, DTYPES[code])
    except MemoryError:
        raise WireError(f"the header claims {n} {DTYPES[code]} values, more than memory holds") from None
    if not codec.kernels.decode(codec.params, frame, start, end - start, result.flat, 0, n, code):
        raise WireError(f"{codec}: {end - start} bytes are no wire of {n} {DTYPES[code]} values")
    return result.finish()


def encode(x, codec="lossless", *, seed=0) -> bytes:
    """One self-describing frame of an array.

    x: array of any kind, flattened in C order; codec: spec or codec, by default one that loses nothing; seed: for codecs that draw random bits.
    Frames may be written one after another: a frame's length is 32 plus the u64 at byte 24.
    """
    return encode_frame(view(x), to_codec(codec), seed).tobytes()


def decode(frame, out=None):
    """The values of one frame: a flat numpy array of the frame's dtype (ml_dtypes' for bfloat16 and fp8), or `out`, filled.

    Raises WireError for bytes that are not one frame, TypeError or ValueError for an `out` that does not fit.
    """
    return decode_frame(frame, out)
