import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import { hasShare, surplusOf } from '../../base/bounded-collections.ts'
import type { Timer } from '../../base/clock.ts'
import { errorText } from '../../base/errors.ts'
import { sha256 } from '../../identity/hash.ts'
import { type AgentId, type MachineId, type RequestId, toHex } from '../../protocol/ids.ts'
import {
  DETACHED_KEPT_MS,
  DETACHED_REMEMBERED_MS,
  LEAST_DETACHED_BYTES_PER_AGENT,
  LEAST_DETACHED_PER_AGENT,
  MAX_DETACHED_BYTES,
  MAX_DETACHED_BYTES_PER_AGENT,
  MAX_DETACHED_PER_AGENT,
  MAX_DETACHED_REMEMBERED,
  MAX_DETACHED_RUNS,
} from '../../protocol/limits/detached.ts'
import type { ExecutorServices } from '../services.ts'
import { DETACHED_DIR, type DetachedRecord, RecordFiles } from './record-file.ts'
import { DetachedRunRecord } from './record.ts'

/** Interval of the search for expired runs. */
const LOOK_EVERY_MS = 60_000

export interface DetachedRunStoreDeps extends Pick<ExecutorServices, 'clock' | 'log'> {
  /** Logs that a run expires. False if that fails. Then its files must stay. */
  forgotten(record: DetachedRecord): Promise<boolean>
  /** Returns the encoded Exit of a run that still waited for an approval when an executor died. */
  neverBegan(record: DetachedRecord): Promise<Uint8Array>
}

export interface DetachedRunStoreInit {
  readonly dataDir: string
  /** Maximum number of remembered IDs of expired runs. Default: MAX_DETACHED_REMEMBERED. */
  readonly remembered?: number
}

export type DetachedOutputInit = Pick<
  DetachedRecord,
  'request_id' | 'agent_id' | 'machine_id' | 'content_sha256' | 'request_sha256' | 'keep_bytes'
>

/** Name of files and map entries. It contains agent and machine, so another pair cannot reach the run. */
export const keptName = (agent: AgentId, machine: MachineId, request: RequestId): string =>
  toHex(sha256(Buffer.from(`${agent}:${machine}:${request}`)))

/** All detached runs of this machine that are running, stored or remembered. */
export class DetachedRunStore {
  readonly #deps: DetachedRunStoreDeps
  readonly #files: RecordFiles
  readonly #remembered: number
  readonly #runs = new Map<string, DetachedRunRecord>()
  /** Runs whose output could not be removed. The log says so once. */
  readonly #stuck = new Set<DetachedRunRecord>()
  #timer: Timer | null = null
  #stopped = false

  constructor(deps: DetachedRunStoreDeps, init: DetachedRunStoreInit) {
    this.#deps = deps
    this.#remembered = init.remembered ?? MAX_DETACHED_REMEMBERED
    this.#files = new RecordFiles(deps, { directory: join(init.dataDir, DETACHED_DIR) })
  }

  /** Loads the runs of earlier executors. Running ones become lost, and waiting ones never began. Throws `loose_permissions`. */
  async load(): Promise<void> {
    for (const [name, record] of await this.#files.load()) {
      const known = keptName(record.agent_id, record.machine_id, record.request_id) === name
      if (!known) {
        this.#deps.log.warn({ file: `${name}.run` }, 'the record of a detached run has the name of another, and is removed')
        await this.#remove(name, record)
        continue
      }
      const kept = new DetachedRunRecord({ ...this.#deps, files: this.#files }, { name, record })
      this.#runs.set(name, kept)
      if (record.state === 'waiting') await kept.finish(await this.#deps.neverBegan(record))
      else if (!kept.over) kept.lose((await stat(this.#files.outputOf(name)).catch(() => null))?.size ?? 0)
      // The run expired but its record was not written, or somebody removed its output.
      else if (record.state !== 'expired' && !(await this.#files.hasOutput(name))) await kept.expire()
    }
    await this.#poll()
  }

  find(name: string): DetachedRunRecord | null {
    return this.#runs.get(name) ?? null
  }

  /** Adds a run without files, replacing a denied one of the same name. A text says why it has no room. */
  admit(init: DetachedOutputInit, waits: boolean): DetachedRunRecord | string {
    const refused = this.#fullness(init)
    if (refused !== null) return refused
    const name = keptName(init.agent_id, init.machine_id, init.request_id)
    const nothing = { ended_at_ms: null, file_bytes: 0, stdout_kept: 0, stderr_kept: 0, dropped: 0, notes: [], exit: null }
    const record: DetachedRecord = { version: 1, ...init, state: waits ? 'waiting' : 'running', ...nothing }
    const before = this.#runs.get(name)
    const replaced = before && this.drop(before)
    const discard = async (): Promise<void> => this.drop(kept)
    const kept: DetachedRunRecord = new DetachedRunRecord({ ...this.#deps, files: this.#files }, { name, record, replaced, discard })
    this.#runs.set(name, kept)
    return kept
  }

  /** Removes the output of a run. If that fails, the run stays as it is and the log says once why. */
  async expire(kept: DetachedRunRecord): Promise<void> {
    // Another run has this name and its files.
    if (this.find(kept.name) !== kept) return
    try {
      await kept.expire()
      this.#stuck.delete(kept)
    } catch (error) {
      const fields = {
        request_id: kept.record.request_id,
        error: errorText(error),
        next: 'fix that; the run is deleted when its owner asks again, or when its time is up',
      }
      if (!this.#stuck.has(kept)) this.#deps.log.error(fields, 'the output of a detached run cannot be removed, and is kept')
      this.#stuck.add(kept)
    }
  }

  /** Removes a run that has no files yet. */
  release(kept: DetachedRunRecord): void {
    this.#runs.delete(kept.name)
  }

  /** Removes a run and its files, as far as the file system allows. */
  async drop(kept: DetachedRunRecord): Promise<void> {
    this.#runs.delete(kept.name)
    await kept.settled()
    await this.#remove(kept.name, kept.record)
  }

  stop(): void {
    this.#stopped = true
    this.#timer?.cancel()
  }

  async #remove(name: string, { request_id }: DetachedRecord): Promise<void> {
    await this.#files.remove(name).catch((error: unknown) => {
      this.#deps.log.warn({ request_id, error: errorText(error) }, 'files of a detached run could not be removed')
    })
  }

  #fullness({ agent_id, keep_bytes }: DetachedOutputInit): string | null {
    const all = [...this.#runs.values()].filter(({ record }) => record.state !== 'expired')
    const own = all.filter(({ record }) => record.agent_id === agent_id)
    const held = (runs: readonly DetachedRunRecord[]): number => runs.reduce((sum, { heldBytes }) => sum + heldBytes, 0)
    const [ownBytes, allBytes] = [held(own), held(all)]
    const [least, leastBytes] = [LEAST_DETACHED_PER_AGENT, LEAST_DETACHED_BYTES_PER_AGENT]
    if (own.length >= MAX_DETACHED_PER_AGENT || !hasShare(own.length, all.length, MAX_DETACHED_RUNS, { least }))
      return `this machine keeps ${own.length} detached runs of this agent, of ${all.length}: delete some with x0x runs forget`
    const hasBytes = hasShare(ownBytes, allBytes, MAX_DETACHED_BYTES, { least: leastBytes, more: keep_bytes })
    return ownBytes + keep_bytes > MAX_DETACHED_BYTES_PER_AGENT || !hasBytes
      ? `detached runs of this agent already reserve ${ownBytes} bytes on this machine, of ${allBytes}: delete some with x0x runs forget`
      : null
  }

  /** Expires old runs and forgets the oldest IDs. */
  async #poll(): Promise<void> {
    this.#timer?.cancel()
    try {
      for (const kept of this.#runs.values()) await this.#lookAt(kept)
      const remembered = [...this.#runs.values()].filter(({ record }) => record.state === 'expired')
      const oldestFirst = remembered.toSorted((one, other) => (other.overFor ?? 0) - (one.overFor ?? 0))
      for (const kept of surplusOf(oldestFirst, ({ record }) => record.agent_id, this.#remembered)) await this.drop(kept)
    } catch (error) {
      this.#deps.log.error({ error: errorText(error) }, 'detached runs could not be forgotten')
    }
    if (!this.#stopped) this.#timer = this.#deps.clock.setTimeout(() => void this.#poll(), LOOK_EVERY_MS, { unref: true })
  }

  async #lookAt(kept: DetachedRunRecord): Promise<void> {
    const { overFor: age, record } = kept
    if (age === null || age < DETACHED_KEPT_MS) return
    if (record.state !== 'expired') {
      // The audit log names it once, however often the removal is tried.
      if (!this.#stuck.has(kept) && !(await this.#deps.forgotten(record))) return
      await this.expire(kept)
      if (kept.record.state !== 'expired') return
    }
    if (age >= DETACHED_KEPT_MS + DETACHED_REMEMBERED_MS) await this.drop(kept)
  }
}
