"""Every path of a checkpoint: nobody else makes one up."""

from __future__ import annotations

IDENTITY = "midstream.json"
LEASE = "lease"
SPARK = "spark"
PLANS = "plans"
JOURNAL = "journal"
COMMITS = "commits"
SPOOL = "spool"
FEEDS = "feeds.json"
RESTORING = "restoring.json"  # while a savepoint is made a checkpoint of: there is no identity yet
FORGOTTEN = "forgotten.json"
PUBLISHED = "published.json"
MODIFICATIONS = "modifications"
REHEARSAL = "rehearsal"
SHADOW = "shadow"
STATE = "state"


def plan_file(version: int) -> str:
    """The file of a plan version."""
    return f"{PLANS}/v{version:06}.json"


def modification_file(number: int) -> str:
    """The file of a modification."""
    return f"{MODIFICATIONS}/{number:06}.json"


def journal_file(epoch: int) -> str:
    """The file of what was decided before an epoch ran."""
    return f"{JOURNAL}/{epoch:012}.json"


def commit_file(epoch: int) -> str:
    """The file of an epoch's commit record."""
    return f"{COMMITS}/{epoch:012}.json"


def epoch_of(name: str) -> int:
    """The epoch that a journal or commit file is of."""
    return int(name.split(".")[0])


def home_of(operator: str, born: int) -> str:
    """Return where an operator keeps its state, below `STATE`: an id that is forgotten and used again gets another.

    Args:
        operator: its id.
        born: the first epoch that had it.
    """
    return f"{operator}/{born:012}"


def state_directory(home: str) -> str:
    """Return the directory of everything that an operator has stored."""
    return f"{STATE}/{home}"


def log_directory(home: str, epoch: int, run: str = "") -> str:
    """Return the directory of the change logs that one run of an epoch wrote."""
    return f"{STATE}/{home}/log/{epoch:012}" + (f"/{run}" if run else "")


def run_directory(home: str) -> str:
    """Return the directory of an operator's merged runs."""
    return f"{STATE}/{home}/run"


def backlog_directory(home: str, epoch: int | None = None, run: str = "") -> str:
    """Return the directory of the rows that one run of an epoch has put aside."""
    return f"{STATE}/{home}/backlog" + (f"/{epoch:012}/{run}" if epoch is not None else "")


def snapshot_directory(home: str, group: int | None = None) -> str:
    """Return the directory of a group's snapshots."""
    return f"{STATE}/{home}/snapshot" + (f"/{group:06}" if group is not None else "")


def spool_directory(sink: str, epoch: int, run: str = "") -> str:
    """The directory where rows of a sink wait between commit and publication."""
    return f"{SPOOL}/{sink}/{epoch:012}" + (f"/{run}" if run else "")
