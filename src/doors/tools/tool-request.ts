import { createHash } from 'node:crypto'

import type { RecordedRequest } from '../../protocol/tool-record.ts'

/** What a tool is asked to run. */
export interface ToolRequest extends Omit<RecordedRequest, 'env'> {
  readonly env: Readonly<Record<string, string>>
  readonly stdin: Uint8Array
}

const sha256 = (data: string | Uint8Array): string => createHash('sha256').update(data).digest('hex')

/** One text for all requests that ask for the same, hex. */
export const requestHash = ({ operation, command, args, cwd, target, env, stdin, timeout_ms, wish }: ToolRequest): string => {
  const variables = Object.entries(env).toSorted(([one], [other]) => (one < other ? -1 : 1))
  const asked = [operation, command, args, cwd, target, variables, sha256(stdin), timeout_ms]
  return sha256(JSON.stringify(wish === undefined ? asked : [...asked, [wish.host, wish.security, wish.ask, wish.node]]))
}

/** What stands for an idempotency key where others may read it; keys of different callers are different. Hex. */
export const keyHash = (caller: string, key: string): string => sha256(JSON.stringify([caller, key]))
