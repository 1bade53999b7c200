from typing import Any

HOST: frozenset[int]

class Borrowed:
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: tuple[int, int, int]
    readonly: bool
    def __init__(self, producer: Any) -> None: ...

class Lent:
    def __init__(self, buffer: Any, shape: tuple[int, ...], dtype: tuple[int, int, int]) -> None: ...
    def __dlpack__(self, **keywords: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
