// Deploys a release with the official TypeScript client alone: the call waits, and asks through a handler.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const url = new URL(process.argv[2]);
const client = new Client(
  { name: "recipe", version: "1" },
  { capabilities: { elicitation: { form: {} } }, versionNegotiation: { mode: "auto" } },
);
client.setRequestHandler("elicitation/create", async ({ params }) => {
  console.log("question: ", params.message.split("\n")[0]);
  return { action: "accept", content: { approve: true, note: "from TypeScript" } };
});

await client.connect(new StreamableHTTPClientTransport(url));
console.log("revision: ", client.getNegotiatedProtocolVersion());
const { tools } = await client.listTools();
console.log("tools:    ", ...tools.map((tool) => tool.name));
const result = await client.callTool({ name: "deploy_release", arguments: { application: "shop", release: "v2" } });
console.log("completed:", result.structuredContent.summary);
await client.close();
