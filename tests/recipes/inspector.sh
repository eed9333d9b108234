#!/usr/bin/env bash
# Deploys a release with the MCP Inspector: its `--cli` lists tools, but answers no questions; its `mcpdo` does.
set -euo pipefail
URL=$1 ERA=$2

cli() {  # cli OPTIONS: one request
  mcp-inspector --cli "$URL" --transport http --protocol-era "$ERA" --format json "$@"
}

field() {  # field NAME: the first string of that name in JSON, up to an escape
  grep -oE "\"$1\": ?\"[^\"\\\\]*" | cut -d '"' -f 4 | sed -n 1p
}

echo "tools:     $(cli --method tools/list | grep -oE '"name":"[a-z_]+","title"' | cut -d '"' -f 4 | xargs)"
echo "--cli:     $(cli --method tools/call --tool-name deploy_release --tool-arg application=shop release=v2 2>&1 |
  grep -oE 'This needs [^"]*')"

eval "$(mcpdo private)" # a daemon for this script alone holds the connection between commands
trap 'mcpdo daemon stop >/dev/null' EXIT
mcpdo connect "$URL" --transport http --era "$ERA" >/dev/null
bridge=(mcpdo --format json --connection "$URL")

asked=$("${bridge[@]}" tools/call deploy_release application:=shop release:=v2)
echo "question:  $(field message <<<"$asked")"
answered=$("${bridge[@]}" elicitation/respond "$(field elicitationId <<<"$asked")" approve:=true note:=fine)
echo "completed: $(field summary <<<"$answered")"

asked=$("${bridge[@]}" tools/call deploy_release application:=shop release:=v3)
answered=$("${bridge[@]}" elicitation/respond "$(field elicitationId <<<"$asked")" --cancel)
echo "completed: $(field summary <<<"$answered")"
