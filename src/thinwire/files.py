"""`thinwire compress IN -o OUT`, `thinwire restore IN -o OUT`: .npy and .safetensors files as streams of frames.

A compressed file is frames, one after another: the first holds, as bytes, the length of the data that follows the original file's header (u64)
and that header as it was; the others hold the data in order, each array in pieces of 64 MiB. What is restored is the original, byte for byte
if the codec loses nothing.
"""
from __future__ import annotations

import argparse
import json
import os
import struct
import sys
import tempfile
from time import perf_counter

import ml_dtypes
import numpy as np
from numpy.lib import format as npy
from tqdm import tqdm

from .compress import WireError, codec as to_codec
from .compress import frame
from .compress.array import DTYPES, view

PIECE = 1 << 26  # bytes of an array in one frame
_SAFETENSORS = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2,
    "I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8, "U64": np.uint64, "U32": np.uint32, "U16": np.uint16, "U8": np.uint8, "BOOL": np.bool_,
}  # fmt: skip


class FileError(ValueError):
    """A file that is not what it should be."""


def layout(memory, name):
    """(bytes of the header, [(dtype, bytes), ...] of what follows it) of a .npy or .safetensors file. FileError if it is neither."""
    if memory[:6].tobytes() == b"\x93NUMPY":
        with open(name, "rb") as file:
            version = npy.read_magic(file)
            if version not in ((1, 0), (2, 0)):
                raise FileError(f"{name}: .npy files of version {version} are not read")
            _, _, dtype = (npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0)(file)
            if dtype.hasobject:
                raise FileError(f"{name} holds Python objects")
            return file.tell(), [(dtype, memory.size - file.tell())]
    try:
        (length,) = struct.unpack("<Q", memory[:8].tobytes())
        tensors = json.loads(memory[8 : 8 + length].tobytes()) if length <= memory.size - 8 else None
        places = sorted((*t["data_offsets"], t["dtype"]) for key, t in tensors.items() if key != "__metadata__")
    except (struct.error, ValueError, TypeError, KeyError, AttributeError):
        raise FileError(f"{name} is no .npy and no .safetensors file") from None
    parts, at = [], 0
    for start, stop, dtype in places:
        if start != at or stop < start:
            raise FileError(f"{name}: its tensors leave gaps or overlap at byte {at} of the data")
        parts.append((_SAFETENSORS.get(dtype, np.uint8), stop - start))
        at = stop
    if 8 + length + at != memory.size:
        raise FileError(f"{name}: its header tells of {at} bytes of data, it has {memory.size - 8 - length}")
    return 8 + length, parts


def compress(source, target, codec="lossless", progress=False):
    """Compress a .npy or .safetensors file. Arrays that the codec does not take are coded by `lossless`. Gives (bytes read, bytes written)."""
    codec, exact = to_codec(codec), to_codec("lossless")
    memory = np.memmap(source, np.uint8, "r") if os.path.getsize(source) else np.empty(0, np.uint8)
    at, parts = layout(memory, source)
    with _output(source, target) as out, tqdm(total=memory.size, unit="B", unit_scale=True, disable=None if progress else True, leave=False) as bar:
        out.write(frame.encode_frame(view(np.append(np.frombuffer(struct.pack("<Q", memory.size - at), np.uint8), memory[:at])), exact, checksum=True))
        bar.update(at)
        for dtype, size in parts:
            dtype = np.dtype(dtype)
            if dtype not in DTYPES.values() or size % dtype.itemsize:  # frames name no such dtype: its bytes
                dtype = np.dtype(np.uint8)
            for start in range(at, at + size, PIECE):
                piece = memory[start : min(start + PIECE, at + size)]
                v = view(np.array(piece).view(dtype))
                out.write(frame.encode_frame(v, codec if codec.kernels.takes(v.code) else exact, checksum=True))
                bar.update(piece.size)
            at += size
        return memory.size, out.tell()


def restore(source, target, progress=False):
    """Write the file that was compressed. Gives (bytes read, bytes written). WireError or FileError for a file that is damaged or cut short."""
    left = None
    with open(source, "rb") as file, _output(source, target) as out:
        size = os.fstat(file.fileno()).st_size
        with tqdm(total=size, unit="B", unit_scale=True, disable=None if progress else True, leave=False) as bar:
            while head := file.read(frame.SIZE):
                *_, follow = frame.unpack(head)
                if follow > size - file.tell():
                    raise WireError(f"{source} ends inside a frame at byte {file.tell() - len(head)}")
                data = frame.decode_frame(head + file.read(follow)).view(np.uint8)
                if left is None:
                    if data.size < 8:
                        raise FileError(f"{source} does not start as a compressed file does")
                    left, data = int(data[:8].view("<u8")[0]) + data.size - 8, data[8:]
                left -= data.size
                out.write(data)
                bar.update(frame.SIZE + follow)
        if left != 0:
            raise FileError(f"{source}: {'nothing in it' if left is None else f'{left} bytes are missing at its end'}")
        return size, out.tell()


class _output:
    """A file that appears under its name once it is complete."""

    def __init__(self, source, target):
        if os.path.exists(target) and os.path.samefile(source, target):
            raise FileError(f"{target} would overwrite its own input")
        self.target, self.whole = target, not os.path.exists(target) or os.path.isfile(target)  # a device or a pipe is written as it is
        self.file = tempfile.NamedTemporaryFile(dir=os.path.dirname(target) or ".", suffix=".part", delete=False) if self.whole else open(target, "wb")

    def __enter__(self):
        return self.file

    def __exit__(self, error, *_):
        self.file.close()
        if self.whole and error:
            os.remove(self.file.name)
        elif self.whole:
            os.umask(mask := os.umask(0))
            os.chmod(self.file.name, 0o666 & ~mask)  # temporary files are their owner's alone
            os.replace(self.file.name, self.target)


def main(argv=None):
    parser = argparse.ArgumentParser(prog="thinwire", description="Compress and restore .npy and .safetensors files.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (("compress", "a file into frames"), ("restore", "the file that was compressed")):
        command = commands.add_parser(name, help=text)
        command.add_argument("source", metavar="IN")
        command.add_argument("-o", "--output", metavar="OUT", required=True)
        if name == "compress":
            command.add_argument("--codec", default="lossless", help="spec, such as int8; default %(default)s, which keeps every bit")
    args = parser.parse_args(argv)
    started = perf_counter()
    try:
        if args.command == "compress":
            read, written = raw, small = compress(args.source, args.output, args.codec, progress=True)
        else:
            read, written = small, raw = restore(args.source, args.output, progress=True)
    except (OSError, ValueError, TypeError) as error:
        sys.exit(f"thinwire {args.command}: {error}")
    seconds = perf_counter() - started
    print(f"{args.output}: {read:,} bytes to {written:,}, ratio {raw / max(small, 1):.3f}, {raw / seconds / 1e9:.2f} GB/s of the original")
