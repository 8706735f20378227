import { AppError, errorText, isAppError } from '../base/errors.ts'
import { agentIdOf, type AgentSigner, verifyAgent } from '../identity/signing.ts'
import type { AgentId, MachineId } from '../protocol/ids.ts'
import { MAX_CARD_BYTES } from '../protocol/limits/wire.ts'
import { REVOCATION_DOMAIN, revocation, revocationBody } from '../protocol/wire/dm.ts'
import type { ValueOf } from '../protocol/wire/schema.ts'
import { type JsonPath, fileOf, listOf, readJsonFile, refuse, textOf, within, writeJsonFile } from './json-file.ts'

/** Machines that one agent may revoke one by one. With more, the agent counts as revoked everywhere. */
export const MAX_REVOKED_MACHINES = 64

const FILE_VERSION = 1

/** A signed statement. Its signer is its subject, so no agent can revoke another. */
export interface RevocationStatement {
  readonly agentId: AgentId
  /** Null for the agent's key itself, on all machines. */
  readonly machineId: MachineId | null
  readonly publicKey: Uint8Array
  readonly signed: ValueOf<typeof revocation>
  /** The complete received bytes. */
  readonly bytes: Uint8Array
}

/** Signs a statement about the agent's own key (`machineId` null) or one machine. `nowMs` is in epoch milliseconds, for information. */
export const signRevocation = async (signer: AgentSigner, machineId: MachineId | null, nowMs: number): Promise<Uint8Array> => {
  const { publicKey: agent_public_key } = signer
  const body = revocationBody.encode({ version: 1, agent_public_key, machine_id: machineId, issued_at_ms: nowMs })
  return revocation.encode({ body, signature: await signer.sign(REVOCATION_DOMAIN, body) })
}

/** Decodes without verifying. Throws `malformed`. */
const decoded = (bytes: Uint8Array): RevocationStatement => {
  if (bytes.length > MAX_CARD_BYTES) throw new AppError('malformed', 'a revocation is too long')
  // A copy, because the decoded bytes are a view of their message. (The `slice` of a Buffer does not copy.)
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

/** Throws `malformed` unless the subject signed the statement. */
const verified = (statement: RevocationStatement): RevocationStatement => {
  const { publicKey, signed } = statement
  if (verifyAgent(publicKey, REVOCATION_DOMAIN, signed.body, signed.signature)) return statement
  throw new AppError('malformed', 'a revocation that its agent did not sign')
}

/** Statements of one agent without superfluous ones. The one about the key (null) replaces those about machines. */
type Revoked = ReadonlyMap<MachineId | null, RevocationStatement>

const isWhole = (revoked: Revoked): boolean => revoked.has(null) || revoked.size > MAX_REVOKED_MACHINES

/** The table with this statement's agent last, or null if the statement adds no revocation. */
const extended = (table: ReadonlyMap<AgentId, Revoked>, statement: RevocationStatement): Map<AgentId, Revoked> | null => {
  const { agentId, machineId } = statement
  const known: Revoked = table.get(agentId) ?? new Map()
  if (known.has(machineId) || (machineId !== null && isWhole(known))) return null
  const revoked: Revoked = new Map([...(machineId === null ? [] : known), [machineId, statement]])
  return new Map([...[...table].filter(([other]) => other !== agentId), [agentId, revoked]])
}

const statementsOf = (table: ReadonlyMap<AgentId, Revoked>): RevocationStatement[] =>
  [...table.values()].flatMap((revoked) => [...revoked.values()])

/** All known revocations, each signed by its subject. Entries are never removed. */
export class Revocations {
  readonly #path: string
  #table: ReadonlyMap<AgentId, Revoked> = new Map()
  /** Content of the file. */
  #saved: ReadonlyMap<AgentId, Revoked> = this.#table
  #lastWrite: Promise<unknown> = Promise.resolve()

  /** `path` is that of `revocations.json` in the data directory. */
  constructor({ path }: { path: string }) {
    this.#path = path
  }

  /** Reads the file and verifies each statement again. Throws `bad_revocations` or `loose_permissions`, which must prevent the start. */
  async load(): Promise<void> {
    const value = await readJsonFile(this.#path, 'bad_revocations')
    this.#table = value === undefined ? new Map() : tableOf(value, this.#path)
    this.#saved = this.#table
  }

  /** Stores a statement if `keepFor` accepts its agent. Takes effect when verified, and settles when on disk. Rejects with `malformed`. */
  async add(bytes: Uint8Array, keepFor: (agentId: AgentId) => boolean): Promise<'added' | 'known' | 'irrelevant'> {
    const statement = decoded(bytes)
    if (!keepFor(statement.agentId)) return 'irrelevant'
    const table = extended(this.#table, statement)
    // Only new statements are verified, because peers repeat known ones on each link.
    if (table !== null) {
      verified(statement)
      this.#table = table
    }
    await this.#save()
    return table === null ? 'known' : 'added'
  }

  /** A new object after each added statement. */
  get revision(): object {
    return this.#table
  }

  isRevoked(agentId: AgentId, machineId: MachineId): boolean {
    const revoked = this.#table.get(agentId)
    return revoked !== undefined && (isWhole(revoked) || revoked.has(machineId))
  }

  /** Revocation of the agent's key, and the machines that it revoked. */
  of(agentId: AgentId): { revoked: boolean; machines: MachineId[] } {
    const revoked: Revoked = this.#table.get(agentId) ?? new Map()
    return { revoked: isWhole(revoked), machines: [...revoked.keys()].filter((machineId) => machineId !== null) }
  }

  /** Agents whose key is revoked. */
  agents(): AgentId[] {
    return [...this.#table].filter(([, revoked]) => isWhole(revoked)).map(([agentId]) => agentId)
  }

  /** All statements for peers, by agents in the order of their latest statements. */
  list(): readonly RevocationStatement[] {
    return statementsOf(this.#table)
  }

  /** Writes one after another. A later write includes what an earlier one failed to write. */
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
