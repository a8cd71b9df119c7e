"""The store contract: every way in which the layers above change or read durable state.

A verb is a value. `Store.submit` puts it into the open batch; one batch is one transaction; `done`
is called on the loop, after COMMIT, in submission order, with the verb's result or the exception
that refused it. The store never decodes `bytes` fields: arguments, results, errors and options are
opaque to it. Times are wall-clock seconds since the epoch. A run is addressed by its row number
(`run`) by workers, by its id by clients. What is said and answered is plain data, which cannot be
part of a cycle: the garbage collector need not look at it.
"""

from stepwell_queue.contract.copies import ImportRuns as ImportRuns
from stepwell_queue.contract.copies import RunCopy as RunCopy
from stepwell_queue.contract.dead_letters import DeadLetterRow as DeadLetterRow
from stepwell_queue.contract.dead_letters import ListDeadLetters as ListDeadLetters
from stepwell_queue.contract.dead_letters import PurgeDeadLetters as PurgeDeadLetters
from stepwell_queue.contract.dead_letters import Requeue as Requeue
from stepwell_queue.contract.queries import AnyQuery as AnyQuery
from stepwell_queue.contract.queries import Query as Query
from stepwell_queue.contract.queues import CountEnds as CountEnds
from stepwell_queue.contract.queues import CountRuns as CountRuns
from stepwell_queue.contract.queues import EndCount as EndCount
from stepwell_queue.contract.queues import FindRunning as FindRunning
from stepwell_queue.contract.queues import KeptSince as KeptSince
from stepwell_queue.contract.queues import ListQueues as ListQueues
from stepwell_queue.contract.queues import ListSettings as ListSettings
from stepwell_queue.contract.queues import NamedSettings as NamedSettings
from stepwell_queue.contract.queues import PauseQueue as PauseQueue
from stepwell_queue.contract.queues import PurgeQueue as PurgeQueue
from stepwell_queue.contract.queues import QueueRow as QueueRow
from stepwell_queue.contract.queues import QueueSettings as QueueSettings
from stepwell_queue.contract.queues import RateLimit as RateLimit
from stepwell_queue.contract.queues import ResumeQueue as ResumeQueue
from stepwell_queue.contract.queues import RunCount as RunCount
from stepwell_queue.contract.queues import SetQueue as SetQueue
from stepwell_queue.contract.reports import LogLine as LogLine
from stepwell_queue.contract.reports import LogRow as LogRow
from stepwell_queue.contract.reports import ProgressRow as ProgressRow
from stepwell_queue.contract.reports import ReadLog as ReadLog
from stepwell_queue.contract.reports import ReadProgress as ReadProgress
from stepwell_queue.contract.reports import Report as Report
from stepwell_queue.contract.rows import Claimed as Claimed
from stepwell_queue.contract.rows import InboxRow as InboxRow
from stepwell_queue.contract.rows import NewRun as NewRun
from stepwell_queue.contract.rows import OpenOp as OpenOp
from stepwell_queue.contract.rows import Record as Record
from stepwell_queue.contract.rows import Terms as Terms
from stepwell_queue.contract.rows import Time as Time
from stepwell_queue.contract.rows import born as born
from stepwell_queue.contract.schedules import DropSchedule as DropSchedule
from stepwell_queue.contract.schedules import DueSchedules as DueSchedules
from stepwell_queue.contract.schedules import FindDue as FindDue
from stepwell_queue.contract.schedules import ListSchedules as ListSchedules
from stepwell_queue.contract.schedules import PauseSchedule as PauseSchedule
from stepwell_queue.contract.schedules import PutSchedule as PutSchedule
from stepwell_queue.contract.schedules import ResumeSchedule as ResumeSchedule
from stepwell_queue.contract.schedules import RunSchedule as RunSchedule
from stepwell_queue.contract.schedules import ScheduleHistory as ScheduleHistory
from stepwell_queue.contract.schedules import ScheduleRow as ScheduleRow
from stepwell_queue.contract.schedules import Tick as Tick
from stepwell_queue.contract.schedules import TickRow as TickRow
from stepwell_queue.contract.store import Session as Session
from stepwell_queue.contract.store import SessionEvents as SessionEvents
from stepwell_queue.contract.store import Store as Store
from stepwell_queue.contract.verbs import AnyVerb as AnyVerb
from stepwell_queue.contract.verbs import Append as Append
from stepwell_queue.contract.verbs import Ask as Ask
from stepwell_queue.contract.verbs import CancelRun as CancelRun
from stepwell_queue.contract.verbs import Claim as Claim
from stepwell_queue.contract.verbs import ClaimResult as ClaimResult
from stepwell_queue.contract.verbs import Finish as Finish
from stepwell_queue.contract.verbs import Park as Park
from stepwell_queue.contract.verbs import Prune as Prune
from stepwell_queue.contract.verbs import PutAside as PutAside
from stepwell_queue.contract.verbs import Reschedule as Reschedule
from stepwell_queue.contract.verbs import SayState as SayState
from stepwell_queue.contract.verbs import SendSignal as SendSignal
from stepwell_queue.contract.verbs import Settle as Settle
from stepwell_queue.contract.verbs import Start as Start
from stepwell_queue.contract.verbs import Started as Started
from stepwell_queue.contract.verbs import StartMany as StartMany
from stepwell_queue.contract.verbs import Terminal as Terminal
from stepwell_queue.contract.verbs import Verb as Verb
from stepwell_queue.contract.views import AuditRow as AuditRow
from stepwell_queue.contract.views import Ended as Ended
from stepwell_queue.contract.views import FailedAttempt as FailedAttempt
from stepwell_queue.contract.views import Finding as Finding
from stepwell_queue.contract.views import Hello as Hello
from stepwell_queue.contract.views import History as History
from stepwell_queue.contract.views import Identity as Identity
from stepwell_queue.contract.views import RunFilter as RunFilter
from stepwell_queue.contract.views import RunInfo as RunInfo
from stepwell_queue.contract.views import WorkerInfo as WorkerInfo
from stepwell_queue.words import Hold as Hold
from stepwell_queue.words import InboxKind as InboxKind
from stepwell_queue.words import Kind as Kind
from stepwell_queue.words import Overlap as Overlap
from stepwell_queue.words import Phase as Phase
from stepwell_queue.words import RecordKind as RecordKind
from stepwell_queue.words import Rollback as Rollback
from stepwell_queue.words import Status as Status
from stepwell_queue.words import WorkerState as WorkerState
