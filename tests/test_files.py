"""Files: `thinwire compress` and `thinwire restore`."""
import json
import struct

import ml_dtypes
import numpy as np
import pytest

import thinwire as tw
from thinwire import files


def safetensors(path, **arrays):
    """A .safetensors file, written by hand."""
    names = {np.dtype(kind): name for name, kind in files._SAFETENSORS.items()}
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, array in arrays.items():
        header[name] = {"dtype": names[array.dtype], "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(a.tobytes() for a in arrays.values()))
    return path


ARRAYS = {
    "f32": np.linspace(-3, 3, 50_000, dtype=np.float32).reshape(100, 500), "bf16": np.linspace(-1, 1, 10_007).astype(ml_dtypes.bfloat16),
    "half": np.full(33, np.nan, np.float16), "ids": np.arange(1000), "mask": np.arange(70) % 3 == 0, "empty": np.zeros((0, 4), np.float32),
}  # fmt: skip


def originals(folder):
    yield safetensors(folder / "model.safetensors", **ARRAYS)
    yield safetensors(folder / "nothing.safetensors")
    for name, array in {**ARRAYS, "fortran": np.asfortranarray(ARRAYS["f32"]), "big": ARRAYS["f32"].astype(">f4"), "text": np.array(["a", "bc"])}.items():
        if array.dtype != ml_dtypes.bfloat16:
            np.save(folder / f"{name}.npy", array)
            yield folder / f"{name}.npy"


def test_what_is_restored_is_the_original(tmp_path, monkeypatch, capsys):
    for piece in (files.PIECE, 4096):
        monkeypatch.setattr(files, "PIECE", piece)
        for path in originals(tmp_path):
            files.main(["compress", str(path), "-o", str(tmp_path / "small")])
            assert "ratio" in capsys.readouterr().out
            files.main(["restore", str(tmp_path / "small"), "-o", str(tmp_path / "back")])
            assert (tmp_path / "back").read_bytes() == path.read_bytes(), path
            if path.name in ("model.safetensors", "f32.npy") and piece > 4096:
                assert (tmp_path / "small").stat().st_size < 0.95 * path.stat().st_size
    assert not list(tmp_path.glob("*.part"))


def test_a_lossy_codec_codes_what_it_takes(tmp_path):
    path = safetensors(tmp_path / "model.safetensors", **ARRAYS)
    files.compress(path, tmp_path / "small", "int8")
    files.restore(tmp_path / "small", tmp_path / "back")
    got, expected = (tmp_path / "back").read_bytes(), path.read_bytes()
    assert len(got) == len(expected) and got[-1070 + 70 :] == expected[-1000:]
    at = 8 + struct.unpack("<Q", expected[:8])[0]
    x = np.frombuffer(got, np.float32, 50_000, at)
    assert 0 < np.abs(x - ARRAYS["f32"].ravel()).max() <= 3 / 254 * 1.001


def test_frames_in_a_file_are_frames(tmp_path):
    np.save(tmp_path / "x.npy", ARRAYS["f32"])
    files.compress(tmp_path / "x.npy", tmp_path / "small")
    data = (tmp_path / "small").read_bytes()
    first = 32 + int.from_bytes(data[24:32], "little")
    assert (tw.decode(data[first:]) == ARRAYS["f32"].ravel()).all()


def test_damage_is_an_error_and_leaves_nothing(tmp_path):
    np.save(tmp_path / "x.npy", ARRAYS["f32"])
    files.compress(tmp_path / "x.npy", tmp_path / "small")
    data = (tmp_path / "small").read_bytes()
    first = 32 + int.from_bytes(data[24:32], "little")
    for wrong in (b"", data[:20], data[:100], data[:first], data[:-1], data + b"x", data[:-9] + bytes([data[-9] ^ 1]) + data[-8:], data[first:], b"\0" * 100):
        (tmp_path / "wrong").write_bytes(wrong)
        with pytest.raises(ValueError):
            files.restore(tmp_path / "wrong", tmp_path / "back")
        assert not (tmp_path / "back").exists() and not list(tmp_path.glob("*.part"))
    for wrong in (b"", b"\0" * 7, b"\xff" * 64, b"hello, world", b"\x93NUMPY\x09\x00" + bytes(100), struct.pack("<Q", 2) + b"[]", struct.pack("<Q", 2) + b"{}x"):
        (tmp_path / "wrong").write_bytes(wrong)
        with pytest.raises(ValueError):
            files.compress(tmp_path / "wrong", tmp_path / "out")
    with pytest.raises(SystemExit, match="overwrite"):
        files.main(["compress", str(tmp_path / "x.npy"), "-o", str(tmp_path / "x.npy")])
    with pytest.raises(SystemExit, match="No such file"):
        files.main(["compress", str(tmp_path / "none"), "-o", str(tmp_path / "out")])
    with pytest.raises(SystemExit, match="no codec"):
        files.main(["compress", str(tmp_path / "x.npy"), "-o", str(tmp_path / "out"), "--codec", "what"])
