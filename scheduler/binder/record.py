"""The words of the binder's machine: how far a gang is, what can happen to it, and what is to be done.

Only values live here. A record keeps one byte a member, so that a step on a gang of 10,000 copies 10 kB and nothing
else. Members are named by their position in the placement.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import TypeAlias

import msgspec

from scheduler.model.bindrequest import BindFailure, GangOutcome
from scheduler.model.decisions import Place


class Phase(StrEnum):
    """Where a gang is. The last three are ends."""

    QUEUED = "Queued"
    CHECKING = "Checking"
    AWAITING_VICTIMS = "AwaitingVictims"
    PREPARING = "Preparing"
    BINDING = "Binding"
    CONFIRMING = "Confirming"
    UNWINDING = "Unwinding"
    UNDOING = "Undoing"
    BOUND = "Bound"
    FAILED = "Failed"
    UNWOUND = "Unwound"


ENDS = frozenset({Phase.BOUND, Phase.FAILED, Phase.UNWOUND})


class Member(IntEnum):
    """Where a member is; fits a byte.

    IDLE: nothing was asked of it yet. ASKED: its bind was ordered and not answered. DOUBTFUL: the pod is being read,
    because nobody knows. BOUND: the server said so. CONFIRMED: the pod itself says so. TAKEN: it was on its node before
    this request began, by whomever; counts and is never unwound. VANISHED: it was bound and has since ended or gone; it
    counts, because losing a running member is the business of repair. LOST: it is not bound and will not be.
    DELETING: its deletion was ordered. UNWOUND: bound by this request and deleted again. KEPT: it had started before it
    could be unwound.
    """

    IDLE = 0
    ASKED = 1
    DOUBTFUL = 2
    BOUND = 3
    CONFIRMED = 4
    TAKEN = 5
    VANISHED = 6
    LOST = 7
    DELETING = 8
    UNWOUND = 9
    KEPT = 10


class Fate(IntEnum):
    """Where a victim is; fits a byte.

    STAYS: nothing was asked of it yet. MARKING: the condition that says why it goes was ordered. EVICTING: its eviction
    or deletion was ordered. DOUBTFUL: it is being read, because nobody knows. SIGNING: its eviction was accepted, and
    the condition was ordered after it, because an eviction writes its own. LEAVING: it was accepted, or it was going
    anyway. GONE: the watch says that it is gone or has ended.
    """

    STAYS = 0
    MARKING = 1
    EVICTING = 2
    DOUBTFUL = 3
    SIGNING = 4
    LEAVING = 5
    GONE = 6


class Verb(StrEnum):
    """What was asked of the API server about one pod: the first three about a member, the others about a victim."""

    BIND = "bind"
    READ = "read"
    DELETE = "delete"
    MARK = "mark"
    EVICT = "evict"
    REMOVE = "remove"
    LOOK = "look"


ABOUT_VICTIMS = frozenset({Verb.MARK, Verb.EVICT, Verb.REMOVE, Verb.LOOK})
READS = frozenset({Verb.READ, Verb.LOOK})


class Kind(StrEnum):
    """What an answer means, whatever its status code was.

    DONE: it is so. DOUBT: unknown, or a conflict: the pod must be read. REFUSED: no, and asking again changes nothing.
    RETRY: not now. NOT_SENT: the request never left. SEEN: a reading is attached.
    """

    DONE = "done"
    DOUBT = "doubt"
    REFUSED = "refused"
    RETRY = "retry"
    NOT_SENT = "not-sent"
    SEEN = "seen"


@dataclass(frozen=True, slots=True)
class Reading:
    """A pod as the API server has it. `gone`: no pod of that uid. `version`: its resourceVersion."""

    gone: bool = False
    node: str = ""
    started: bool = False
    ended: bool = False
    deleting: bool = False
    gated: bool = False
    version: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one request. `cause` is a stable CamelCase word; `after` the seconds that the server asked for."""

    verb: Verb
    kind: Kind
    cause: str = ""
    permanent: bool = False
    after: float = 0.0
    reading: Reading | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """A member that is not bound, and why; about: the claim that it is about ("" = none)."""

    member: int
    cause: str
    permanent: bool = False
    about: str = ""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. `first_wait` doubles up to `last_wait` between tries of one member.

    `settle`: how long a bind that timed out may still land; `straggle`: the same for one that a process sent before it
    died. `confirm`: how long the watch may lag before a pod is read. `bind`: how long binds may take once volumes are
    bound (the deadline of the request allows for both).
    """

    first_wait: float = 0.1
    last_wait: float = 5.0
    settle: float = 5.0
    straggle: float = 15.0
    confirm: float = 5.0
    bind: float = 120.0


DEFAULT_TIMING = Timing()


class Record(msgspec.Struct, frozen=True, gc=False):
    """Everything that is known of one gang of a request. A struct, because a step replaces it several times a pod.

    `resumed`: the request was found when the binder began, so members on their nodes were bound by it. `doubted` are
    members whose bind timed out, or may have been sent by a process that died: it may land until `doubted_until`.
    `trouble` is the cause of the last try that was worth repeating. `confirm_at`: when pods that the watch has not
    shown are read. `fates` and `efforts` are of the victims, as `states` and `tries` of the members; `covered` are the
    victims under a disruption budget; `cleared`: there are none any more.
    """

    index: int
    place: Place
    deadline: float
    resumed: bool = False
    timing: Timing = DEFAULT_TIMING
    phase: Phase = Phase.QUEUED
    states: bytes = b""
    tries: bytes = b""
    failures: tuple[Failure, ...] = ()
    doubted: frozenset[int] = frozenset()
    doubted_until: float = 0.0
    prepared: bool = False
    expired: bool = False
    trouble: str = ""
    confirm_at: float = 0.0
    fates: bytes = b""
    efforts: bytes = b""
    covered: frozenset[int] = frozenset()
    cleared: bool = False
    ending: Phase = Phase.FAILED
    story: tuple[str, ...] = ()

    @property
    def ended(self) -> bool:
        """Whether nothing is left to do."""
        return self.phase in ENDS

    def count(self, *members: Member) -> int:
        """Return how many members are in one of these states."""
        count = self.states.count
        return sum([count(member) for member in members])

    @property
    def reached(self) -> int:
        """Members that count toward the minimum."""
        return self.count(Member.BOUND, Member.CONFIRMED, Member.TAKEN, Member.VANISHED)

    def outcome(self) -> GangOutcome:
        """Return what the request's status says of the gang: a failure names the pod and the node it was for."""
        kept = self.reached if self.phase is Phase.BOUND else self.count(Member.KEPT, Member.TAKEN)
        return GangOutcome(
            index=self.index,
            phase=self.phase.value,
            bound=kept,
            failures=tuple(
                BindFailure(
                    uid=self.place.assignments[failure.member].uid,
                    pod=self.place.assignments[failure.member].pod,
                    node=self.place.assignments[failure.member].node,
                    cause=failure.cause,
                    permanent=failure.permanent,
                    about=failure.about,
                )
                for failure in sorted(self.failures, key=lambda failure: failure.member)
            ),
        )


# -- events ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """It is the gang's turn."""

    now: float


@dataclass(frozen=True, slots=True)
class Refuse:
    """The request may not be performed (its epoch is older than the leader's, or it is malformed)."""

    cause: str


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Somebody deleted the request."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Pods and nodes were looked at. `present`: members alive on their node already; `ended`: those that ran there.

    Of the victims: those that are gone, those that are going, and those that a disruption budget covers.
    """

    now: float
    failures: tuple[Failure, ...] = ()
    present: tuple[int, ...] = ()
    ended: tuple[int, ...] = ()
    gone: tuple[int, ...] = ()
    leaving: tuple[int, ...] = ()
    covered: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class VictimsSeen:
    """What the watch showed of victims: those that are gone or have ended, and those that are being deleted."""

    now: float
    gone: tuple[int, ...] = ()
    leaving: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class VictimsAnswered:
    """Answers of the API server, by victim."""

    now: float
    answers: tuple[tuple[int, Answer], ...]


@dataclass(frozen=True, slots=True)
class Prepared:
    """The pre-steps ran for every member; those in `failures` are not ready."""

    now: float
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True, slots=True)
class Undone:
    """The preparation of the members that asked for it was undone."""


@dataclass(frozen=True, slots=True)
class Answered:
    """Answers of the API server, by member."""

    now: float
    answers: tuple[tuple[int, Answer], ...]


@dataclass(frozen=True, slots=True)
class Watched:
    """What the watch showed: members with the node that their pod is on, and members whose pod is gone.

    `barred`: members that cannot be bound there any more; told while victims are awaited, for whom nobody shall go in
    vain. A bind itself finds out.
    """

    now: float
    on: tuple[tuple[int, str], ...] = ()
    gone: tuple[int, ...] = ()
    barred: tuple[Failure, ...] = ()


@dataclass(frozen=True, slots=True)
class Woke:
    """A time that the machine asked for has come."""

    now: float


@dataclass(frozen=True, slots=True)
class Extend:
    """The API server was away; the gang gets this deadline instead."""

    deadline: float


Event: TypeAlias = (
    Start
    | Refuse
    | Withdraw
    | Checked
    | VictimsSeen
    | VictimsAnswered
    | Prepared
    | Undone
    | Answered
    | Watched
    | Woke
    | Extend
)


# -- effects ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Check:
    """Look at pods and nodes as the caches have them; answer with `Checked`.

    `room`: whether the nodes must have room now (they cannot while victims are still there).
    """

    room: bool = True


@dataclass(frozen=True, slots=True)
class AwaitVictims:
    """Say `VictimsSeen` when these victims are going or gone, and `Watched` when their gang cannot be bound any more.

    Until the gang leaves its phase, that is.
    """

    victims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Clear:
    """Send one request for each victim, not before `at` (0: at once); answer each with `VictimsAnswered`.

    What was not sent when the victim or the gang has moved on is not sent any more, and not answered.
    """

    verb: Verb
    victims: tuple[int, ...]
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Prepare:
    """Run the pre-steps for these members; answer with `Prepared`."""

    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Undo:
    """Undo the pre-steps of these members; answer with `Undone`."""

    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """Send one request for each member, not before `at` (0: at once); answer each with `Answered`.

    `versions` (for deletions): the resourceVersion that each pod must still have.
    """

    verb: Verb
    members: tuple[int, ...]
    at: float = 0.0
    versions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recall:
    """Take back the binds of this gang that have not been sent; answer them with NOT_SENT."""


@dataclass(frozen=True, slots=True)
class Wake:
    """Say `Woke` at this time."""

    at: float


@dataclass(frozen=True, slots=True)
class Finish:
    """The gang has ended; its record holds the outcome."""


Effect: TypeAlias = Check | AwaitVictims | Clear | Prepare | Undo | Ask | Recall | Wake | Finish
