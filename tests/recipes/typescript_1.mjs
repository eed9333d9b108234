// Deploys a release with the 1.x TypeScript SDK, which speaks 2025-11-25: the call waits, and asks through a handler.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";

const url = new URL(process.argv[2]);
const client = new Client({ name: "recipe", version: "1" }, { capabilities: { elicitation: { form: {} } } });
client.setRequestHandler(ElicitRequestSchema, async ({ params }) => {
  console.log("question: ", params.message.split("\n")[0]);
  return { action: "accept", content: { approve: true, note: "from the 1.x SDK" } };
});

const transport = new StreamableHTTPClientTransport(url);
await client.connect(transport);
console.log("revision: ", transport.protocolVersion);
const { tools } = await client.listTools();
console.log("tools:    ", ...tools.map((tool) => tool.name));
const call = { name: "deploy_release", arguments: { application: "shop", release: "v2" } };
const result = await client.callTool(call, undefined, { timeout: 600_000 });
console.log("completed:", result.structuredContent.summary);
await client.close();
