"""Law 2 across builds, devices and releases: the frames in tests/golden are read, and written, to the byte. See tests/golden/make.py."""
import importlib.util

import numpy as np
import pytest

import thinwire as tw
from thinwire.compress.array import dtype_code


@pytest.fixture(scope="module")
def make(kit):
    spec = importlib.util.spec_from_file_location("make_golden", kit.HERE / "golden" / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def frames(data):
    while data:
        length = 32 + int.from_bytes(data[24:32], "little")
        yield data[:length]
        data = data[length:]


def test_every_codec_has_a_golden_file_and_none_is_left_over(kit):
    assert {path.stem for path in (kit.HERE / "golden").glob("*.bin")} == set(tw.codecs()), "python tests/golden/make.py writes missing files"
    assert all(path.stat().st_size < 40_000 for path in (kit.HERE / "golden").glob("*.bin"))


@pytest.mark.parametrize("cls", tw.codecs().values(), ids=lambda cls: cls.name)
def test_golden_frames(kit, make, cls):
    stored = list(frames((kit.HERE / "golden" / f"{cls.name}.bin").read_bytes()))
    cases = list(make.cases(cls))
    assert len(stored) == 2 * len(cases), "an alias came or went: python tests/golden/make.py --force, and say so in the release notes"
    for (codec, x), frame, fingerprint in zip(cases, stored[::2], stored[1::2]):
        what = f"{codec}, {x.size} {x.dtype} values"
        assert tw.encode(x, codec, seed=make.SEED) == frame, f"{what}: other bytes"
        y = tw.decode(frame)
        assert y.dtype == x.dtype and y.size == x.size
        assert make.fingerprint(y).tobytes() == tw.decode(fingerprint).tobytes(), f"{what}: other values"
        # the header, byte for byte, by its numbers alone
        assert frame[:8] == b"TW\x01" + bytes([codec.kernels.number, dtype_code(x.dtype), 1, 0, 0])
        assert frame[8:16] == x.size.to_bytes(8, "little") and frame[20:24] == bytes(4)


def test_inputs_are_what_they_were(make):
    """The generator's own arithmetic, pinned: a golden file means nothing if its inputs can change."""
    import hashlib

    digest = hashlib.blake2b(digest_size=8)
    for name in make.DTYPES:
        for x in make.inputs(np.dtype(getattr(make.ml_dtypes, name, None) or name)):
            digest.update(x.tobytes())
    assert digest.hexdigest() == "dc5861dbb7d74474"


def test_make_refuses_to_overwrite(kit, make, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(make, "HERE", tmp_path)
    name = next(iter(tw.codecs()))
    assert make.main([name]) == 0 and make.main([name]) == 0
    (tmp_path / f"{name}.bin").write_bytes(b"something else")
    assert make.main([name]) == 1 and (tmp_path / f"{name}.bin").read_bytes() == b"something else"
    assert make.main([name, "--force"]) == 0 and (tmp_path / f"{name}.bin").read_bytes() == make.contents(tw.codecs()[name])
