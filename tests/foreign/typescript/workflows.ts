// Workflows of a team that works in TypeScript. `translate` and `holdPlace` know nothing of MCP; `publishPost` asks, with
// the contract's one query and one signal.

import {
  ApplicationFailure,
  condition,
  defineQuery,
  defineSignal,
  proxyActivities,
  setHandler,
  sleep,
} from '@temporalio/workflow';
import type * as activities from './activities.ts';

const { translated } = proxyActivities<typeof activities>({ startToCloseTimeout: '1 minute' });

export async function translate(text: string, language = 'en'): Promise<{ text: string; language: string }> {
  return { text: await translated(text, language), language };
}

export async function holdPlace(): Promise<void> {
  await sleep('1 day');
}

export async function refuse(reason: { type: string; details?: unknown[] }): Promise<never> {
  throw ApplicationFailure.create({
    message: 'The desk is closed',
    type: reason.type,
    nonRetryable: true,
    details: reason.details,
  });
}

const view = defineQuery<unknown>('mcp_task');
const update = defineSignal<[{ responses?: Record<string, any> }]>('mcp_update');

const QUESTION = {
  method: 'elicitation/create',
  params: {
    mode: 'form',
    message: 'Publish this post?',
    requestedSchema: {
      type: 'object',
      properties: { publish: { type: 'boolean', title: 'Publish' } },
      required: ['publish'],
    },
  },
};

export async function publishPost(post: { title: string }): Promise<{ title: string; published: boolean }> {
  let answer: { action: string; content?: { publish?: boolean } } | undefined;
  let changedAt = new Date().toISOString();

  setHandler(view, () => {
    const asks = answer === undefined;
    return {
      v: 1,
      status: asks ? 'input_required' : 'working',
      inputRequests: asks ? { publish: QUESTION } : undefined,
      changedAt,
    };
  });
  setHandler(update, (sent) => {
    if (answer !== undefined || sent?.responses?.publish === undefined) return; // what was not asked is ignored
    answer = sent.responses.publish;
    changedAt = new Date().toISOString();
  });

  await condition(() => answer !== undefined);
  return { title: post.title, published: answer?.action === 'accept' && answer.content?.publish === true };
}
