// AES-256-GCM in the format of Temporal's samples: the whole payload is encrypted; `data` is nonce, ciphertext and tag.

import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import { ValueError, type Payload, type PayloadCodec } from '@temporalio/common';
import proto from '@temporalio/proto';

const ENCODING = 'binary/encrypted';
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

const { Payload: PayloadMessage } = proto.temporal.api.common.v1;

export class EncryptionCodec implements PayloadCodec {
  readonly #keys: Map<string, Buffer>;
  readonly #first: string;

  // `ring` is `ID:BASE64` pairs, comma-separated: the first encrypts, all decrypt.
  constructor(ring: string) {
    const pairs = ring.split(',').map((pair): [string, Buffer] => {
      const [id, key] = pair.trim().split(':');
      return [id, Buffer.from(key, 'base64')];
    });
    this.#keys = new Map(pairs);
    this.#first = pairs[0][0];
  }

  async encode(payloads: Payload[]): Promise<Payload[]> {
    return payloads.map((payload) => {
      const nonce = randomBytes(NONCE_BYTES);
      const cipher = createCipheriv('aes-256-gcm', this.#key(this.#first), nonce);
      const plain = PayloadMessage.encode(payload).finish();
      return {
        metadata: { encoding: Buffer.from(ENCODING), 'encryption-key-id': Buffer.from(this.#first) },
        data: Buffer.concat([nonce, cipher.update(plain), cipher.final(), cipher.getAuthTag()]),
      };
    });
  }

  async decode(payloads: Payload[]): Promise<Payload[]> {
    return payloads.map((payload) => {
      if (text(payload.metadata?.encoding) !== ENCODING || !payload.data) return payload;
      const data = Buffer.from(payload.data);
      const key = this.#key(text(payload.metadata?.['encryption-key-id']));
      const decipher = createDecipheriv('aes-256-gcm', key, data.subarray(0, NONCE_BYTES));
      decipher.setAuthTag(data.subarray(data.length - TAG_BYTES));
      const middle = decipher.update(data.subarray(NONCE_BYTES, data.length - TAG_BYTES));
      return PayloadMessage.decode(Buffer.concat([middle, decipher.final()]));
    });
  }

  #key(id: string): Buffer {
    const key = this.#keys.get(id);
    if (key === undefined) throw new ValueError(`There is no key '${id}'`);
    return key;
  }
}

function text(bytes: Uint8Array | null | undefined): string {
  return Buffer.from(bytes ?? []).toString();
}
