"""Rounds planned and learned of by the compiled library. Structures mirror `beliefs.h`,
`allocation.h` and `rounds.h` field by field."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_double, c_int, c_int32, c_int64, c_uint8, c_void_p
from functools import cache
from typing import Any

from outdraft.engine.confidence import GRADES
from outdraft.engine.native.library import library
from outdraft.errors import OptionError

BANDS, POSITIONS, PROPOSERS, LOOKUPS = 5, 16, 4, 2

_BY_BAND = (c_double * POSITIONS) * BANDS
_BY_GRADE = ((c_double * GRADES) * POSITIONS) * BANDS
_GRADES = c_uint8 * POSITIONS


class CKind(Structure):
    _fields_ = [
        ("first", c_double),
        ("tried", _BY_BAND),
        ("refused", _BY_BAND),
        ("hazards", _BY_BAND),
        ("seen", _BY_GRADE),
        ("shares", _BY_GRADE),
        ("is_graded", c_int32),
    ]


class CFrailty(Structure):
    _fields_ = [
        ("refused", c_double),
        ("expected", c_double),
        ("mean", c_double),
        ("last", c_int64),
        ("rounds", c_int64),
    ]


class CText(Structure):
    _fields_ = [
        ("frailties", CFrailty * PROPOSERS),
        ("tokens", c_double),
        ("seconds", c_double),
        ("lag", c_double),
        ("written", c_double),
        ("seen", c_double * GRADES),
        ("usual", c_double * GRADES),
        ("due", c_int64),
        ("gap", c_int64),
        ("band", c_int32),
        ("is_off", c_int32),
        ("is_probed", c_int32),
    ]


class CRound(Structure):
    _fields_ = [
        ("grades", c_void_p),
        ("text", c_int32),
        ("kind", c_int32),
        ("proposer", c_int32),
        ("drafted", c_int32),
        ("accepted", c_int32),
        ("is_probe", c_int32),
    ]


class CPrices(Structure):
    _fields_ = [
        ("overhead", c_double),
        ("per_depth", c_double),
        ("per_token", c_double),
        ("catch_up", c_double),
    ]


class COffers(Structure):
    _fields_ = [
        ("gains", c_void_p),
        ("values", c_void_p),
        ("verification", c_void_p),
        ("is_drafted", c_void_p),
        ("prices", CPrices),
        ("pace", c_double),
        ("most_seconds", c_double),
        ("num", c_int32),
        ("width", c_int32),
        ("memory", c_void_p),
    ]


class CLookup(Structure):
    _fields_ = [
        ("proposer", c_int32),
        ("kind", c_int32),
        ("length", c_int32),
    ]


class CCandidate(Structure):
    _fields_ = [
        ("context", c_double),
        ("lateness", c_double),
        ("text", c_int32),
        ("room", c_int32),
        ("behind", c_int32),
        ("left", c_int32),
        ("num_lookups", c_int32),
        ("lookups", CLookup * LOOKUPS),
        ("num_drafted", c_int32),
        ("grades", _GRADES),
    ]


class CWish(Structure):
    _fields_ = [
        ("floor", c_double),
        ("chances", c_double * GRADES),
        ("k", c_int32),
    ]


class CPlan(Structure):
    _fields_ = [
        ("expected", c_double),
        ("weight", c_double),
        ("text", c_int32),
        ("proposer", c_int32),
        ("kind", c_int32),
        ("k", c_int32),
        ("why", c_int32),
        ("behind", c_int32),
        ("num_drafted", c_int32),
        ("grades", _GRADES),
    ]


class COutcome(Structure):
    _fields_ = [
        ("plan", c_int32),
        ("proposer", c_int32),
        ("drafted", c_int32),
        ("accepted", c_int32),
    ]


class CController(Structure):
    _fields_ = [
        ("kinds", POINTER(CKind)),
        ("texts", POINTER(CText)),
        ("base", c_void_p),
        ("factors", c_void_p),
        ("per_sequence", c_double),
        ("per_read", c_double),
        ("per_row_read", c_double),
        ("shortest", c_double),
        ("prices", CPrices),
        ("memory", c_void_p),
        ("average", c_double),
        ("reading", c_double),
        ("writing", c_double),
        ("money", c_double),
        ("now", c_int64),
        ("num_kinds", c_int32),
        ("draft", c_int32),
        ("draft_kind", c_int32),
        ("max_k", c_int32),
        ("max_lookup", c_int32),
        ("is_held_back", c_int32),
        ("plain", c_double),
        ("without", c_double),
        ("context", c_double),
        ("drafting", c_double),
        ("num", c_int32),
        ("tokens", c_int32),
        ("width", c_int32),
        ("is_limited", c_int32),
    ]


class CSettled(Structure):
    _fields_ = [
        ("verification", c_double),
        ("drafting", c_double),
        ("catch_up", c_double),
        ("emitted", c_double),
        ("tokens", c_int32),
        ("drafts", c_int32),
    ]


@cache
def rounds_library() -> Any:
    lib = library()
    if lib is None:
        raise OptionError(
            "method auto needs the engine's compiled library, which is not here or turned off "
            "($OUTDRAFT_NO_NATIVE); run `make native`, or choose another method"
        )
    controller, plans = POINTER(CController), POINTER(CPlan)
    lib.kind_begin.argtypes = [POINTER(CKind), c_double, c_int32]
    lib.text_begin.argtypes = [POINTER(CText), c_int32]
    belief = [POINTER(CKind), POINTER(CText), c_int32]
    lib.expect_gains.argtypes = [*belief, c_void_p, c_int32, c_void_p]
    lib.expect_worth.argtypes = [*belief, c_int32, c_double, c_double, c_void_p, c_void_p]
    lib.learn_grades.argtypes = [POINTER(CKind), POINTER(CText), c_void_p, c_int32]
    lib.work_out_shares.argtypes = [POINTER(CKind)]
    lib.learn_rounds.argtypes = [
        POINTER(CKind), c_int32, POINTER(CText), POINTER(CRound), c_int32, c_int64,
    ]  # fmt: skip
    lib.allocate_drafts.argtypes = [POINTER(COffers), c_void_p, POINTER(c_double)]
    lib.step_seconds.argtypes = [controller, c_int]
    lib.step_seconds.restype = c_double
    lib.memory_of_round.argtypes = [controller, POINTER(CCandidate), c_int32]
    lib.memory_of_round.restype = c_int64
    lib.wish_drafts.argtypes = [
        controller, POINTER(CCandidate), c_int32, c_int32, POINTER(CWish),
    ]  # fmt: skip
    lib.plan_round.argtypes = [controller, POINTER(CCandidate), plans]
    lib.learn_round.argtypes = [
        controller, plans, POINTER(COutcome), c_int32, c_double, POINTER(CRound),
        POINTER(CSettled),
    ]  # fmt: skip
    for each in (lib.kind_begin, lib.text_begin, lib.expect_gains, lib.expect_worth,
                 lib.learn_grades, lib.work_out_shares, lib.learn_rounds, lib.wish_drafts,
                 lib.plan_round, lib.learn_round):  # fmt: skip
        each.restype = None
    return lib


def grown(array: Any, size: int) -> Any:
    """A ctypes array with what is in another one, for at least so many."""
    if size <= len(array):
        return array
    larger = (array._type_ * max(size, 2 * len(array)))()
    ctypes.memmove(larger, array, ctypes.sizeof(array))
    return larger
