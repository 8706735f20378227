import { AppError, errorText, isAppError } from '../base/errors.ts'
import { agentIdOf, type AgentSigner, verifyAgent } from '../identity/signing.ts'
import type { AgentId, MachineId } from '../protocol/ids.ts'
import { MAX_CARD_BYTES, MAX_SUCCESSIONS } from '../protocol/limits/wire.ts'
import { SUCCESSION_DOMAIN, succession, successionBody } from '../protocol/wire/dm.ts'
import type { ValueOf } from '../protocol/wire/schema.ts'
import { type JsonPath, fileOf, listOf, readJsonFile, refuse, textOf, within, writeJsonFile } from './json-file.ts'

const FILE_VERSION = 1

/** An agent's statement that another key replaces its own. Both keys sign it, so that no key becomes a successor against its will. */
export interface Succession {
  readonly from: AgentId
  readonly to: AgentId
  readonly toKey: Uint8Array
  readonly machineId: MachineId
  readonly signed: ValueOf<typeof succession>
  readonly fromKey: Uint8Array
  /** The complete received bytes. */
  readonly bytes: Uint8Array
}

/** `nowMs` is in epoch milliseconds, for information. */
export const signSuccession = async (from: AgentSigner, to: AgentSigner, machineId: MachineId, nowMs: number): Promise<Uint8Array> => {
  const body = successionBody.encode({
    version: 1,
    old_public_key: from.publicKey,
    new_public_key: to.publicKey,
    machine_id: machineId,
    issued_at_ms: nowMs,
  })
  const [old_signature, new_signature] = [await from.sign(SUCCESSION_DOMAIN, body), await to.sign(SUCCESSION_DOMAIN, body)]
  return succession.encode({ body, old_signature, new_signature })
}

/** Decodes without verifying. Throws `malformed`. */
export const decodeSuccession = (bytes: Uint8Array): Succession => {
  if (bytes.length > MAX_CARD_BYTES) throw new AppError('malformed', 'a succession is too long')
  const own = new Uint8Array(bytes)
  const signed = succession.decode(own)
  const body = successionBody.decode(signed.body)
  const [from, to] = [agentIdOf(body.old_public_key), agentIdOf(body.new_public_key)]
  if (from === to) throw new AppError('malformed', 'a succession of a key by itself')
  return { from, to, fromKey: body.old_public_key, toKey: body.new_public_key, machineId: body.machine_id, signed, bytes: own }
}

/** Throws `malformed` unless both keys signed it. */
export const verifySuccession = ({ fromKey, toKey, signed: { body, old_signature, new_signature } }: Succession): void => {
  if (verifyAgent(fromKey, SUCCESSION_DOMAIN, body, old_signature) && verifyAgent(toKey, SUCCESSION_DOMAIN, body, new_signature)) return
  throw new AppError('malformed', 'a succession that its two keys did not sign')
}

/** Earlier keys of an agent, the newest step first. Stops at a loop and at the maximum length. */
export const previousKeys = (all: readonly Succession[], agentId: AgentId): Succession[] => {
  const way: Succession[] = []
  for (let to = agentId; way.length < MAX_SUCCESSIONS;) {
    const step = all.find((one) => one.to === to && !way.includes(one))
    if (step === undefined) break
    way.push(step)
    to = step.from
  }
  return way
}

/** The successions of this daemon's agent, verified again. Throws `bad_successions` or `loose_permissions`, to prevent the start. */
export const loadSuccessions = async (path: string): Promise<Succession[]> => {
  const value = await readJsonFile(path, 'bad_successions')
  if (value === undefined) return []
  const place: JsonPath = { file: path, code: 'bad_successions', path: '' }
  const root = fileOf(value, FILE_VERSION, ['successions'], place)
  return listOf(root.successions, within(place, 'successions'), (item, where) => {
    try {
      const statement = decodeSuccession(Buffer.from(textOf(item, where), 'base64url'))
      verifySuccession(statement)
      return statement
    } catch (error) {
      if (!isAppError(error, 'malformed')) throw error
      return refuse(where, errorText(error), error)
    }
  })
}

export const saveSuccessions = async (path: string, successions: readonly Pick<Succession, 'bytes'>[]): Promise<void> =>
  writeJsonFile(path, { version: FILE_VERSION, successions: successions.map(({ bytes }) => Buffer.from(bytes).toString('base64url')) })
