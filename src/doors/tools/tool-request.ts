import { createHash } from 'node:crypto'
import type { RequestId } from '../../protocol/ids.ts'
import type { RecordedRequest } from '../../protocol/tool-record.ts'

export interface ToolRequest extends Omit<RecordedRequest, 'env'> {
  readonly env: Readonly<Record<string, string>>
  readonly stdin: Uint8Array
  /** Whether to start a detached run on the target. */
  readonly detach?: true
}

const sha256 = (data: string | Uint8Array): string => createHash('sha256').update(data).digest('hex')

/** Equal for equal requests; hex. */
export const requestHash = ({ operation, command, args, cwd, target, env, stdin, timeout_ms, wish, detach }: ToolRequest): string => {
  const variables = Object.entries(env).toSorted(([one], [other]) => (one < other ? -1 : 1))
  const asked = [operation, command, args, cwd, target, variables, sha256(stdin), timeout_ms]
  const wished = wish === undefined ? [] : [[wish.host, wish.security, wish.ask, wish.node]]
  return sha256(JSON.stringify([...asked, ...wished, ...(detach === true ? ['detach'] : [])]))
}

/** ID of the detached run for a key, so that a later session with the key finds it. */
export const detachedIdOf = (hash: string): RequestId => hash.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12}).*$/, '$1-$2-$3-$4-$5')

/** Represents an idempotency key in logs; it differs between clients. Hex. */
export const keyHash = (caller: string, key: string): string => sha256(JSON.stringify([caller, key]))
