"""Arrays that are sparse as they come: what `allreduce` takes and gives beside dense ones."""
from __future__ import annotations

import math

import numpy as np

from .array import View, view


class _Rows:
    """What the two have in common: an array of shape `shape` of which the rows at some places are given and the others are zero."""

    def __init__(self, places, values, shape, what):
        self.shape = tuple(map(int, shape))
        self._places, self._numbers = view(places), view(values)
        row, n = self.shape[1:], self._places.n
        if self._places.dtype.kind not in "iu" or (self._numbers.shape if row else (self._numbers.n,)) != (n, *row):
            raise ValueError(f"{n} {what} of an array of shape {self.shape} are whole numbers and have values of shape {(n, *row)}, not {self._numbers.shape}")
        if n and not 0 <= int(self._places.flat.min()) <= int(self._places.flat.max()) < self.shape[0]:
            raise ValueError(f"{what} must lie in [0, {self.shape[0]}), not in [{self._places.flat.min()}, {self._places.flat.max()}]")

    @property
    def dtype(self):
        return self._numbers.dtype

    @property
    def _width(self):
        return math.prod(self.shape[1:])

    def dense(self) -> np.ndarray:
        """The whole array."""
        v = self.view()
        array = np.zeros(v.n, self.dtype)
        array[v.index] = v.flat
        return array.reshape(self.shape)

    def view(self) -> SparseView:
        rows, values = _coalesced(self._places.flat, self._numbers.flat.reshape(self._places.n, self._width))
        index = (rows.astype(np.uint64)[:, None] * np.uint64(self._width) + np.arange(self._width, dtype=np.uint64)).ravel()
        return SparseView(index, values.ravel(), self._numbers.code, self.shape[0] * self._width, self._like)


class SparseArray(_Rows):
    """A flat array of `size` values of which those at `indices` are given and the others are zero.

    indices   integers in [0, size), any order; values given for one index more than once add up
    values    as many, of a float dtype
    """

    def __init__(self, indices, values, size: int):
        self.indices, self.values, self.size = indices, values, int(size)
        super().__init__(indices, values, (size,), "indices")

    def __repr__(self):
        return f"SparseArray({self._places.n} of {self.size} {self.dtype} values)"

    def _like(self, index, values):
        return SparseArray(index.astype(np.int64), self._numbers.like(values, values.shape), self.size)


class RowSparse(_Rows):
    """An array of shape `shape` of which the rows at `rows` are given and the others are zero, as gradients of embeddings come.

    rows     integers in [0, shape[0]), any order; rows given more than once add up
    values   shape (len(rows), *shape[1:]), of a float dtype
    """

    def __init__(self, rows, values, shape):
        self.rows, self.values = rows, values
        super().__init__(rows, values, shape, "rows")

    def __repr__(self):
        return f"RowSparse({self._places.n} rows of {self.shape} {self.dtype} values)"

    def _like(self, index, values):
        width = index.dtype.type(max(self._width, 1))
        rows, place = np.unique(index // width, return_inverse=True)
        full = np.zeros((rows.size, self._width), values.dtype)
        full[place, index % width] = values
        return RowSparse(rows.astype(np.int64), self._numbers.like(full.ravel(), (rows.size, *self.shape[1:])), self.shape)


def _coalesced(index, values):
    """Ascending indices, each once, and the sums of their values."""
    if index.size < 2 or (index[1:] > index[:-1]).all():
        return index, values
    order = np.argsort(index, kind="stable")
    index, values = index[order], values[order]
    first = np.flatnonzero(np.append(True, index[1:] != index[:-1]))
    wide = np.float32 if values.dtype.itemsize < 4 else values.dtype
    return index[first], np.add.reduceat(values.astype(wide), first, axis=0).astype(values.dtype)


class SparseView(View):
    """What a call sees of a sparse array: `n` values, of which `flat` stand at `index`, ascending, uint32, or uint64 above 2^32 values."""

    __slots__ = ("index", "_like")

    def __init__(self, index, values, code, n, like):
        super().__init__(np.ascontiguousarray(values), code, (n,))
        self.index = np.ascontiguousarray(index, np.uint64 if n > 1 << 32 else np.uint32)
        self.n, self._like = n, like

    def target(self, out=None):
        if out is not None:
            raise ValueError("the result of sparse arrays is a new sparse array: out cannot be given")
        return SparseTarget(self)


class SparseTarget:
    """Where a sparse result is put: entries, then `finish` gives the object for the caller."""

    def __init__(self, view):
        self.flat, self._view = self, view  # `flat` is what a call writes to
        self.index, self.value = view.index[:0], view.flat[:0]

    def put(self, index, value):
        self.index, self.value = index, value.astype(self._view.dtype)

    def aliases(self, view):
        return False

    def finish(self):
        return self._view._like(self.index, self.value)
