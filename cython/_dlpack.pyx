# cython: language_level=3, binding=False
"""DLPack on the host, in both directions.

numpy's own from_dlpack cannot carry bfloat16 or fp8, so this module moves the memory and leaves
the meaning of its bytes to the caller: a tensor of another library is `Borrowed` as a plain
buffer of bytes, and a plain buffer of ours is `Lent` as a tensor. A dtype is the triple
(code, bits, lanes) of DLPack's DLDataType.

Nothing here knows numpy, torch or any other array library.
"""

from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

# PyObject* rather than object: a capsule's destructor runs at reference count 0, where the
# incref/decref pair around an object argument would destroy the capsule a second time.
cdef extern from "Python.h":
    ctypedef void (*Destructor "PyCapsule_Destructor")(PyObject*) noexcept
    object PyCapsule_New(void*, const char*, Destructor)
    void* PyCapsule_GetPointer(PyObject*, const char*) except NULL
    bint PyCapsule_IsValid(PyObject*, const char*) noexcept
    int PyCapsule_SetName(PyObject*, const char*) except -1
    int Py_IsInitialized() noexcept nogil


# The structures of dlpack.h, whose layout is DLPack's ABI.

ctypedef struct Device:
    int32_t type
    int32_t id

ctypedef struct DType:
    uint8_t code
    uint8_t bits
    uint16_t lanes

ctypedef struct Tensor:
    void* data
    Device device
    int32_t ndim
    DType dtype
    int64_t* shape
    int64_t* strides        # in items; NULL means C-contiguous
    uint64_t byte_offset

ctypedef struct Plain:
    # DLManagedTensor, in a capsule named "dltensor"
    Tensor tensor
    void* context
    void (*deleter)(Plain*) noexcept

ctypedef struct Versioned:
    # DLManagedTensorVersioned, in a capsule named "dltensor_versioned"
    uint32_t major
    uint32_t minor
    void* context
    void (*deleter)(Versioned*) noexcept
    uint64_t flags
    Tensor tensor

cdef enum:
    CPU = 1                 # kDLCPU
    CUDA_HOST = 3           # kDLCUDAHost: page-locked, but host memory
    READ_ONLY = 1           # DLPACK_FLAG_BITMASK_READ_ONLY

HOST = frozenset((CPU, CUDA_HOST))      # the device types whose memory this process can read


cdef class Borrowed:
    """The memory of a host DLPack producer, as a buffer of bytes.

    The buffer spans every item that the tensor can reach, so with `shape`, `strides` and
    `offset` it is what np.ndarray(shape, dtype, buffer, offset, strides) asks for. The producer's
    memory stays alive as long as this object or a buffer taken from it.

    Attributes
    ----------
    shape : tuple of int
    strides : tuple of int, in bytes
    offset : int, bytes from the buffer's start to item [0, …, 0] (not 0 when a stride is negative)
    dtype : (code, bits, lanes)
    readonly : bool. A capsule without version cannot say; the protocol lets its consumer write.

    Raises
    ------
    BufferError
        The capsule is not one (or was consumed before), has a newer major version or an unknown
        number of dimensions, or its memory is not the host's.
    Whatever the producer raises (torch: a tensor that requires grad, a lazy conjugate, …).
    """

    cdef Plain* _plain
    cdef Versioned* _versioned
    cdef char* _start
    cdef Py_ssize_t _nbytes
    cdef readonly tuple shape
    cdef readonly tuple strides
    cdef readonly Py_ssize_t offset
    cdef readonly tuple dtype
    cdef readonly bint readonly

    def __cinit__(self, producer):
        cdef Tensor* tensor
        try:
            capsule = producer.__dlpack__(max_version=(1, 0))
        except TypeError:       # from before the array API standard of 2023
            capsule = producer.__dlpack__()
        cdef PyObject* raw = <PyObject*>capsule
        # Renaming a capsule is how DLPack hands its memory over: from then on the deleter is ours
        # to call, which __dealloc__ does, also when a line below raises.
        if PyCapsule_IsValid(raw, "dltensor_versioned"):
            self._versioned = <Versioned*>PyCapsule_GetPointer(raw, "dltensor_versioned")
            PyCapsule_SetName(raw, "used_dltensor_versioned")
            if self._versioned.major > 1:   # only the deleter may be trusted then
                raise BufferError(f"DLPack {self._versioned.major}.{self._versioned.minor} from "
                                  f"{type(producer).__name__}, this build reads 1.x")
            self.readonly = self._versioned.flags & READ_ONLY
            tensor = &self._versioned.tensor
        elif PyCapsule_IsValid(raw, "dltensor"):
            self._plain = <Plain*>PyCapsule_GetPointer(raw, "dltensor")
            PyCapsule_SetName(raw, "used_dltensor")
            tensor = &self._plain.tensor
        else:
            raise BufferError(f"{type(producer).__name__}.__dlpack__() gave no fresh DLPack capsule")
        if tensor.device.type not in HOST:
            raise BufferError(f"DLPack device type {tensor.device.type}, expected host memory")
        self._read(tensor)

    cdef _read(self, Tensor* tensor):
        cdef Py_ssize_t size = (<Py_ssize_t>tensor.dtype.bits * tensor.dtype.lanes + 7) // 8
        cdef Py_ssize_t stride = size, low = 0, high = size
        cdef int axis
        if not 0 <= tensor.ndim <= 64:
            raise BufferError(f"a DLPack tensor of {tensor.ndim} dimensions")
        self.dtype = (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes)
        self.shape = tuple([tensor.shape[axis] for axis in range(tensor.ndim)])
        strides = []
        for axis in reversed(range(tensor.ndim)):
            if tensor.strides:
                stride = tensor.strides[axis] * size
            strides.append(stride)
            if stride < 0:
                low += stride * (tensor.shape[axis] - 1)
            else:
                high += stride * (tensor.shape[axis] - 1)
            if not tensor.strides:
                stride *= tensor.shape[axis]
        self.strides = tuple(reversed(strides))
        if 0 in self.shape:
            # An empty tensor's pointer may be NULL, which a buffer may not be.
            self._start = <char*>tensor
            return
        self.offset = -low
        self._start = <char*>tensor.data + tensor.byte_offset + low
        self._nbytes = high - low

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self._start, self._nbytes, self.readonly, flags)

    def __dealloc__(self):
        if self._versioned and self._versioned.deleter:
            self._versioned.deleter(self._versioned)
        if self._plain and self._plain.deleter:
            self._plain.deleter(self._plain)


ctypedef union Managed:
    Plain plain
    Versioned versioned

ctypedef struct Loan:
    # What one capsule owns: the managed tensor, the buffer that it shows, and behind this
    # structure, in the same allocation, its shape and strides.
    Managed managed
    Py_buffer buffer


cdef void repay(Loan* loan) noexcept with gil:
    PyBuffer_Release(&loan.buffer)
    free(loan)

# Consumers call a deleter from any thread, with or without the GIL, and some of them from a static
# destructor after the interpreter has gone, when there is no GIL to take and nothing to give back.
cdef void delete_plain(Plain* plain) noexcept nogil:
    if Py_IsInitialized():
        repay(<Loan*>plain.context)

cdef void delete_versioned(Versioned* versioned) noexcept nogil:
    if Py_IsInitialized():
        repay(<Loan*>versioned.context)

# A capsule that was consumed has another name, and its consumer calls the deleter.
cdef void drop_plain(PyObject* capsule) noexcept:
    if PyCapsule_IsValid(capsule, "dltensor"):
        repay(<Loan*>(<Plain*>PyCapsule_GetPointer(capsule, "dltensor")).context)

cdef void drop_versioned(PyObject* capsule) noexcept:
    if PyCapsule_IsValid(capsule, "dltensor_versioned"):
        repay(<Loan*>(<Versioned*>PyCapsule_GetPointer(capsule, "dltensor_versioned")).context)


cdef class Lent:
    """A C-contiguous buffer, as a host tensor that any DLPack consumer can take without a copy.

    Parameters
    ----------
    buffer : any object with the buffer protocol; every capsule keeps it alive
    shape : tuple of int
    dtype : (code, bits, lanes), which the buffer itself need not know

    Raises
    ------
    ValueError
        The buffer is not C-contiguous, or the shape does not have its size.
    BufferError
        From `__dlpack__`: a consumer asks for another device, for a copy, or, over a read-only
        buffer, for a capsule that cannot say read-only.
    """

    cdef object _buffer
    cdef tuple _shape
    cdef DType _dtype

    def __init__(self, buffer, tuple shape, tuple dtype):
        cdef Py_ssize_t expected
        view = memoryview(buffer)
        if not view.c_contiguous:
            raise ValueError("expected a C-contiguous buffer")
        self._dtype.code, self._dtype.bits, self._dtype.lanes = dtype
        expected = (<Py_ssize_t>self._dtype.bits * self._dtype.lanes + 7) // 8
        for length in shape:
            if length < 0:
                raise ValueError(f"a negative length in shape {shape}")
            expected *= length
        if view.nbytes != expected:
            raise ValueError(f"shape {shape} takes {expected} bytes, the buffer has {view.nbytes}")
        self._buffer = buffer
        self._shape = shape

    def __dlpack_device__(self):
        return (CPU, 0)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if dl_device is not None and tuple(dl_device) != (CPU, 0):
            raise BufferError(f"DLPack device {dl_device}, this memory is the host's")
        if copy:
            raise BufferError("this DLPack producer shares its memory and makes no copies")
        cdef bint versioned = max_version is not None and max_version[0] >= 1
        cdef int ndim = len(self._shape)
        cdef Loan* loan = <Loan*>malloc(sizeof(Loan) + 2 * ndim * sizeof(int64_t))
        if not loan:
            raise MemoryError
        try:
            PyObject_GetBuffer(self._buffer, &loan.buffer, PyBUF_SIMPLE)
        except:
            free(loan)
            raise
        # From here on the loan has an owner: this function until a capsule takes over.
        try:
            if versioned:
                loan.managed.versioned.major = 1
                loan.managed.versioned.minor = 0
                loan.managed.versioned.context = loan
                loan.managed.versioned.deleter = delete_versioned
                loan.managed.versioned.flags = READ_ONLY if loan.buffer.readonly else 0
                self._write(&loan.managed.versioned.tensor, loan)
                return PyCapsule_New(&loan.managed.versioned, "dltensor_versioned", drop_versioned)
            if loan.buffer.readonly:
                raise BufferError("only a versioned DLPack capsule can lend read-only memory")
            loan.managed.plain.context = loan
            loan.managed.plain.deleter = delete_plain
            self._write(&loan.managed.plain.tensor, loan)
            return PyCapsule_New(&loan.managed.plain, "dltensor", drop_plain)
        except:
            repay(loan)
            raise

    cdef _write(self, Tensor* tensor, Loan* loan):
        cdef int axis
        cdef int64_t stride = 1
        tensor.data = loan.buffer.buf
        tensor.device.type = CPU
        tensor.device.id = 0
        tensor.dtype = self._dtype
        tensor.byte_offset = 0
        tensor.ndim = len(self._shape)
        tensor.shape = <int64_t*>(loan + 1)
        tensor.strides = tensor.shape + tensor.ndim
        for axis in reversed(range(tensor.ndim)):
            tensor.shape[axis] = self._shape[axis]
            tensor.strides[axis] = stride
            stride *= tensor.shape[axis]
