import { createHash } from 'node:crypto'
import type { RequestId } from '../../protocol/ids.ts'
import type { RecordedRequest } from '../../protocol/tool-record.ts'

/** What a tool is asked to run. */
export interface ToolRequest extends Omit<RecordedRequest, 'env'> {
  readonly env: Readonly<Record<string, string>>
  readonly stdin: Uint8Array
  /** A detached run of its target. */
  readonly detach?: true
}

const sha256 = (data: string | Uint8Array): string => createHash('sha256').update(data).digest('hex')

/** One text for all requests that ask for the same, hex. */
export const requestHash = ({ operation, command, args, cwd, target, env, stdin, timeout_ms, wish, detach }: ToolRequest): string => {
  const variables = Object.entries(env).toSorted(([one], [other]) => (one < other ? -1 : 1))
  const asked = [operation, command, args, cwd, target, variables, sha256(stdin), timeout_ms]
  const wished = wish === undefined ? [] : [[wish.host, wish.security, wish.ask, wish.node]]
  return sha256(JSON.stringify([...asked, ...wished, ...(detach === true ? ['detach'] : [])]))
}

/** Id of the detached run that a key stands for: every session that gives the key finds the same run. */
export const detachedIdOf = (hash: string): RequestId => hash.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12}).*$/, '$1-$2-$3-$4-$5')

/** What stands for an idempotency key where others may read it; keys of different callers are different. Hex. */
export const keyHash = (caller: string, key: string): string => sha256(JSON.stringify([caller, key]))
