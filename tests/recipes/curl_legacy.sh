#!/usr/bin/env bash
# Deploys a release with curl and revision 2025-11-25: a handshake first, and the question is a request of the server.
# Its answer goes to the second address, if there is one: any replica takes it.
set -euo pipefail
URL=$1
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT

post() {  # post BODY OPTIONS: send one message
  curl -sS "$URL" -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \
    -H 'MCP-Protocol-Version: 2025-11-25' -d "$1" "${@:2}"
}

field() {  # field NAME: the first string of that name in lines of JSON, up to an escape
  grep -o "\"$1\":\"[^\"\\\\]*" | cut -d '"' -f 4 | sed -n 1p
}

post '{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25",
  "clientInfo": {"name": "curl", "version": "1"}, "capabilities": {"elicitation": {}}}}' \
  -D "$folder/headers" -o "$folder/hello"
echo "revision:  $(field protocolVersion <"$folder/hello")"
session=$(grep -i '^mcp-session-id:' "$folder/headers" | tr -d '\r') # to be sent with everything that follows
post '{"jsonrpc": "2.0", "method": "notifications/initialized"}' -H "$session"

# The answer of the call is a stream: the question is on it, then the result
post '{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params":
  {"name": "deploy_release", "arguments": {"application": "shop", "release": "v2"}}}' \
  -H "$session" -N -o "$folder/stream" &
call=$!
until grep elicitation/create "$folder/stream" >"$folder/question" 2>/dev/null; do
  kill -0 "$call" 2>/dev/null || { echo "no question: $(cat "$folder/stream")" >&2 && exit 1; }
  sleep 0.2
done
echo "question:  $(field message <"$folder/question")"
URL=${2:-$1} post '{"jsonrpc": "2.0", "id": "'"$(field id <"$folder/question")"'", "result":
  {"action": "accept", "content": {"approve": true, "note": "from curl"}}}' -H "$session"
wait "$call"
echo "completed: $(field summary <"$folder/stream")"
