"""Which frames go where, when. A schedule has a generator for each collective that it can carry out."""
from __future__ import annotations

_SCHEDULES: dict[str, Schedule] = {}


class Schedule:
    """Base of all schedules: a method named like a collective carries it out, given a `Call`.

    name      what `schedule=` and `Communicator.last` say; a class without one is a base
    ordered   it uses MPI's own collectives, which all ranks must start in the same order
    algebra   of the codecs whose reductions it carries out
    takes_sparse   whether x may be a sparse array
    """

    name: str
    ordered = False
    algebra = "decode"
    takes_sparse = False

    def __init_subclass__(cls):
        if "name" in vars(cls):
            _SCHEDULES[cls.name] = cls()

    def can(self, plan) -> bool:
        """Whether this schedule carries out the plan's collective for its codec, op and dtype."""
        return hasattr(self, plan.collective) and (plan.op is None or self.reduces(plan))

    def reduces(self, plan) -> bool:
        """Whether it adds wires of the plan's codec up, or finds their extreme: only decoded arrays have one."""
        return plan.codec.algebra == self.algebra and (self.algebra == "decode" or plan.op in ("sum", "mean"))

    def cost(self, plan, size: int) -> float:
        """Seconds that the plan's call would take, roughly: of the schedules that can, the cheapest is chosen.

        A function of what all ranks know alike (never of a rank or of a measurement), so that all choose the same.
        """
        raise NotImplementedError


def schedules() -> tuple[str, ...]:
    """The names that `schedule=` takes beside "auto"."""
    return tuple(_SCHEDULES)


def choose(plan, size: int, name: str) -> Schedule:
    """The schedule for a plan: the one named, or for "auto" the cheapest. Raises ValueError if it cannot carry the plan out."""
    if name != "auto" and name not in _SCHEDULES:
        raise ValueError(f"no schedule {name!r}; there are auto, {', '.join(_SCHEDULES)}")
    able = {s.name: s for s in _SCHEDULES.values() if s.can(plan)}
    if name in able:
        return able[name]
    if name != "auto" or not able:
        raise ValueError(f"{plan.description} does not go by schedule {name!r}; it can by {', '.join(able) or 'none'}")
    return min(able.values(), key=lambda s: s.cost(plan, size))


# Cost model of one transfer: seconds a message, seconds an encoded byte moved, seconds an uncompressed byte encoded or decoded.
# Measured between two processes of one machine (perf/results/); a slower network weighs the bytes more and changes no choice below.
MESSAGE, BYTE, CODED = 4e-6, 2e-10, 1.5e-10
