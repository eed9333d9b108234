// A worker as its team runs it: nothing here knows of MCP.

import { fileURLToPath } from 'node:url';
import { NativeConnection, Runtime, DefaultLogger, Worker } from '@temporalio/worker';
import * as activities from './activities.ts';
import { EncryptionCodec } from './codec.ts';

Runtime.install({ logger: new DefaultLogger('WARN') });

const connection = await NativeConnection.connect({ address: process.env.TEMPORAL_ADDRESS });
const keys = process.env.ENCRYPTION_KEYS;
const worker = await Worker.create({
  connection,
  taskQueue: process.env.TASK_QUEUE ?? 'posts',
  workflowsPath: fileURLToPath(new URL('./workflows.ts', import.meta.url)),
  activities,
  dataConverter: keys
    ? {
        payloadCodecs: [new EncryptionCodec(keys)],
        failureConverterPath: fileURLToPath(new URL('./failures.ts', import.meta.url)),
      }
    : undefined,
});
const running = worker.run();
console.log('ready');
try {
  await running;
} finally {
  await connection.close();
}
