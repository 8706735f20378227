import { AppError, errorText, isAppError } from '../base/errors.ts'
import { agentIdOf } from '../identity/agent-id.ts'
import { type AgentSigner, verifyAgent } from '../identity/signing.ts'
import type { AgentId, MachineId } from '../protocol/ids.ts'
import { MAX_CARD_BYTES } from '../protocol/limits/wire.ts'
import { REVOCATION_DOMAIN, revocation, revocationBody } from '../protocol/wire/dm.ts'
import type { ValueOf } from '../protocol/wire/schema.ts'
import { type JsonPath, fileOf, listOf, readJsonFile, refuse, textOf, within, writeJsonFile } from './json-file.ts'

/** Machines that one agent may revoke one by one; an agent that revokes more counts as revoked everywhere. */
export const MAX_REVOKED_MACHINES = 64

const FILE_VERSION = 1

/** What a signed statement says. Its signer is its subject: nobody can speak for another. */
export interface RevocationStatement {
  readonly agentId: AgentId
  /** Null: the agent's key itself, on every machine. */
  readonly machineId: MachineId | null
  readonly publicKey: Uint8Array
  readonly signed: ValueOf<typeof revocation>
  /** The whole as it arrived. */
  readonly bytes: Uint8Array
}

/** A statement by this agent about its own key (`machineId` null) or its presence on one machine; `nowMs` epoch ms, for the record. */
export const signRevocation = async (signer: AgentSigner, machineId: MachineId | null, nowMs: number): Promise<Uint8Array> => {
  const { publicKey: agent_public_key } = signer
  const body = revocationBody.encode({ version: 1, agent_public_key, machine_id: machineId, issued_at_ms: nowMs })
  return revocation.encode({ body, signature: await signer.sign(REVOCATION_DOMAIN, body) })
}

/** Decoded, not yet verified. Throws `malformed`. */
const decoded = (bytes: Uint8Array): RevocationStatement => {
  if (bytes.length > MAX_CARD_BYTES) throw new AppError('malformed', 'a revocation is too long')
  // A copy: what was decoded is a view of the message it came in. (The `slice` of a Buffer does not copy.)
  const own = new Uint8Array(bytes)
  const signed = revocation.decode(own)
  const body = revocationBody.decode(signed.body)
  return {
    agentId: agentIdOf(body.agent_public_key),
    machineId: body.machine_id,
    bytes: own,
    signed,
    publicKey: body.agent_public_key,
  }
}

/** Throws `malformed` unless the agent that it is about signed it. */
const verified = (statement: RevocationStatement): RevocationStatement => {
  const { publicKey, signed } = statement
  if (verifyAgent(publicKey, REVOCATION_DOMAIN, signed.body, signed.signature)) return statement
  throw new AppError('malformed', 'a revocation that its agent did not sign')
}

/** The statements of one agent, as few as say it all: that about the key itself (null) makes those about machines superfluous. */
type Revoked = ReadonlyMap<MachineId | null, RevocationStatement>

const isWhole = (revoked: Revoked): boolean => revoked.has(null) || revoked.size > MAX_REVOKED_MACHINES

/** The table with this statement's agent last, or null when the statement says nothing new. */
const extended = (table: ReadonlyMap<AgentId, Revoked>, statement: RevocationStatement): Map<AgentId, Revoked> | null => {
  const { agentId, machineId } = statement
  const known: Revoked = table.get(agentId) ?? new Map()
  if (known.has(machineId) || (machineId !== null && isWhole(known))) return null
  const revoked: Revoked = new Map([...(machineId === null ? [] : known), [machineId, statement]])
  return new Map([...[...table].filter(([other]) => other !== agentId), [agentId, revoked]])
}

const statementsOf = (table: ReadonlyMap<AgentId, Revoked>): RevocationStatement[] =>
  [...table.values()].flatMap((revoked) => [...revoked.values()])

/** The revocations that are known here, each signed by the agent it is about. Grows only: there is no un-revoke. */
export class Revocations {
  readonly #path: string
  #table: ReadonlyMap<AgentId, Revoked> = new Map()
  /** What the file holds. */
  #saved: ReadonlyMap<AgentId, Revoked> = this.#table
  #lastWrite: Promise<unknown> = Promise.resolve()

  /** `path`: `revocations.json` of the data directory. */
  constructor({ path }: { path: string }) {
    this.#path = path
  }

  /** Reads the file and verifies every statement again. Throws `bad_revocations` or `loose_permissions`, and then nothing may start. */
  async load(): Promise<void> {
    const value = await readJsonFile(this.#path, 'bad_revocations')
    this.#table = value === undefined ? new Map() : tableOf(value, this.#path)
    this.#saved = this.#table
  }

  /**
   * Keeps a statement when `keepFor` wants to know about its agent. It holds from the moment it is
   * verified; the promise is settled when it is on disk as well. Rejects with `malformed`.
   */
  async add(bytes: Uint8Array, keepFor: (agentId: AgentId) => boolean): Promise<'added' | 'known' | 'irrelevant'> {
    const statement = decoded(bytes)
    if (!keepFor(statement.agentId)) return 'irrelevant'
    const table = extended(this.#table, statement)
    // A signature is checked only of what would say something new: peers tell the same again at every link.
    if (table !== null) {
      verified(statement)
      this.#table = table
    }
    await this.#save()
    return table === null ? 'known' : 'added'
  }

  /** Changes with every statement that is added, and with nothing else. */
  get revision(): object {
    return this.#table
  }

  isRevoked(agentId: AgentId, machineId: MachineId): boolean {
    const revoked = this.#table.get(agentId)
    return revoked !== undefined && (isWhole(revoked) || revoked.has(machineId))
  }

  /** Whether the agent's key itself is revoked, and else on which machines the agent is. */
  of(agentId: AgentId): { revoked: boolean; machines: MachineId[] } {
    const revoked: Revoked = this.#table.get(agentId) ?? new Map()
    return { revoked: isWhole(revoked), machines: [...revoked.keys()].filter((machineId) => machineId !== null) }
  }

  /** Agents whose key itself is revoked. */
  agents(): AgentId[] {
    return [...this.#table].filter(([, revoked]) => isWhole(revoked)).map(([agentId]) => agentId)
  }

  /** Every statement, to send to peers; agents in the order of their latest statements. */
  list(): readonly RevocationStatement[] {
    return statementsOf(this.#table)
  }

  /** One write after another; what an earlier one could not write, the next one does. */
  #save(): Promise<void> {
    const write = async (): Promise<void> => {
      const table = this.#table
      if (table === this.#saved) return
      const revocations = statementsOf(table).map(({ bytes }) => Buffer.from(bytes).toString('base64url'))
      await writeJsonFile(this.#path, { version: FILE_VERSION, revocations })
      this.#saved = table
    }
    const result = this.#lastWrite.then(write)
    this.#lastWrite = result.catch(() => undefined)
    return result
  }
}

const tableOf = (value: unknown, file: string): ReadonlyMap<AgentId, Revoked> => {
  const place: JsonPath = { file, code: 'bad_revocations', path: '' }
  const root = fileOf(value, FILE_VERSION, ['revocations'], place)
  const statements = listOf(root.revocations, within(place, 'revocations'), (item, where) => {
    const text = textOf(item, where)
    const bytes = Buffer.from(text, 'base64url')
    if (bytes.toString('base64url') !== text) refuse(where, 'expected base64url')
    try {
      return verified(decoded(bytes))
    } catch (error) {
      if (!isAppError(error, 'malformed')) throw error
      return refuse(where, errorText(error), error)
    }
  })
  let table: ReadonlyMap<AgentId, Revoked> = new Map()
  for (const statement of statements) table = extended(table, statement) ?? table
  return table
}
