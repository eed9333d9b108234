// Deploys a release as a task, with the official TypeScript client and ext-tasks. A second deployment is cancelled.
import { randomUUID } from "node:crypto";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { createTaskSessionFromClient, resultFromTaskOutcome } from "@modelcontextprotocol/ext-tasks/client";

const url = new URL(process.argv[2]);
const clientInfo = { name: "recipe", version: "1" };
const clientCapabilities = { elicitation: { form: {} } };

const client = new Client(clientInfo, {
  capabilities: clientCapabilities,
  versionNegotiation: { mode: { pin: "2026-07-28" } },
});
await client.connect(new StreamableHTTPClientTransport(url));
const { tools } = await client.listTools();
console.log("tools:    ", ...tools.map((tool) => tool.name));

// The client does not let task results through, so ext-tasks asks its host for a way around it: a transport of its own
const wire = new StreamableHTTPClientTransport(url);
const pending = new Map();
wire.onmessage = (message) => {
  pending.get(message.id)?.("error" in message ? { kind: "error", ...message } : { kind: "result", ...message });
  pending.delete(message.id);
};
await wire.start();
const rawDispatch = async (request, { signal, context } = {}) => {
  const id = randomUUID();
  const response = new Promise((resolve) => pending.set(id, resolve));
  await wire.send({ jsonrpc: "2.0", id, ...request }, { requestSignal: signal, headers: context?.headers });
  return response;
};

const session = createTaskSessionFromClient(client, {
  endpointId: url.href,
  rawDispatch,
  v2RequestFraming: { protocolVersion: "2026-07-28", clientInfo, clientCapabilities },
  onInputRequest: async ({ params }) => {
    console.log("question: ", params.message.split("\n")[0]);
    return { action: "accept", content: { approve: true, note: "from TypeScript" } };
  },
});

const deployment = await session.callTool("deploy_release", { application: "shop", release: "v2" });
console.log("task:     ", deployment.handle.taskId);
const { outcome } = await deployment.settle(); // polls, and answers through onInputRequest
console.log("completed:", resultFromTaskOutcome(outcome).structuredContent.summary);

const other = await session.callTool("deploy_release", { application: "shop", release: "v3" });
console.log("task:     ", other.handle.taskId);
await other.cancel();
console.log((await other.result()).status);

await session.close();
await wire.close();
await client.close();
