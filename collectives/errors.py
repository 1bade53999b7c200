"""What can go wrong between ranks."""


class MismatchError(RuntimeError):
    """Ranks called different collectives, or the same one with other counts, dtypes, codecs, parameters or order."""


class PeerLostError(RuntimeError):
    """Ranks did not arrive, or stopped answering, within the communicator's timeout; the message names them."""


class NonFiniteError(ValueError, ArithmeticError):
    """A rank's input holds an infinity or a NaN and the call said nonfinite="raise". The communicator stays usable."""
