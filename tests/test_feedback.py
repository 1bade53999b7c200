"""What ErrorFeedback does around a codec: against float64 simulations of the papers' formulas, and law 7.

Calls are played here by `call`, which does what a collective's schedule does on one rank, with a selection of the largest values or
with any codec of the registry.
"""
import dataclasses
import pickle
import tracemalloc

import ml_dtypes
import numpy as np
import pytest

import thinwire as tw
from thinwire.compress.array import dtype_code
from thinwire.compress.feedback import _PIECE

F32, F64, F16, BF16 = (np.dtype(t) for t in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16))
KEY = "w"


def accumulator(dtype):
    return F64 if dtype == F64 else F32


def close(dtype):
    """To the rounding of the accumulator."""
    return dict(rtol=1e-12, atol=1e-12) if dtype == F64 else dict(rtol=2e-5, atol=2e-5)


def select(k):
    """What a sparsifier does: the k largest of x + residual, the rest left in it."""

    def coded(x, residual):
        u = x.astype(residual.dtype) + residual
        if not np.isfinite(u).all():
            return np.full(u.size, np.nan), np.arange(0)
        index = np.sort(np.argsort(-np.abs(u), kind="stable")[:k]).astype(np.uint32)
        sent = np.zeros(u.size)
        sent[index] = u[index]
        u[index] = 0
        residual[:] = u
        return sent, index

    return coded


def through(codec):
    """The same with a dense codec."""
    codec = tw.codec(codec)

    def coded(x, residual):
        wire = np.empty(codec.bound(x.size, x.dtype), np.uint8)
        used = codec.kernels.encode(codec.params, x, 0, x.size, dtype_code(x.dtype), wire, 0, 0, 0, residual)
        return codec.decode(wire[:used], np.zeros(x.size, residual.dtype), add=True, dtype=x.dtype).astype(np.float64), None

    return coded


def call(fb, x, coded, size=1, events=None, key=KEY):
    """One call on one rank: what was sent."""
    entry = fb.entry(key, x.shape, dtype_code(x.dtype))
    given = x.tobytes()
    u = entry.before(key, x, size, events)
    assert u.dtype == x.dtype and u.shape == x.shape
    sent, index = coded(u, entry.residual(key, "worker", x.size))
    if index is not None:
        entry.sent(key, index)
    entry.after(key)
    assert x.tobytes() == given, "the input was changed"
    return sent


def gradients(n, steps, dtype=F32, seed=0, scale=1.0):
    rng = np.random.default_rng([seed, n])
    return [(scale * rng.standard_normal(n)).astype(dtype) for _ in range(steps)]


def held(fb, key=KEY):
    return sum(r.astype(np.float64) for r in fb.state_dict()[key]["residuals"].values())


def finite(fb):
    return all(np.isfinite(a).all() for e in fb._entries.values() for a in e.arrays())


# --- the ordinary kind ---


def test_plain_feedback_gives_the_array_itself():
    fb = tw.ErrorFeedback()
    for x in (np.ones(5, np.float32), np.arange(5), np.array([np.nan, 1])):
        entry = fb.entry(str(x.dtype), x.shape, dtype_code(x.dtype))
        assert entry.before("k", x) is x
        entry.sent("k", np.arange(2, dtype=np.uint32))
        entry.after("k")
    assert fb.nbytes == 0 and fb.entry("float32", (5,), 1).velocity is None


@pytest.mark.parametrize("dtype", [F32, F64, F16, BF16], ids=str)
@pytest.mark.parametrize("coded", [select(9), through("int4"), through("sign")], ids=["select", "int4", "sign"])
def test_beta_one_conserves_the_sum(coded, dtype):
    fb = tw.ErrorFeedback(beta=1.0)
    total = sent = 0
    for x in gradients(1000, 30, dtype):
        total = total + x.astype(np.float64)
        sent = sent + call(fb, x, coded)
        assert np.abs(sent + held(fb) - total).max() <= 1e-4 * np.abs(total).max()


# --- ScaleCom's filter ---


@pytest.mark.parametrize("beta", [0.1, 0.3, 0.75])
def test_low_pass_filter_in_closed_form(beta):
    """Constant g, nothing sent: m = T * beta * g. Sent at the end: m becomes (1 - beta) m. Sent at every step: m stays 0."""
    g, steps = np.array([1.0, -2.0, 0.5, 8.0]), 20
    fb = tw.ErrorFeedback(beta=beta)
    always, both = (lambda x, r, index=i: select_at(x, r, np.array(index, np.uint32)) for i in ([3], [0, 3]))
    for step in range(steps):
        call(fb, g, always)
        m = held(fb)
        np.testing.assert_allclose(m, np.where(np.arange(4) == 3, 0, (step + 1) * beta * g), rtol=1e-13)
    sent = call(fb, g, both)
    np.testing.assert_allclose(sent, [(steps * beta + 1) * g[0], 0, 0, g[3]], rtol=1e-13)
    np.testing.assert_allclose(held(fb), [(1 - beta) * steps * beta * g[0], (steps + 1) * beta * g[1], (steps + 1) * beta * g[2], 0], rtol=1e-13)


def select_at(x, residual, index):
    u = x + residual
    sent = np.zeros(u.size)
    sent[index] = u[index]
    u[index] = 0
    residual[:] = u
    return sent, index


@pytest.mark.parametrize("coded", [select(7), through("int4")], ids=["select", "int4"])
def test_low_pass_filter_against_its_formula(coded):
    beta, m = 0.25, np.zeros(500)
    fb = tw.ErrorFeedback(beta=beta)
    for g in gradients(500, 20, F64):
        sent = call(fb, g, coded)
        m = (1 - beta) * m + beta * (m + g - sent)
        np.testing.assert_allclose(held(fb), m, rtol=1e-12, atol=1e-13)


# --- Deep Gradient Compression ---


def dgc(gradients, k, momentum, nesterov=False, masking=True, clip=None, size=1, every=1):
    """Algorithm 2 of the paper, in float64: what is sent at each step, and the state at the end."""
    n = gradients[0].size
    u, v, sent = np.zeros(n), np.zeros(n), []
    for step, g in enumerate(gradients):
        g = g.astype(np.float64)
        if clip is not None:
            g = g * min(1, clip / size**0.5 / np.linalg.norm(g))
        if nesterov:
            u = momentum * (u + g)
            v = v + u + g
        else:
            u = momentum * u + g
            v = v + u
        if (step + 1) % every:
            continue
        index = np.sort(np.argsort(-np.abs(v), kind="stable")[:k])
        out = np.zeros(n)
        out[index] = v[index]
        v[index] = 0
        if masking:
            u[index] = 0
        sent.append(out)
    return sent, u, v


@pytest.mark.parametrize("options", [
    dict(momentum=0.9), dict(momentum=0.9, nesterov=True), dict(momentum=0.5, masking=False), dict(momentum=0.9, clip=3.0, size=4),
    dict(momentum=0.9, nesterov=True, clip=2.0, size=9), dict(momentum=0.0, clip=3.0, size=2),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("dtype", [F32, F64, F16, BF16], ids=str)
def test_momentum_correction_is_the_papers(options, dtype):
    xs = gradients(2000, 25, dtype)
    options = dict(options)
    size = options.pop("size", 1)
    fb = tw.ErrorFeedback(**options)
    got = [call(fb, x, select(20), size) for x in xs]
    sent, u, v = dgc(xs, 20, **options, size=size)
    # float32 may order two nearly equal values the other way: then all that follows differs
    agree = [np.array_equal(a != 0, b != 0) for a, b in zip(got, sent)]
    assert all(agree), agree
    for a, b in zip(got, sent):
        np.testing.assert_allclose(a, b, **close(dtype))
    np.testing.assert_allclose(held(fb), v, **close(dtype))
    if options["momentum"]:
        np.testing.assert_allclose(fb.entry(KEY, xs[0].shape, dtype_code(dtype)).velocity, u, **close(dtype))


def test_masking_is_what_makes_the_difference():
    """With masking the velocity of what was sent is 0 in the same call, that of the rest is not touched."""
    for masking in (True, False):
        fb = tw.ErrorFeedback(momentum=0.9, masking=masking)
        (x,) = gradients(100, 1)
        sent = call(fb, x, select(10))
        velocity = fb.entry(KEY, (100,), 1).velocity
        assert (velocity[sent != 0] == (0 if masking else x[sent != 0])).all() and (velocity[sent == 0] == x[sent == 0]).all()
        assert np.count_nonzero(sent) == 10


@pytest.mark.parametrize("index", [np.array([1, 3], np.uint32), np.array([1, 3], np.uint64), np.array([], np.uint32), slice(2, 4)], ids=str)
def test_sent_takes_any_index_and_any_number_of_calls(index):
    fb = tw.ErrorFeedback(momentum=0.5)
    entry = fb.entry(KEY, (6,), 1)
    entry.before(KEY, np.ones(6, np.float32))
    entry.sent(KEY, index)
    entry.sent(KEY, np.array([5], np.uint32))
    entry.after(KEY)
    expected = np.ones(6)
    expected[index] = expected[5] = 0
    assert entry.velocity.tolist() == expected.tolist()


def test_masking_needs_to_be_told_what_was_sent():
    fb = tw.ErrorFeedback(momentum=0.9)
    for dense in ("int8", "raw", tw.codec("sign")):
        with pytest.raises(ValueError, match="masking=False"):
            fb.check(dense)
    for codec in (cls() for cls in tw.codecs().values()):
        if codec.selects:
            fb.check(codec)
    for other in (tw.ErrorFeedback(), tw.ErrorFeedback(momentum=0.9, masking=False), tw.ErrorFeedback(beta=0.5)):
        other.check("int8")
    with pytest.raises(RuntimeError, match="'w'"):
        call(fb, np.ones(10, np.float32), through("int8"))


def test_momentum_with_a_dense_codec_is_momentum_and_feedback():
    fb = tw.ErrorFeedback(momentum=0.9, masking=False)
    sent, velocity, total = 0, 0, 0
    for x in gradients(700, 20, F64):
        sent = sent + call(fb, x, through("int4"))
        velocity = 0.9 * velocity + x
        total = total + velocity
        assert np.abs(sent + held(fb) - total).max() < 1e-12


@pytest.mark.parametrize("dtype", [F32, F64, F16, BF16], ids=str)
def test_clipping_is_of_the_norm(dtype):
    for n in (1, 1000, _PIECE + 17):
        (x,) = gradients(n, 1, dtype)
        norm = np.linalg.norm(x.astype(np.float64))
        for clip, size in ((norm / 2, 1), (norm, 16), (norm * 2, 4.0001), (norm * 3, 4)):
            fb = tw.ErrorFeedback(clip=clip)
            sent = call(fb, x, lambda x, r: (x.astype(r.dtype) + r, None), size)
            factor = min(1, clip / size**0.5 / norm)
            np.testing.assert_allclose(sent, factor * x.astype(np.float64), rtol=1e-6 if dtype != F64 else 1e-14)
    assert call(tw.ErrorFeedback(clip=1.0), np.zeros(5, dtype), select(1)).tolist() == [0] * 5
    assert call(tw.ErrorFeedback(clip=1.0), np.zeros(0, dtype), select(1)).size == 0


def test_clipping_what_has_no_square():
    for x in (np.full(100, 1e300), np.full(100, 1e-300), np.full(100, np.finfo(np.float64).max), np.array([5e-324])):
        sent = call(tw.ErrorFeedback(clip=1e-290), x, select(100))
        assert (sent == sent[0]).all() and sent[0] == pytest.approx(min(1e-290 / x.size**0.5, x[0]), rel=1e-6)


# --- accumulation ---


@pytest.mark.parametrize("dtype", [F32, F64, F16, BF16], ids=str)
@pytest.mark.parametrize("every", [2, 5])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_accumulated_gradients_go_out_with_the_next_call(every, momentum, dtype):
    xs = gradients(600, 20, dtype)
    fb = tw.ErrorFeedback(momentum=momentum)
    got = []
    for step, x in enumerate(xs):
        if (step + 1) % every:
            assert fb.accumulate(KEY, x)
        else:
            got.append(call(fb, x, select(8)))
    sent, _, v = dgc(xs, 8, momentum, every=every)
    for a, b in zip(got, sent):
        np.testing.assert_allclose(a, b, **close(dtype))
    np.testing.assert_allclose(held(fb), v, **close(dtype))


def test_accumulation_takes_any_array_and_refuses_what_it_cannot_keep():
    fb = tw.ErrorFeedback()
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    assert fb.accumulate(KEY, x.T.copy().T) and fb.accumulate(KEY, x)
    assert held(fb).tolist() == (2 * x.ravel()).tolist()
    with pytest.raises(ValueError, match="reset"):
        fb.accumulate(KEY, x.ravel())
    with pytest.raises(TypeError, match="int64"):
        fb.accumulate("i", np.arange(3))
    before = pickle.dumps(fb.state_dict())
    for bad in (np.nan, np.inf):
        y = x.copy()
        y[2, 2] = bad
        assert not fb.accumulate(KEY, y)
        assert pickle.dumps(fb.state_dict()) == before
    entry = fb.entry(KEY, (4, 6), 1)
    entry.before(KEY, x.ravel())
    with pytest.raises(ValueError, match="'w'"):
        fb.accumulate(KEY, x)


# --- law 7: nothing that is not finite comes in; state ---


OPTIONS = [dict(momentum=0.9), dict(momentum=0.9, nesterov=True), dict(beta=0.5), dict(clip=1.0), dict(momentum=0.5, clip=2.0, beta=0.7)]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("dtype", [F32, F64, F16, BF16], ids=str)
def test_a_non_finite_gradient_changes_nothing_and_is_reported(options, dtype):
    xs = gradients(300, 6, dtype)
    fb, clean = tw.ErrorFeedback(**options), tw.ErrorFeedback(**options)
    for step, x in enumerate(xs):
        a = call(clean, x, select(9))
        if step % 2:
            events, before, bad = [], pickle.dumps(fb.state_dict()), x.copy()
            bad[7] = [np.nan, np.inf, -np.inf][step // 2]
            assert not np.isfinite(call(fb, bad, select(9), events=events)).any()
            assert len(events) == 1 and "'w'" in events[0] and pickle.dumps(fb.state_dict()) == before
        events = []
        assert call(fb, x, select(9), events=events).tobytes() == a.tobytes() and not events
    assert finite(fb) and pickle.dumps(fb.state_dict()) == pickle.dumps(clean.state_dict())


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("dtype", [F32, F64, F16, BF16], ids=str)
def test_sums_that_overflow_stay_finite(options, dtype):
    x = np.full(100, ml_dtypes.finfo(dtype).max, dtype)
    x[::3] *= -1
    fb = tw.ErrorFeedback(**options)
    with np.errstate(over="ignore", invalid="ignore"):
        for step in range(6):
            call(fb, x, select(3))
            assert finite(fb)
            assert fb.accumulate(KEY, x) and finite(fb)


@pytest.mark.parametrize("options", [*OPTIONS, {}], ids=str)
@pytest.mark.parametrize("dtype", [F32, F64, F16, BF16], ids=str)
def test_resuming_equals_never_stopping(options, dtype):
    def run(fb, first, last):
        sent = []
        for step in range(first, last):
            x = gradients(500, 1, dtype, seed=step)[0]
            sent.append(fb.accumulate(KEY, x) if step % 3 == 1 else call(fb, x, select(5), 3).tobytes())
        return sent

    for stop in (3, 5):
        straight, stopped, resumed = (tw.ErrorFeedback(**options) for _ in range(3))
        run(straight, 0, stop)
        run(stopped, 0, stop)
        saved = pickle.dumps(stopped.state_dict())
        resumed.load_state_dict(pickle.loads(saved))
        assert pickle.dumps(resumed.state_dict()) == saved and resumed.nbytes == stopped.nbytes
        copy = resumed.state_dict()
        assert run(resumed, stop, 9) == run(straight, stop, 9)
        assert pickle.dumps(resumed.state_dict()) == pickle.dumps(straight.state_dict())
        assert pickle.dumps(copy) == saved, "state_dict is no copy"


def test_states_that_do_not_fit_are_refused():
    fb = tw.ErrorFeedback(momentum=0.9)
    call(fb, np.ones(10, np.float32), select(2))
    good = fb.state_dict()
    for name, wrong in (("velocity", np.zeros(9, np.float32)), ("residuals", {"worker": np.zeros(9, np.float32)}), ("residuals", {"local": np.zeros(11, np.float32)})):
        with pytest.raises(ValueError, match="'w'"):
            fb.load_state_dict({KEY: good[KEY] | {name: wrong}})
        assert pickle.dumps(fb.state_dict()) == pickle.dumps(good)
    fb.load_state_dict({KEY: {k: v for k, v in good[KEY].items() if k != "velocity"}})  # saved without momentum
    call(fb, np.ones(10, np.float32), select(2))


def test_keys_reset_and_calls_under_way():
    fb = tw.ErrorFeedback(momentum=0.9)
    x = np.ones(10, np.float32)
    call(fb, x, select(2))
    for other in (np.ones(11, np.float32), np.ones(10), np.ones((2, 5), np.float32)):
        with pytest.raises(ValueError, match="reset"):
            fb.entry(KEY, other.shape, dtype_code(other.dtype))
    with pytest.raises(TypeError, match="int64"):
        fb.entry("i", (3,), dtype_code(np.dtype(np.int64)))
    entry = fb.entry(KEY, (10,), 1)
    entry.before(KEY, x)
    with pytest.raises(ValueError, match="not ended"):
        entry.before(KEY, x)
    fb.reset(KEY)
    assert fb.nbytes == 0 and fb.state_dict() == {}
    call(fb, np.ones(11), select(2))
    fb.reset()
    assert fb.nbytes == 0


def test_options_out_of_range():
    for name, values in {"momentum": (-0.1, 1.0, 1.5, np.nan), "beta": (0.0, -1, 1.1, np.inf), "clip": (0, -1, np.nan)}.items():
        for value in values:
            with pytest.raises(ValueError, match=name):
                tw.ErrorFeedback(**{name: value})
        with pytest.raises(TypeError, match=name):
            tw.ErrorFeedback(**{name: "0.5"})
    with pytest.raises(TypeError):
        tw.ErrorFeedback(0.9)
    assert repr(tw.ErrorFeedback()) == "ErrorFeedback(0 keys, 0 bytes)"
    assert repr(tw.ErrorFeedback(momentum=0.9, masking=False)) == "ErrorFeedback(momentum=0.9, masking=False, 0 keys, 0 bytes)"


@pytest.mark.parametrize("options", [*OPTIONS, {}], ids=str)
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_steady_state_allocates_no_arrays(options, dtype):
    """Law 11: after the first calls nothing as long as the array is made."""
    n = 3 * _PIECE + 5
    fb, (x,) = tw.ErrorFeedback(**options), gradients(n, 1, dtype)
    entry = fb.entry(KEY, (n,), dtype_code(dtype))

    def step():
        u = entry.before(KEY, x)
        entry.residual(KEY, "worker", n)[:] = 0 if u is x else 1
        entry.sent(KEY, np.array([3], np.uint32))
        entry.after(KEY)

    step()
    step()
    held = fb.nbytes
    tracemalloc.start()
    for _ in range(5):
        step()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000 and fb.nbytes == held


# --- warm-up ---


def test_warmup_is_geometric():
    ratios = [cls() for cls in tw.codecs().values() if hasattr(cls(), "ratio")]
    for codec in ratios:
        warmup = tw.Warmup(codec, 40, start=0.25)
        target = codec.ratio
        seen = [warmup(step).ratio for step in range(60)]
        expected = [0.25 * min(target / 0.25, 1) ** (step // 10 / 4) if target < 0.25 and step < 40 else target for step in range(60)]
        assert seen == pytest.approx(expected) and warmup(40) is warmup.codec
        assert len({warmup(step) for step in range(60)}) <= 5
        if hasattr(codec, "k"):
            with pytest.raises(ValueError, match="ratio"):
                tw.Warmup(dataclasses.replace(codec, k=5), 10)
    for spec in ("raw", "int8"):
        with pytest.raises(ValueError, match="ratio"):
            tw.Warmup(spec, 10)
    for wrong in (dict(steps=-1), dict(steps=1.5), dict(steps=10, stages=0), dict(steps=10, start=0.0), dict(steps=10, start=2)):
        for codec in ratios[:1]:
            with pytest.raises(ValueError, match="Warmup"):
                tw.Warmup(codec, **wrong)
