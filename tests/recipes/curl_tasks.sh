#!/usr/bin/env bash
# Deploys a release as a task, with curl: call, poll, answer, result. A second call is cancelled.
set -euo pipefail
URL=$1

mcp() {  # mcp METHOD NAME PARAMS: send one request, print the answer, which is one line of JSON
  local capabilities='{"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}'
  local meta='"_meta": {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "curl", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": '$capabilities'}'
  curl -sS "$URL" \
    -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \
    -H 'MCP-Protocol-Version: 2026-07-28' -H "Mcp-Method: $1" -H "Mcp-Name: $2" \
    -d '{"jsonrpc": "2.0", "id": 1, "method": "'"$1"'", "params": {'"${3:+$3, }$meta"'}}'
}

field() {  # field NAME: the first string of that name in a line of JSON, up to an escape
  grep -o "\"$1\":\"[^\"\\\\]*" | cut -d '"' -f 4 | sed -n 1p
}

call() {  # call RELEASE: start a deployment, print the task's id
  mcp tools/call deploy_release '"name": "deploy_release", "arguments": {"application": "shop", "release": "'"$1"'"}' |
    field taskId
}

get() {  # get TASK: the task as it is now
  mcp tasks/get "$1" '"taskId": "'"$1"'"'
}

poll() {  # poll TASK STATUS: ask once a second until the task is there; print it
  local seen
  while true; do
    seen=$(get "$1")
    case $(field status <<<"$seen") in
      "$2") echo "$seen" && return ;;
      working | input_required) sleep 1 ;;
      *) echo "not $2: $seen" >&2 && return 1 ;;
    esac
  done
}

echo "tools:     $(mcp tools/list '' '' | grep -oE '"name":"[a-z_]+","outputSchema"' | cut -d '"' -f 4 | xargs)"

task=$(call v2)
echo "task:      $task"
asked=$(poll "$task" input_required)
echo "question:  $(field message <<<"$asked")"
mcp tasks/update "$task" '"taskId": "'"$task"'", "inputResponses":
  {"approval": {"action": "accept", "content": {"approve": true, "note": "from curl"}}}' >/dev/null
ended=$(poll "$task" completed)
echo "completed: $(field summary <<<"$ended")"

task=$(call v3)
echo "task:      $task"
poll "$task" input_required >/dev/null
mcp tasks/cancel "$task" '"taskId": "'"$task"'"' >/dev/null
poll "$task" cancelled >/dev/null
echo "cancelled"
