"""What is sent to the running product: bytes over sockets, messages over HTTP and standard input, dialogues with tasks.

A check runs in hypothesis' thread and does its work in the event loop of the world, with a deadline.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from hypothesis import strategies as st

from tests.cases.client import accept, sentinel
from tests.cases.raw import address
from tests.fuzz.answers import dialogues, right_value
from tests.fuzz.checks import STATUSES, Find, check_message, demand, strict_json
from tests.fuzz.messages import MODERN, OLDER, messages
from tests.fuzz.raw_http import connections
from tests.fuzz.target import Target
from tests.fuzz.values import Raw, filled, written
from tests.fuzz.world import World
from tests.transport.toy import Response
from workflows.kit.questions import response_problem

DEADLINE: Final = 30.0
"""Seconds for one example, on a machine that does other things too."""

QUIET: Final = 0.03
"""Seconds without a byte after which nothing more is expected on a connection that was sent rubbish."""

Check = Callable[[World, Any], Awaitable[None]]


async def exchange(world: World, sent: bytes, *, pieces: int = 1, heads: int | None = None) -> list[Response]:
    """What comes back for `sent` over a connection of its own, until it is closed or quiet, or there are `heads`
    responses.
    """
    reader, writer = await asyncio.open_connection(*address(world.client), limit=16 * 1024 * 1024)
    try:
        size = len(sent) // pieces + 1
        for at in range(0, len(sent), size):
            writer.write(sent[at : at + size])
            await asyncio.sleep(0)
        return await _responses(reader, heads, may_be_head=b"HEAD " in sent)
    finally:
        writer.transport.abort()


async def _responses(reader: asyncio.StreamReader, heads: int | None, *, may_be_head: bool) -> list[Response]:
    found = list[Response]()
    while heads is None or len(found) < heads:
        try:
            async with asyncio.timeout(QUIET if heads is None else DEADLINE):
                head = await reader.readuntil(b"\r\n\r\n")
        except (TimeoutError, ConnectionError):
            break
        except asyncio.IncompleteReadError as end:
            demand(end.partial == b"", f"an end in the middle: {end.partial!r:.200}")
            break
        found.append(await _response(reader, head, may_be_head=may_be_head))
        if may_be_head:
            break  # where its body ends, and whether it has one, cannot be told
    return found


async def _response(reader: asyncio.StreamReader, head: bytes, *, may_be_head: bool) -> Response:
    line, *rest = head.decode("latin-1").split("\r\n")
    demand(line.startswith(("HTTP/1.1 ", "HTTP/1.0 ")), f"no status line: {line!r:.200}")
    headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in rest if each)}
    status = int(line.split(" ")[1])
    demand(status in STATUSES, f"status {status}")
    if may_be_head or status in {100, 204, 304}:
        return Response(status, headers, b"")
    stream = headers.get("content-type") == "text/event-stream"
    body = b""
    try:
        async with asyncio.timeout(DEADLINE):
            if headers.get("transfer-encoding") == "chunked":
                while size := int(await reader.readuntil(b"\r\n"), 16):
                    body += (await reader.readexactly(size + 2))[:-2]
                    if stream and b'"notifications/subscriptions/acknowledged"' in body:
                        break  # which does not end by itself
                else:
                    await reader.readuntil(b"\r\n")
            elif "content-length" in headers:
                body = await reader.readexactly(int(headers["content-length"]))
            else:
                body = await reader.read()
    except asyncio.IncompleteReadError as end:
        raise Find(f"cut off after {body + end.partial!r:.200}") from None
    return Response(status, headers, body)


def check_response(response: Response, method: str | None = None, version: str | None = None) -> list[Any]:
    """Raises Find unless this is an answer of ours; returns the messages in it."""
    kind = response.headers.get("content-type", "").partition(";")[0]
    if kind == "application/json" and response.body:
        found = [strict_json(response.body)]
    elif kind == "text/event-stream":
        lines = response.body.decode("ascii").split("\n")
        found = [strict_json(line[6:].encode()) for line in lines if line.startswith("data: ")]
        demand(
            all(line == "" or line.startswith(("data: ", ":", "event: message")) for line in lines),
            f"no events: {response.body!r:.300}",
        )
    else:
        demand(len(response.body) < 1_000, f"a text of {len(response.body)} bytes")
        return []
    for message in found:
        answers = method if "method" not in message else None
        check_message(message, answers, version)
    return found


async def send_bytes(world: World, example: dict[str, Any]) -> None:
    """Whatever the bytes, every answer is one, and is the last if it says so."""
    responses = await exchange(world, example["sent"], pieces=example["pieces"])
    for number, response in enumerate(responses):
        check_response(response)
        closing = response.headers.get("connection", "").lower() == "close"
        demand(not closing or number + 1 == len(responses), "an answer after the last one")


def _right_headers(message: Any, version: str) -> list[tuple[str, str]]:
    method, params = message.get("method"), message.get("params")
    headers = [("MCP-Protocol-Version", version)] if version else []
    if isinstance(method, str) and version == MODERN:
        headers.append(("Mcp-Method", sentinel(method) if not method.isascii() or not method.isprintable() else method))
    if isinstance(params, dict):
        name = params.get("taskId") if str(method).startswith("tasks/") else params.get("name", params.get("uri"))
        if isinstance(name, str):
            headers.append(("Mcp-Name", name if name.isascii() and name.strip() == name != "" else sentinel(name)))
    return headers


_accepts: Final = st.sampled_from(
    ("application/json, text/event-stream",) * 3 + ("application/json", "text/event-stream")
)
_posts: Final = st.fixed_dictionaries({
    "message": messages,
    "version": st.sampled_from((MODERN, MODERN, MODERN, *OLDER, "")),
    "accept": _accepts,
    "session": st.sampled_from((None, None, "$state", "x")),
})  # fmt: skip


async def post_message(world: World, example: dict[str, Any]) -> None:
    """Whatever the message, it is answered by one of the kind that it asks for, with its id."""
    message = filled(example["message"], world.words)
    body = written(message)
    headers = [("Host", "localhost"), ("Content-Type", "application/json"), ("Accept", example["accept"])]
    headers.append(("Content-Length", str(len(body))))
    version = example["version"]
    if isinstance(message, dict):
        try:
            headers += _right_headers(message, version)
        except UnicodeEncodeError:  # a name that no header can carry
            return
    if example["session"] is not None:
        headers.append(("Mcp-Session-Id", str(filled(example["session"], world.words))))
    head = "POST /mcp HTTP/1.1\r\n" + "".join(
        f"{name}: {value}\r\n" for name, value in headers if "\n" not in value and "\r" not in value
    )
    responses = await exchange(world, head.encode("utf-8", "replace") + b"\r\n" + body, heads=1)
    demand(len(responses) == 1, f"{len(responses)} answers")
    method = message.get("method") if isinstance(message, dict) else None
    modern = version == MODERN and isinstance(method, str)
    found = check_response(responses[0], method if modern else None, MODERN)
    _check_id(message, found)


def _check_id(message: Any, answers: list[Any]) -> None:
    """The last message has the id that was sent, if that could be read; none has another one."""
    if not isinstance(message, dict) or not answers or "id" not in answers[-1] or "method" in answers[-1]:
        return
    sent, came = message.get("id"), answers[-1]["id"]
    if isinstance(sent, Raw):
        sent = json.loads(sent.text)
    demand(type(sent) is type(came) and sent == came, f"the id {came!r:.100} for {sent!r:.100}")


async def write_lines(world: World, example: list[Any]) -> None:
    """Whatever the lines, what comes back is messages, and the next request is answered."""
    before = len(world.pipe.messages)
    lines = [written(filled(message, world.words)).replace(b"\n", b" ") + b"\n" for message in example]
    await world.pipe.send(*lines)
    await world.pipe_alive()
    demand(not world.pipe.reading.done(), "standard output is no stream of messages any more")
    for message in world.pipe.messages[before:]:
        check_message(message)
    if before > 20_000:
        world.pipe.messages.clear()


async def answer_task(world: World, example: dict[str, Any]) -> None:
    """An answer that fits ends the task with it; one that does not is refused, and the question stays."""
    schema = example["schema"]
    request = {"method": "elicitation/create", "params": {"message": "Well?", "requestedSchema": schema}}
    task_id = await world.client.start("ask_form", {"schema": schema})
    keys = await world.client.parked(task_id)
    demand(list(keys) == ["form"], f"asked under {list(keys)}")
    for answer in [*example["answers"], _last_resort(schema)]:
        read = _as_json(answer)
        body = client_body(world, "tasks/update", task_id, {**example["extra"], "form": answer})
        if example["large"]:
            body = body[:-1] + b" " * example["large"] + b"}"
        reply = await world.client.post(body, world.client.headers("tasks/update", {"taskId": task_id}))
        demand(reply.status in STATUSES, f"status {reply.status}")
        check_message(reply.message)
        if read is None:
            demand(reply.code is not None, "what is no JSON was taken")
            continue
        problem = response_problem(request, read[0])
        if reply.code is None:
            demand(problem is None, f"taken although {problem}")
            task = await world.client.finished(task_id)
            demand(task["status"] == "completed", f"{task['status']} after an answer: {task!r:.500}")
            given = task["result"]["structuredContent"]["answers"]
            demand(json.dumps(given) == json.dumps([read[0]]), f"another answer: {given!r:.300}")
            return
        demand(problem is not None or reply.code in {-32600, -32700}, f"refused: {reply.message['error']!r:.300}")
        task = (await world.client.get(task_id)).result
        demand(
            task["status"] == "input_required" and task["inputRequests"] == keys, f"{task['status']} after a refusal"
        )
    await world.client.cancel(task_id)
    await world.client.finished(task_id)


def client_body(world: World, method: str, task_id: str, responses: dict[str, Any]) -> bytes:
    """An update whose answers may be no JSON."""
    message = world.client.body(method, {"taskId": task_id})
    message["params"]["inputResponses"] = responses
    return written(message)


def _last_resort(schema: dict[str, Any]) -> dict[str, Any]:
    return {"action": "decline", "content": {name: right_value(prop) for name, prop in schema["properties"].items()}}


def _as_json(answer: Any) -> tuple[Any] | None:
    """The value that a reader sees; None if it sees none, or one that is not certain to be read."""
    try:
        return (json.loads(written(answer).decode("utf-8")),)
    except (ValueError, RecursionError):
        return None


async def answer_call(world: World, example: dict[str, Any]) -> None:
    """The same in a retry of a call, whose state comes back as it was, or spoilt: then nothing comes of it."""
    arguments = {"schema": example["schema"]}
    asked = (await world.plain.call("ask_form", arguments)).result
    demand(asked["resultType"] == "input_required", f"{asked!r:.300}")
    for answer in [*example["answers"], _last_resort(example["schema"])]:
        state = asked["requestState"]
        spoilt = filled(f"$state~{example['spoil']}", {"$state": state}) if example["spoil"] is not None else state
        params: dict[str, Any] = {"name": "ask_form", "arguments": arguments, "requestState": spoilt}
        body = world.plain.body("tools/call", params)
        body["params"]["inputResponses"] = {**example["extra"], "form": answer}
        reply = await world.plain.post(written(body), world.plain.headers("tools/call", params))
        demand(reply.status in STATUSES, f"status {reply.status}")
        check_message(reply.message, "tools/call", MODERN)
        if spoilt != state:
            demand(reply.code is not None, "a spoilt state was taken")
            example = {**example, "spoil": None}
            continue
        if reply.code is None and reply.result["resultType"] == "complete":
            return
    final = await world.plain.call("ask_form", arguments, state=asked["requestState"], responses={"form": accept()})
    check_message(final.message, "tools/call", MODERN)


def served(world: World, loop: asyncio.AbstractEventLoop) -> list[Target]:
    """The targets that need a running world; their checks are for another thread than `loop`'s."""

    def check_of(check: Check) -> Callable[[Any], None]:
        def checked(example: Any) -> None:
            async def bounded() -> None:
                try:
                    async with asyncio.timeout(DEADLINE):
                        await check(world, example)
                except TimeoutError:
                    raise Find(f"no end within {DEADLINE} s") from None

            asyncio.run_coroutine_threadsafe(bounded(), loop).result(2 * DEADLINE)

        return checked

    return [
        Target("http-bytes", connections(), check_of(send_bytes), 400),
        Target("http-messages", _posts, check_of(post_message), 800),
        Target("stdio-lines", st.lists(messages, max_size=6), check_of(write_lines), 300),
        Target("task-answers", dialogues(), check_of(answer_task), 80),
        Target("call-answers", dialogues(), check_of(answer_call), 60),
    ]
