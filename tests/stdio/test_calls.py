"""Many requests on one pipe: none waits for another, each is answered once, and a cancel reaches the one it names."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from tests.cases.client import FORMS, FULL, accept
from tests.cases.stack import Stack
from tests.stdio.client import OLDER, StdioClient, call, cancelled, older_call, older_request, request, stdio_client
from tests.stdio.runs import is_cancelled, run_of
from tests.support import eventually, unique
from tests.wire import Wire

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_nothing_waits_for_a_slow_call(shared: StdioClient) -> None:
    task_id = await shared.start("slow", {"seconds": 60})
    slow = call("slow", {"seconds": 4}, capabilities={}, id="slow")
    quick = [request(*random.choice(MIXED)) for _ in range(100)]  # noqa: S311
    about = [request("tasks/get", {"taskId": task_id}), request("tasks/cancel", {"taskId": task_id})]
    await shared.send(slow, *about, *quick, request("server/discover", id="last"))
    await shared.response("slow")
    order = [message["id"] for message in shared.messages if "method" not in message][1:]
    assert order[-1] == "slow"
    assert Counter(order) == Counter(message["id"] for message in [slow, *about, *quick, {"id": "last"}])
    assert (await shared.finished(task_id))["status"] == "cancelled"


MIXED: list[tuple[str, dict[str, Any]]] = [
    ("server/discover", {}),
    ("tools/list", {}),
    ("tasks/get", {"taskId": "task-unknown"}),
    ("tools/call", {"name": "unknown", "arguments": {}}),
    ("nonsense", {}),
]


async def test_five_hundred_requests_at_once_are_answered_once_each(server: StdioClient) -> None:
    await server.initialize()
    kinds = [*MIXED, ("tools/call", {"name": "echo_task", "arguments": {"x": 1}})]
    modern = [request(*kinds[number % len(kinds)], id=number) for number in range(400)]
    older = [older_request(("ping", "tools/list", "nonsense")[number % 3], id=f"{number}") for number in range(100)]
    everything = [message for five in zip(*[iter(modern)] * 4, older, strict=True) for message in five]
    server.messages.clear()
    await server.send(*everything)
    await asyncio.gather(*(server.response(message["id"], within=60) for message in everything))
    assert Counter((type(m["id"]), m["id"]) for m in server.messages) == Counter(
        (type(m["id"]), m["id"]) for m in everything
    )
    busy = [message["id"] for message in server.messages if _is_busy(message)]  # an engine that all tests share
    assert len(busy) < len(everything) / 20
    for message in server.messages:
        assert ("error" in message) == (message["id"] in [*refused(everything), *busy]), message


def _is_busy(message: dict[str, Any]) -> bool:
    data = message.get("error", {}).get("data")
    return isinstance(data, dict) and "retryAfterMs" in data


def refused(messages: list[dict[str, Any]]) -> list[Any]:
    """The ids of those that get an error."""
    unknown = ("task-unknown", "unknown")
    return [
        message["id"]
        for message in messages
        if message["method"] == "nonsense" or {message["params"].get(name) for name in ("taskId", "name")} & {*unknown}
    ]


async def test_what_needs_no_engine_is_answered_while_the_engine_hangs(stack: Stack) -> None:
    wire = Wire(stack.temporal.address)
    await wire.open()
    try:
        async with stdio_client(stack.environment, TEMPORAL_ADDRESS=wire.address) as server:
            await server.start("echo_task", {"x": 1})
            wire.flowing.clear()
            stuck = call("echo_task", {"x": 1}, id="stuck")
            await server.send(stuck, *(request("server/discover", id=number) for number in range(20)))
            await server.response("stuck")
            assert [message["id"] for message in server.messages[-21:]] == [*range(20), "stuck"]
            assert server.messages[-1]["error"]["data"] == {"retryAfterMs": 1000}
            wire.flowing.set()
            assert (await server.finished(await server.start("echo_task", {"x": 2})))["status"] == "completed"
    finally:
        await wire.cut()


async def test_an_id_that_is_in_flight_is_refused_and_the_first_gets_its_answer(shared: StdioClient) -> None:
    """Without the id: the client would take the error for the answer to its first request."""
    label = unique("twice")
    first = call("slow", {"seconds": 1, "label": label}, capabilities={}, id="same")
    await shared.send(first, call("slow", {"seconds": 1, "label": label}, capabilities={}, id="same"))
    (error,) = await shared.unaddressed(1)
    assert (error["error"]["code"], error["error"]["data"]) == (-32600, {"requestId": "same"})
    assert (await shared.response("same"))["result"]["structuredContent"] == {"steps": 1}
    again = await shared.result(call("count", {"label": label}, id="other"))
    assert again["structuredContent"] == {"count": 1}
    assert len(shared.responses("same")) == 1


async def test_an_id_may_be_used_again_once_it_was_answered(shared: StdioClient) -> None:
    for number in range(50):
        shared.messages.clear()
        assert "result" in await shared.ask(request("server/discover", id="again")), number


async def test_progress_comes_before_the_response_and_grows(shared: StdioClient) -> None:
    message = call("slow", {"seconds": 3}, capabilities={}, id="reports")
    message["params"]["_meta"]["progressToken"] = "token"
    await shared.ask(message)
    *reports, last = [message for message in shared.messages if message.get("id", "reports") == "reports"]
    assert last["id"] == "reports"
    assert reports and {report["method"] for report in reports} == {"notifications/progress"}
    assert {report["params"]["progressToken"] for report in reports} == {"token"}
    steps = [report["params"]["progress"] for report in reports]
    assert steps == sorted(set(steps))


# Cancellation of requests


@pytest.mark.parametrize(("capabilities", "delay"), [({}, 0.0), ({}, 1.0), (FULL, 0.0)])
async def test_a_cancelled_request_is_never_answered_and_leaves_no_run(
    stack: Stack, shared: StdioClient, capabilities: dict[str, Any], delay: float
) -> None:
    label = unique("cancelled")
    await shared.send(call("slow", {"seconds": 60, "label": label}, capabilities=capabilities, id=label))
    await asyncio.sleep(delay)
    await shared.send(cancelled(label))
    await shared.alive()

    async def gone() -> bool:
        run = await run_of(stack, label)
        return run is None or run == ("CANCELED", True)

    await eventually(gone, what="no run of the call")
    if delay:
        await is_cancelled(stack, label)
    assert shared.responses(label) == []


async def test_the_reason_of_a_cancel_is_logged(server: StdioClient) -> None:
    await server.send(call("slow", {"seconds": 60}, capabilities={}, id="slow"), cancelled("slow", "no longer needed"))

    async def logged() -> bool:
        return "reason='no longer needed'" in server.errors

    await eventually(logged, what="the reason in the log")


@pytest.mark.parametrize(("request_id", "others"), [(5, ["5", 5.0]), ("5", [5]), (1, [True, "1", 1.0])])
async def test_a_cancel_finds_only_the_id_of_its_type(shared: StdioClient, request_id: Any, others: list[Any]) -> None:
    await shared.send(call("slow", {"seconds": 0.5}, capabilities={}, id=request_id), *map(cancelled, others))
    assert (await shared.response(request_id))["result"]["structuredContent"] == {"steps": 1}
    await shared.send(call("slow", {"seconds": 60}, capabilities={}, id=request_id), cancelled(request_id))
    await shared.alive()
    assert len(shared.responses(request_id)) == 1


async def test_a_cancel_never_reaches_a_task_whose_handle_was_given(shared: StdioClient) -> None:
    started = await shared.ask(call("slow", {"seconds": 3}, id=5))
    task_id = started["result"]["taskId"]
    await shared.send(cancelled(5), cancelled(task_id))
    assert (await shared.finished(task_id))["status"] == "completed"


async def test_a_cancelled_call_of_an_older_client_ends_its_run(stack: Stack, server: StdioClient) -> None:
    await server.initialize(OLDER, FORMS)
    label = unique("older")
    await server.send(older_call("ask_named", {"label": label}, id=7))
    (question,) = await server.asked()
    await server.send(cancelled(7))
    await is_cancelled(stack, label)
    assert stack.side_effects(f"{label}-unwound") == 1
    await server.answer(question, accept(text="too late"))
    await server.alive()
    assert server.responses(7) == []


# Questions to older clients


@pytest.mark.parametrize("version", ["2025-06-18", OLDER])
async def test_a_question_is_asked_and_answered_on_the_pipe_of_its_call(server: StdioClient, version: str) -> None:
    await server.initialize(version, FORMS)
    older = older_call("ask", {"n": 2, "mode": "parallel"}, id=1)
    modern = call("ask", {"n": 1}, capabilities=FORMS, id=2)
    await server.send(older, modern)
    questions = await server.asked(2)
    asked = (await server.response(2))["result"]
    assert asked["resultType"] == "input_required"
    for question in questions:
        assert question["method"] == "elicitation/create"
        await server.answer(question, accept(text=question["params"]["message"]))
    answers = (await server.response(1))["result"]["structuredContent"]["answers"]
    assert answers == [[f"Question {number}"] * 2 for number in range(2)]
    (key,) = asked["inputRequests"]
    retry = call("ask", {"n": 1}, capabilities=FORMS)
    retry["params"] |= {"requestState": asked["requestState"], "inputResponses": {key: accept(text="modern")}}
    assert (await server.result(retry))["structuredContent"]["answers"] == [["Question 0", "modern"]]


async def test_an_error_for_an_answer_counts_as_cancel(server: StdioClient) -> None:
    await server.initialize(OLDER, FORMS)
    await server.send(older_call("profile", id=1))
    (question,) = await server.asked()
    await server.send({"jsonrpc": "2.0", "id": question["id"], "error": {"code": -1, "message": "no"}})
    assert (await server.response(1))["result"]["structuredContent"] == {"action": "cancel"}


async def test_an_answer_to_nothing_is_logged_and_not_answered(server: StdioClient) -> None:
    await server.initialize(OLDER, FORMS)
    await server.send({"jsonrpc": "2.0", "id": "made-up", "result": {}})

    async def logged() -> bool:
        return "stdio.answer_lost id='made-up'" in server.errors

    await eventually(logged, what="the lost answer in the log")
    await server.alive()
    assert len(server.messages) == 2
