#!/usr/bin/env bash
# Deploys a release with curl and no Tasks extension: the call waits, and ends with a question or with the result.
set -euo pipefail
URL=$1

call() {  # call MORE: send the tools/call, with more parameters
  local meta='"_meta": {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "curl", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}'
  local params='"name": "deploy_release", "arguments": {"application": "shop", "release": "v2"}'
  curl -sS "$URL" \
    -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \
    -H 'MCP-Protocol-Version: 2026-07-28' -H 'Mcp-Method: tools/call' -H 'Mcp-Name: deploy_release' \
    -d '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {'"$params, $meta${1:+, $1}"'}}'
}

field() {  # field NAME: the first string of that name in a line of JSON, up to an escape
  grep -o "\"$1\":\"[^\"\\\\]*" | cut -d '"' -f 4 | sed -n 1p
}

asked=$(call '')
echo "answer:    $(field resultType <<<"$asked")"
[[ $asked == *'"resultType":"input_required"'* ]] || { echo "no question: $asked" >&2 && exit 1; }
echo "question:  $(field message <<<"$asked")"
ended=$(call '"requestState": "'"$(field requestState <<<"$asked")"'", "inputResponses":
  {"approval": {"action": "accept", "content": {"approve": true, "note": "from curl"}}}')
echo "completed: $(field summary <<<"$ended")"
