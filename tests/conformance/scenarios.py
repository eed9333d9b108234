"""What each scenario of the suite's two requirement sets has to report here, and which are left out, and why.

The sets themselves are the suite's (`requirements/*.yaml`); a scenario that they have and this table does not, or the
other way round, fails the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MODERN: Final = "2026-07-28"
OLDER: Final = "2025-11-25"


@dataclass(frozen=True)
class Scenario:
    """A scenario of one revision, the least number of rows that it reports when it really ran, and the checks that it
    may skip. One with `left_out`, the reason, fails, and only there.
    """

    name: str
    rows: int
    revision: str = MODERN
    may_skip: frozenset[str] = frozenset()
    left_out: str | None = None

    @property
    def on_the_newest_wire(self) -> bool:
        """Whether it belongs to an extension: the suite runs such ones only if no revision is asked for."""
        return self.name.startswith("tasks-")


TERMINATION: Final = frozenset({"server-session-delete-accepted", "server-session-terminated-returns-404"})
"""A session is what its sealed id says, so there is nothing to end: DELETE is 405, as the revision allows."""

NO_LOG_LEVEL: Final = "logging/setLevel sets a level for the requests that follow: memory of a session"
NO_STANDING_STREAM: Final = "updates would have to be pushed on a standing GET stream, to a session that is remembered"

_EVERY_REVISION: Final = {
    "completion-complete": 2,
    "dns-rebinding-protection": 2,
    "json-schema-2020-12": 8,
    "prompts-get-embedded-resource": 2,
    "prompts-get-simple": 2,
    "prompts-get-with-args": 2,
    "prompts-get-with-image": 2,
    "prompts-list": 2,
    "resources-list": 2,
    "resources-read-binary": 2,
    "resources-read-text": 2,
    "resources-templates-read": 2,
    "server-sse-multiple-streams": 2,
    "tools-call-audio": 2,
    "tools-call-embedded-resource": 2,
    "tools-call-error": 2,
    "tools-call-image": 2,
    "tools-call-mixed-content": 2,
    "tools-call-simple-text": 2,
    "tools-call-with-progress": 2,
}

SCENARIOS: Final = (
    Scenario("server-stateless", 30),
    Scenario("tools-list", 4),
    *(Scenario(name, rows) for name, rows in _EVERY_REVISION.items()),
    Scenario("sep-2164-resource-not-found", 4),
    Scenario("caching", 8),
    Scenario("http-header-validation", 14),
    Scenario("http-custom-header-server-validation", 10),
    Scenario("input-required-result-basic-elicitation", 3),
    Scenario("input-required-result-basic-list-roots", 3),
    Scenario("input-required-result-basic-sampling", 3),
    Scenario("input-required-result-capability-check", 2),
    Scenario("input-required-result-ignore-extra-params", 2),
    Scenario("input-required-result-missing-input-response", 2),
    Scenario("input-required-result-multi-round", 4),
    Scenario("input-required-result-multiple-input-requests", 3),
    Scenario("input-required-result-non-tool-request", 3),
    Scenario("input-required-result-request-state", 3),
    Scenario("input-required-result-result-type", 2),
    Scenario("input-required-result-tampered-state", 2),
    Scenario("input-required-result-unsupported-methods", 2),
    Scenario("input-required-result-validate-input", 3),
    Scenario("tasks-lifecycle", 9),
    Scenario("tasks-capability-negotiation", 5),
    Scenario("tasks-wire-fields", 4),
    Scenario("tasks-request-state-removal", 3),
    Scenario("tasks-mrtr-input", 4),
    Scenario("tasks-request-headers", 5),
    Scenario("tasks-dispatch-and-envelope", 9),
    Scenario("tasks-required-task-error", 3),
    Scenario("tasks-mrtr-composition", 2),
    # a stub of the suite, which sends nothing
    Scenario("tasks-status-notifications", 1, may_skip=frozenset({"tasks-status-notifications"})),
    Scenario("server-initialize", 3, OLDER),
    Scenario("ping", 2, OLDER),
    Scenario("tools-list", 3, OLDER),
    *(Scenario(name, rows, OLDER) for name, rows in _EVERY_REVISION.items()),
    Scenario("tools-call-sampling", 2, OLDER),
    Scenario("tools-call-elicitation", 2, OLDER),
    Scenario("elicitation-sep1034-defaults", 6, OLDER),
    Scenario("elicitation-sep1330-enums", 6, OLDER),
    Scenario("server-session-lifecycle", 3, OLDER, TERMINATION),
    Scenario("logging-set-level", 2, OLDER, left_out=NO_LOG_LEVEL),
    Scenario("tools-call-with-logging", 2, OLDER, left_out=NO_LOG_LEVEL),
    Scenario("resources-subscribe", 2, OLDER, left_out=NO_STANDING_STREAM),
    Scenario("resources-unsubscribe", 2, OLDER, left_out=NO_STANDING_STREAM),
    Scenario("server-sse-polling", 3, OLDER, left_out="a stream that broke off would be resumed with GET"),
)
