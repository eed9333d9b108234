"""One POST, one answer: the order of refusals, statuses and codes, and what reaches the handlers."""

from __future__ import annotations

import base64
import json
import logging
from typing import Any

import pytest

from bridge.auth import static_bearer
from bridge.envelope import SERVED_VERSIONS
from bridge.http import HttpSettings
from bridge.identity import LOCAL
from tests.transport.toy import META, VERSION, Served, call, discover, get_task, rpc, serving

CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
PROTOCOL = "io.modelcontextprotocol/protocolVersion"


async def test_a_request_is_answered_with_one_json_object(served: Served) -> None:
    response = await served.post(discover(id="d1"))
    assert (response.status, response.headers["content-type"]) == (200, "application/json")
    assert response.json["id"] == "d1"
    assert response.json["result"]["supportedVersions"] == [VERSION]


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "PUT", "PATCH", "OPTIONS", "TRACE"])
async def test_only_post_is_allowed(served: Served, method: str) -> None:
    async with served.connect() as wire:
        await wire.send(wire.head({"Accept": "text/event-stream", "Mcp-Session-Id": "x"}, f"{method} /mcp HTTP/1.1"))
        response = await wire.response(no_body=method == "HEAD")
        assert (response.status, response.headers["allow"]) == (405, "POST")
        assert not any(name.startswith("access-control") for name in response.headers)


@pytest.mark.parametrize("path", ["/", "/mcp/", "/mcpx", "/mcp/x", "//mcp", "/MCP", "/mcp%2F"])
async def test_other_paths_are_not_found_and_never_redirected(served: Served, path: str) -> None:
    async with served.connect() as wire:
        await wire.send(wire.request(discover(), line=f"POST {path} HTTP/1.1"))
        assert (await wire.response()).status == 404


async def test_a_query_and_forwarding_headers_change_nothing(served: Served) -> None:
    async with served.connect() as wire:
        headers = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil.example"}
        await wire.send(wire.request(discover(), headers, line="POST /mcp?x=1 HTTP/1.1"))
        assert (await wire.response()).status == 200


async def test_session_and_event_ids_are_ignored_and_not_echoed(served: Served) -> None:
    response = await served.post(discover(), {"Mcp-Session-Id": "x", "Last-Event-ID": "5"})
    assert response.status == 200
    assert "mcp-session-id" not in response.headers


@pytest.mark.parametrize("method", ["POST", "GET", "OPTIONS"])
@pytest.mark.parametrize("origin", ["null", "", "http://localhost.evil.example", "file://"])
async def test_a_foreign_origin_is_forbidden_on_every_method(served: Served, method: str, origin: str) -> None:
    async with served.connect() as wire:
        await wire.send(wire.request(call("echo"), {"Origin": origin}, line=f"{method} /mcp HTTP/1.1"))
        response = await wire.response()
        assert response.error == (403, -32600, "absent")
        assert not any(name.startswith("access-control") for name in response.headers)
    assert served.toy.started == []


async def test_two_origins_are_forbidden(served: Served) -> None:
    async with served.connect() as wire:
        await wire.post(discover(), {"Origin": "http://localhost\r\nOrigin: http://localhost"})
        assert (await wire.response()).status == 403


@pytest.mark.parametrize("origin", ["http://localhost:1", "http://127.0.0.1", "http://[::1]:9"])
async def test_a_local_origin_is_served(served: Served, origin: str) -> None:
    assert (await served.post(discover(), {"Origin": origin})).status == 200


async def test_a_foreign_host_is_forbidden_on_a_loopback_listener(served: Served) -> None:
    assert (await served.post(discover(), {"Host": "evil.example"})).error == (403, -32600, "absent")


async def test_a_listed_host_and_origin_are_served() -> None:
    settings = HttpSettings(allowed_hosts=("mcp.example",), allowed_origins=("https://app.example",))
    async with serving(settings) as served:
        headers = {"Host": "mcp.example", "Origin": "https://app.example"}
        assert (await served.post(discover(), headers)).status == 200


async def test_http_1_1_without_a_host_is_refused(served: Served) -> None:
    assert (await served.post(discover(), {"Host": None})).status == 400


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer ", "Bearer wrong", "Basic s3cret", "s3cret", "Bearer s3cret x", "Bearer s3cr\u00e9t"],
)
async def test_without_the_token_nothing_is_served(authorization: str | None) -> None:
    async with serving(authenticate=static_bearer("s3cret")) as served:
        response = await served.post(call("echo"), {"Authorization": authorization})
        assert response.status == 401
        assert response.headers["www-authenticate"].startswith("Bearer")
        assert b"s3cret" not in response.body
        assert served.toy.started == []


async def test_the_token_is_not_read_from_the_query_or_from_two_headers() -> None:
    async with serving(authenticate=static_bearer("s3cret")) as served, served.connect() as wire:
        await wire.send(wire.request(discover(), line="POST /mcp?access_token=s3cret HTTP/1.1"))
        assert (await wire.response()).status == 401
        await wire.post(discover(), {"Authorization": "Bearer s3cret\r\nAuthorization: Bearer s3cret"})
        assert (await wire.response()).status == 401


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "Bearer "])
async def test_with_the_token_everything_is_served(scheme: str) -> None:
    async with serving(authenticate=static_bearer("s3cret")) as served:
        assert (await served.post(discover(), {"Authorization": f"{scheme} s3cret"})).status == 200


@pytest.mark.parametrize("token", ["", " ", "a b", "a\r\n", "t\u00e9", "=", "a=b"])
def test_a_token_that_no_header_can_carry_is_refused_at_start(token: str) -> None:
    with pytest.raises(ValueError, match="bearer token"):
        static_bearer(token)


@pytest.mark.parametrize("content_type", ["text/plain", None, "text/json", "application/json; charset=latin-1"])
async def test_other_content_types_start_nothing(served: Served, content_type: str | None) -> None:
    assert (await served.post(call("echo"), {"Content-Type": content_type})).error == (415, -32600, "absent")
    assert served.toy.started == []


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "gzip, gzip"])
async def test_a_compressed_body_is_refused_unread(served: Served, coding: str) -> None:
    for body in (b"\x1f\x8b\x08corrupt", json.dumps(discover()).encode()):
        assert (await served.post(body, {"Content-Encoding": coding})).error == (415, -32600, "absent")


async def test_an_unusable_accept_is_refused(served: Served) -> None:
    assert (await served.post(discover(), {"Accept": "text/html"})).error == (406, -32600, "absent")


@pytest.mark.parametrize("accept", [None, "*/*", "application/json", "text/event-stream;q=0.9, application/json;q=0.1"])
async def test_json_is_preferred_where_it_suffices(served: Served, accept: str | None) -> None:
    assert (await served.post(discover(), {"Accept": accept})).json["id"] == 1


async def test_a_client_that_takes_only_sse_gets_one_event(served: Served) -> None:
    response = await served.post(discover(), {"Accept": "text/event-stream"})
    assert [event["id"] for event in response.events] == [1]


async def test_an_error_keeps_its_status_even_for_a_client_that_takes_only_sse(served: Served) -> None:
    assert (await served.post(rpc("nope"), {"Accept": "text/event-stream"})).error == (404, -32601, 1)


@pytest.mark.parametrize(
    "literal", ['"007"', '" 7 "', '"\\u0667"', '""', "9007199254740993", '"9007199254740993"', "0"]
)
async def test_the_id_comes_back_as_it_was_sent(served: Served, literal: str) -> None:
    body = json.dumps(discover(id="?")).replace('"?"', literal).encode()
    assert b'"id":' + literal.encode() in (await served.post(body)).body


@pytest.mark.parametrize("request_id", [None, True, 1.5, {}, [1]])
async def test_a_bad_id_starts_nothing(served: Served, request_id: Any) -> None:
    assert (await served.post(call("echo", id=request_id))).error == (400, -32600, "absent")
    assert served.toy.started == []


async def test_a_call_without_an_id_starts_nothing(served: Served) -> None:
    message = call("echo")
    del message["id"]
    assert (await served.post(message)).error == (400, -32600, "absent")
    assert served.toy.started == []


async def test_a_notification_is_accepted_and_dropped(served: Served) -> None:
    response = await served.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
    assert (response.status, response.body) == (202, b"")


async def test_a_notification_of_another_version_is_refused(served: Served) -> None:
    message = {"jsonrpc": "2.0", "method": "notifications/x"}
    assert (await served.post(message, {"MCP-Protocol-Version": "1900-01-01"})).error == (400, -32022, "absent")
    assert (await served.post(message, {"MCP-Protocol-Version": None})).error == (400, -32020, "absent")


@pytest.mark.parametrize("meta", [None, [], "x", {}, {PROTOCOL: VERSION}, {CAPABILITIES: {}}])
async def test_an_incomplete_meta_is_told_first(served: Served, meta: Any) -> None:
    assert (await served.post(rpc("server/discover", {"_meta": meta}, id=7))).error == (400, -32602, 7)
    headers = {"Mcp-Method": None, "MCP-Protocol-Version": None}
    assert (await served.post(rpc("server/discover", {"_meta": meta}, id=7), headers)).error == (400, -32602, 7)


@pytest.mark.parametrize("capabilities", [[], {"extensions": []}, {"extensions": {"x/y": None}}, None, 5])
async def test_malformed_capabilities_are_never_an_internal_error(served: Served, capabilities: Any) -> None:
    response = await served.post(
        call("echo", id=7) | {"params": {"name": "echo", "_meta": META | {CAPABILITIES: capabilities}}}
    )
    assert response.status in {200, 400}
    assert response.json.get("error", {}).get("code") in {None, -32602}
    assert response.json["id"] == 7


async def test_headers_are_compared_before_the_version_is(served: Served) -> None:
    message = rpc("server/discover", {"_meta": META | {PROTOCOL: "v999.0.0"}})
    assert (await served.post(message)).error == (400, -32020, 1)
    response = await served.post(message, {"MCP-Protocol-Version": "v999.0.0"})
    assert response.error == (400, -32022, 1)
    assert response.json["error"]["data"] == {"supported": list(SERVED_VERSIONS), "requested": "v999.0.0"}


@pytest.mark.parametrize("header", ["MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"])
async def test_each_routing_header_is_required_single_and_ascii(served: Served, header: str) -> None:
    value = {"MCP-Protocol-Version": VERSION, "Mcp-Method": "tools/call", "Mcp-Name": "echo"}[header]
    for wrong in (None, "", "other", value.upper() + "x", f"{value}\r\n{header.lower()}: {value}", f"{value}\u00e9"):
        assert (await served.post(call("echo"), {header: wrong})).error == (400, -32020, 1), wrong
    assert served.toy.started == []


async def test_header_values_are_case_sensitive_and_header_names_are_not(served: Served) -> None:
    assert (await served.post(get_task("T"), {"Mcp-Method": "TASKS/GET"})).error == (400, -32020, 1)
    assert (await served.post(get_task("T"), {"Mcp-Name": None, "mCp-NaMe": "T"})).status == 200


async def test_the_name_of_a_task_may_be_left_out_where_that_is_allowed_but_not_be_wrong() -> None:
    async with serving(HttpSettings(task_name_required=False)) as served:
        assert (await served.post(get_task("T"), {"Mcp-Name": None})).status == 200
        assert (await served.post(get_task("T"), {"Mcp-Name": "U"})).error == (400, -32020, 1)
        assert (await served.post(call("echo"), {"Mcp-Name": None})).error == (400, -32020, 1)


async def test_white_space_around_a_header_value_is_not_part_of_it(served: Served) -> None:
    response = await served.post(get_task("T"), {"Mcp-Name": "  T \t", "Mcp-Method": " tasks/get "})
    assert response.json["result"]["taskId"] == "T"


def sentinel(data: bytes) -> str:
    return f"=?base64?{base64.b64encode(data).decode()}?="


async def test_a_name_in_base64_is_decoded_before_it_is_compared(served: Served) -> None:
    assert (await served.post(get_task("T"), {"Mcp-Name": sentinel(b"T")})).status == 200
    assert (await served.post(get_task(" p "), {"Mcp-Name": sentinel(b" p ")})).status == 200


BAD_NAMES = [None, "", "U", "t", "=?BASE64?VA==?=", "=?base64?%%%?=", sentinel(b"\xff\xfe"), sentinel(b"U")]


@pytest.mark.parametrize("name", [*BAD_NAMES, "=?base64?VA?="])
async def test_a_task_name_that_is_missing_malformed_or_another_is_refused(served: Served, name: str | None) -> None:
    assert (await served.post(get_task("T"), {"Mcp-Name": name})).error == (400, -32020, 1)


async def test_a_task_id_that_is_no_string_is_invalid_params(served: Served) -> None:
    assert (await served.post(rpc("tasks/get", {"taskId": 5}))).error == (400, -32602, 1)


async def test_a_tool_name_beyond_ascii_travels_in_base64_only(served: Served) -> None:
    name = "t\u00f6\u00f6l"
    assert (await served.post(call(name), {"Mcp-Name": sentinel(name.encode())})).status == 200
    assert (await served.post(call(name), {"Mcp-Name": name})).error == (400, -32020, 1)
    assert served.toy.started == [name]


async def test_annotated_arguments_must_be_repeated_in_headers(served: Served) -> None:
    message = call("route", {"region": "us west 1"})
    assert (await served.post(message, {"Mcp-Param-Region": " us west 1 "})).status == 200
    assert (await served.post(message, {"Mcp-Param-Region": sentinel(b"us west 1")})).status == 200
    for wrong in (None, "eu", "us west 1\r\nMcp-Param-Region: us west 1", "=?base64?%?="):
        assert (await served.post(message, {"Mcp-Param-Region": wrong})).error == (400, -32020, 1)
    raw = call("route", {"region": "\u00e9"})
    assert (await served.post(raw, {"Mcp-Param-Region": "\u00e9"})).error == (400, -32020, 1)
    assert len(served.toy.started) == 2


async def test_headers_that_no_tool_declares_are_ignored(served: Served) -> None:
    assert (await served.post(call("echo", {"x": 1}), {"Mcp-Param-Region": "\u00e9"})).status == 200
    assert (await served.post(call("route"), {"Mcp-Param-Other": "x"})).status == 200


REMOVED = ["ping", "initialize", "logging/setLevel", "resources/subscribe", "tasks/result", "tasks/list"]


@pytest.mark.parametrize("method", [*REMOVED, "prompts/list", "subscriptions/listen", "nope"])
async def test_a_method_that_is_not_implemented_is_not_found(served: Served, method: str) -> None:
    assert (await served.post(rpc(method, {"notifications": {}, "level": "info", "uri": "x:y"}))).error == (
        404,
        -32601,
        1,
    )


async def test_a_message_that_names_no_revision_is_told_what_is_spoken(served: Served) -> None:
    message = {"jsonrpc": "2.0", "id": 0, "method": "tools/list"}
    response = await served.post(message, {"MCP-Protocol-Version": None, "Mcp-Method": None})
    assert response.error == (400, -32602, 0)
    assert response.json["error"]["data"] == {"supported": list(SERVED_VERSIONS)}


async def test_an_extension_method_reaches_its_handler_with_the_owner(served: Served) -> None:
    result = (await served.post(get_task("T"))).json["result"]
    assert (result["taskId"], result["owner"]) == ("T", LOCAL.principal.subject)
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "toy"


async def test_handlers_see_the_exchange(served: Served) -> None:
    await served.post(call("echo", progress="p"))
    exchange = served.toy.exchanges[0]
    assert (exchange.owner, exchange.caller.channel, exchange.progress_token) == (LOCAL.principal, "http", "p")
    assert exchange.peer.capabilities == META["io.modelcontextprotocol/clientCapabilities"]


async def test_a_task_result_of_a_tool_call_passes_unsieved(served: Served) -> None:
    result = (await served.post(call("task"))).json["result"]
    assert result.pop("_meta")
    assert result == {"resultType": "task", "taskId": "t", "status": "working", "ttlMs": None}


async def test_nulls_and_numbers_keep_their_meaning(served: Served) -> None:
    numbers = '"n":9007199254740993,"f":1.0,"g":1e-07,"h":-0.0,"i":12345678901234567890123'
    literal = '{"a":null,"b":[null,{}],"c":"","d":0,"e":false,' + numbers + "}"
    body = json.dumps(call("echo", {"x": "?"})).replace('{"x": "?"}', literal).encode()
    response = await served.post(body, {"Mcp-Method": "tools/call", "Mcp-Name": "echo"})
    assert b'"structuredContent":' + literal.encode() in response.body


async def test_any_text_survives_the_round_trip(served: Served) -> None:
    text = "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\r\nh\x00i\ufeffj\U0001f468\u200d\U0001f469 \u00e9 e\u0301 \u200f"
    for raw in (json.dumps(call("echo", {text: text})), json.dumps(call("echo", {text: text}), ensure_ascii=False)):
        response = await served.post(raw.encode(), {"Mcp-Method": "tools/call", "Mcp-Name": "echo"})
        assert response.json["result"]["structuredContent"] == {text: text}


async def test_arguments_may_nest_as_deep_as_the_limit_allows(served: Served) -> None:
    value: Any = 1
    for _ in range(125):
        value = {"a": value}
    assert (await served.post(call("echo", value))).json["result"]["structuredContent"] == value


@pytest.mark.parametrize("tool", ["crash", "unencodable", "self_cancel", "no_schema"])
async def test_a_failing_handler_tells_the_client_nothing_and_the_log_once(
    served: Served, tool: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        response = await served.post(call(tool, id="r-7"))
    assert response.error == (200, -32603, "r-7")
    assert b"secret" not in response.body
    assert ["r-7" in record.getMessage() for record in caplog.records if record.name.startswith("bridge")] == [True]


async def test_a_result_with_nan_is_never_sent_as_such(served: Served) -> None:
    response = await served.post(call("nan"))
    json.loads(response.body, parse_constant=lambda literal: pytest.fail(literal))


@pytest.mark.parametrize(("code", "status"), [(-32602, 400), (-32021, 400), (-32601, 404), (-32603, 200), (-5, 200)])
async def test_an_error_of_a_handler_has_the_status_of_its_code(served: Served, code: int, status: int) -> None:
    assert (await served.post(call("refuse", {"code": code}))).error == (status, code, 1)


async def test_a_delivered_result_is_not_undone(served: Served) -> None:
    await served.post(call("echo"))
    await served.post(call("crash"))
    assert served.toy.undone == []
