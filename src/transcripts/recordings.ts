import { lstatSync } from 'node:fs'
import { readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { Clock, Timer } from '../base/clock.ts'
import { AppError, errorText, isAppError, isMissing } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Startable } from '../base/startable.ts'
import type { CastHeader } from '../protocol/console/asciicast.ts'
import type { AgentId } from '../protocol/ids.ts'
import {
  MAX_AGENT_RECORDINGS,
  MAX_RECORDING,
  MAX_RECORDINGS,
  MAX_RECORDING_FILES,
  MAX_RECORDING_FILES_PER_AGENT,
  RECORDING_DAYS,
} from '../protocol/limits/terminal.ts'
import { checkTranscriptsDir, makeTranscriptsDir, nameAt } from './directory.ts'
import { type RecordingInit, TerminalRecording } from './recording.ts'

/** Time of the start in UTC, the beginning of the requester's ID, and a number if the name was taken. */
const NAME = /^(\d{4}-\d\d-\d\d-\d\d:\d\d:\d\d)-([0-9a-f]{16})(?:-\d{1,4})?$/
const SUFFIX = '.cast'
const AGENT_CHARACTERS = 16
/** Names that are tried for one start. */
const MAX_NAMES = 1_000
const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS

/** Directory of the recordings below a data directory. */
export const recordingsDirIn = (dataDir: string): string => join(dataDir, 'recordings')

/** Throws `bad_request` for an invalid name, which includes all paths. */
export const recordingFile = (name: string): string => {
  if (NAME.test(name)) return `${name}${SUFFIX}`
  throw new AppError('bad_request', `${JSON.stringify(name.slice(0, 100))} is not the name of a recording`, {
    data: { next: 'Try: x0x transcripts list --terminals' },
  })
}

/** Names of all recordings, newest first. Empty for a missing directory. Throws `loose_permissions`. */
export const recordingNames = async (directory: string): Promise<string[]> => {
  checkTranscriptsDir(directory)
  const files = await readdir(directory).catch((error: unknown) => {
    if (isMissing(error)) return []
    throw error
  })
  return files
    .flatMap((file) => (file.endsWith(SUFFIX) && NAME.test(file.slice(0, -SUFFIX.length)) ? [file.slice(0, -SUFFIX.length)] : []))
    .sort()
    .reverse()
}

const timeOf = (name: string): number => {
  const [, time = ''] = NAME.exec(name) ?? []
  return Date.parse(`${time.slice(0, 10)}T${time.slice(11)}Z`)
}

export interface RecordingBounds {
  readonly each: number
  readonly agent: number
  readonly all: number
  readonly files: number
  readonly agentFiles: number
}

const BOUNDS: RecordingBounds = {
  each: MAX_RECORDING,
  agent: MAX_AGENT_RECORDINGS,
  all: MAX_RECORDINGS,
  files: MAX_RECORDING_FILES,
  agentFiles: MAX_RECORDING_FILES_PER_AGENT,
}

export interface RecordedRun extends Pick<RecordingInit, 'onRoom' | 'onFailed'> {
  readonly agentId: AgentId
  readonly header: CastHeader
}

/** The recordings of a daemon's commands. Their room is checked before each start, and old ones expire. */
export class Recordings implements Startable {
  readonly #deps: { readonly clock: Clock; readonly log: Logger }
  readonly #directory: string
  readonly #bounds: RecordingBounds
  /** Starts that were admitted and have not ended, by the beginning of the agent's ID. Each may grow to its bound. */
  readonly #open = new Map<string, number>()
  #timer: Timer | null = null

  /** `bounds` is for tests. */
  constructor(
    deps: { readonly clock: Clock; readonly log: Logger },
    init: { readonly directory: string; readonly bounds?: RecordingBounds },
  ) {
    this.#deps = deps
    this.#directory = init.directory
    this.#bounds = init.bounds ?? BOUNDS
  }

  /** Removes expired recordings now and every hour. A problem is logged, because the next command that must be recorded reports it. */
  async start(): Promise<void> {
    await this.#expire().catch((error: unknown) => this.#deps.log.error({ error: errorText(error) }, 'recordings cannot be read'))
    this.#timer = this.#deps.clock.setTimeout(() => void this.start(), HOUR_MS, { unref: true })
  }

  stop(): void {
    this.#timer?.cancel()
  }

  /** Begins a recording. Throws why it cannot be kept. Call `ended` after its end. */
  async begin({ agentId, header, onRoom, onFailed }: RecordedRun): Promise<TerminalRecording> {
    const agent = agentId.slice(0, AGENT_CHARACTERS)
    this.#count(agent, 1)
    try {
      await makeTranscriptsDir(this.#directory)
      await this.#checkRoom(agent)
      const time = nameAt(this.#deps.clock.now())
      for (let at = 1; ; at++) {
        const name = `${time}-${agent}${at === 1 ? '' : `-${at}`}`
        const init = { name, directory: this.#directory, onRoom, onFailed, max: this.#bounds.each }
        try {
          return await TerminalRecording.create(this.#deps, init, join(this.#directory, recordingFile(name)), header)
        } catch (error) {
          if (!isAppError(error, 'conflict') || at === MAX_NAMES) throw error
        }
      }
    } catch (error) {
      this.#count(agent, -1)
      throw error
    }
  }

  ended(agentId: AgentId): void {
    this.#count(agentId.slice(0, AGENT_CHARACTERS), -1)
  }

  #count(agent: string, by: 1 | -1): void {
    const count = (this.#open.get(agent) ?? 0) + by
    if (count === 0) this.#open.delete(agent)
    else this.#open.set(agent, count)
  }

  /** Open recordings count with their bound, in addition to their size. */
  async #checkRoom(agent: string): Promise<void> {
    const names = await this.#expire()
    const { each, agent: ofAgent, all, files, agentFiles } = this.#bounds
    let [own, ownFiles, total] = [0, 0, 0]
    for (const name of names) {
      const size = lstatSync(join(this.#directory, recordingFile(name)), { throwIfNoEntry: false })?.size ?? 0
      total += size
      if (NAME.exec(name)?.[2] !== agent) continue
      own += size
      ownFiles += 1
    }
    const open = [...this.#open.values()].reduce((sum, count) => sum + count, 0)
    const ownOpen = this.#open.get(agent) ?? 0
    if (own + ownOpen * each > ofAgent || ownFiles + ownOpen > agentFiles)
      throw new Error('the recordings of this agent leave no room for one more')
    if (total + open * each > all || names.length + open > files)
      throw new Error('the recordings of this machine leave no room for one more')
  }

  /** Returns the names that are left. */
  async #expire(): Promise<string[]> {
    const before = this.#deps.clock.now() - RECORDING_DAYS * DAY_MS
    const left: string[] = []
    for (const name of await recordingNames(this.#directory))
      if (timeOf(name) >= before) left.push(name)
      else await rm(join(this.#directory, recordingFile(name)), { force: true })
    return left
  }
}
