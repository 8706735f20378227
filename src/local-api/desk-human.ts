import type { Socket } from 'node:net'

import { AppError, errorCodeOf } from '../base/errors.ts'
import { dialOwn } from '../base/own-socket.ts'
import { humanKeyOf, Seal } from '../desk/seal.ts'
import {
  readHello,
  readToHumanBody,
  type AllModes,
  type Flood,
  type Grant,
  type HumanBody,
  type ModeOverride,
  type PendingQuestion,
  type RowSettings,
  type ToHumanBody,
} from '../protocol/desk.ts'
import { DESK_ANSWER_MS, DESK_OPEN_MS, MAX_DESK_REPLY } from '../protocol/desk-limits.ts'
import type { Fields } from '../protocol/field-checks.ts'
import type { LifecycleEvent } from '../protocol/lifecycle.ts'
import { linesOf } from '../protocol/lines.ts'
import type { Decision } from '../protocol/question.ts'
import { operatorKey } from './operator.ts'
import type { DataPaths } from './paths.ts'

/** What comes by itself after `subscribe`. */
export type DeskNews = Extract<ToHumanBody, { type: 'question' | 'settled' | 'flood' | 'event' }>

/** What waits, the oldest first, and what was denied because one asker asked too much. */
export interface Waiting {
  readonly questions: readonly PendingQuestion[]
  readonly floods: readonly Flood[]
  /** How many watch, each of which is shown every question. */
  readonly windows: number
}

/** A decision about exactly the permit that was shown. */
export interface HumanDecision {
  readonly question_id: string
  readonly permit_sha256: string
  readonly decision: Decision
  readonly expires_in_ms?: number
  readonly uses?: number
}

/** What is absent goes absent. */
type WithoutId<B> = B extends { readonly type: 'decide' }
  ? HumanDecision & { readonly type: 'decide' }
  : B extends { readonly id: number }
    ? Omit<B, 'id'>
    : never
type Request = WithoutId<HumanBody>

const lost = (): AppError =>
  new AppError('daemon_unreachable', 'the desk closed the connection; what it decided is told by: x0x approvals history', {
    data: { next: '' },
  })
const silent = (): AppError =>
  new AppError('daemon_unreachable', 'the desk does not answer: x0xd, or x0x desk, may be stopped (fg, SIGCONT), or start it again', {
    data: { next: '' },
  })
const broken = (problem: string): AppError => new AppError('malformed', `the desk sent what is none of its lines: ${problem}`)

export const noDesk = ({ dir }: Pick<DataPaths, 'dir'>): AppError =>
  new AppError(
    'daemon_unreachable',
    `no desk answers in ${dir}, and what asks a human is denied: start x0xd --init, or x0x desk where no daemon runs`,
    { data: { next: '' } },
  )

/** A human's client of the desk: what waits, decisions, and what was allowed for longer. Made by `openDesk`. */
export class DeskHuman {
  readonly #socket: Socket
  readonly #seal: Seal
  readonly #waiting = new Map<number, { readonly resolve: (result: Fields) => void; readonly reject: (error: Error) => void }>()
  /** Resolves when the connection is gone, with the reason. */
  readonly closed: Promise<AppError>
  #listener: ((news: DeskNews) => void) | null = null
  #count = 0
  #end: AppError | null = null

  constructor(init: { readonly socket: Socket; readonly seal: Seal; readonly lines: AsyncIterator<Buffer, void, undefined> }) {
    this.#socket = init.socket
    this.#seal = init.seal
    this.closed = this.#read(init.lines)
  }

  /** As a window that a human sees: questions wait for it, and `listener` hears of each and of how it ended. */
  async subscribe(listener: (news: DeskNews) => void): Promise<Waiting> {
    this.#listener = listener
    return this.#ask<Waiting>({ type: 'subscribe' })
  }

  /** From then on `listener` hears what these runs write, by `runOf`, and of no others. Answers those that go on. */
  async follow(runs: readonly string[]): Promise<readonly LifecycleEvent[]> {
    return (await this.#ask<{ readonly running: readonly LifecycleEvent[] }>({ type: 'follow', runs })).running
  }

  /** Hears of runs of this host's engines, and counts as nobody who could be asked. */
  async listen(listener: (news: DeskNews) => void): Promise<void> {
    this.#listener = listener
    await this.#ask({ type: 'listen' })
  }

  async pending(): Promise<Waiting> {
    return this.#ask<Waiting>({ type: 'pending' })
  }

  /** Throws `conflict`, with `won_by` and `decision` in its data, where somebody else was faster. */
  async decide(
    decision: HumanDecision,
  ): Promise<{ readonly question_id: string; readonly decision: string; readonly grant_id: string | null }> {
    return this.#ask({ type: 'decide', ...decision })
  }

  async grants(): Promise<readonly Grant[]> {
    return (await this.#ask<{ readonly grants: readonly Grant[] }>({ type: 'grants' })).grants
  }

  async revoke(grantId: string): Promise<{ readonly revoked: boolean }> {
    return this.#ask({ type: 'revoke', grant_id: grantId })
  }

  /** The approvals store, without what lets an engine in. */
  async store(): Promise<Fields> {
    return this.#ask({ type: 'store' })
  }

  /** `opaque`: the human knows that programs of the pattern may run others. */
  async allowlist(change: 'allowlist_add' | 'allowlist_remove', agent: string, pattern: string, opaque = false): Promise<Fields> {
    if (change === 'allowlist_remove') return this.#ask({ type: change, agent, pattern })
    // A desk of an older release knows no such key.
    return this.#ask({ type: change, agent, pattern, opaque: opaque ? true : undefined })
  }

  /** Lines of the desk's journal, the newest last. */
  async history(limit: number): Promise<Fields> {
    return this.#ask({ type: 'history', limit })
  }

  async modes(of: { readonly session: string | null; readonly agent: string | null }): Promise<Fields> {
    return this.#ask({ type: 'modes_get', ...of })
  }

  async allModes(): Promise<AllModes> {
    return this.#ask({ type: 'modes_list' })
  }

  /** Null: as configured. */
  async setModes(session: string, override: ModeOverride | null): Promise<Fields> {
    return this.#ask({ type: 'modes_set', session, override })
  }

  /** Writes the agent's row. Null: takes back what was saved. */
  async saveModes(agent: string, row: RowSettings | null): Promise<Fields> {
    return this.#ask({ type: 'modes_save', agent, row })
  }

  close(): void {
    this.#fail(new AppError('shutting_down', 'the connection to the desk was closed'))
  }

  async #ask<T = Fields>(request: Request): Promise<T> {
    if (this.#end !== null) throw this.#end
    const id = ++this.#count
    const result = new Promise<Fields>((resolve, reject) => this.#waiting.set(id, { resolve, reject }))
    this.#socket.write(this.#seal.line({ ...request, id }))
    const late = setTimeout(() => this.#fail(silent()), DESK_ANSWER_MS)
    return (await result.finally(() => clearTimeout(late))) as T
  }

  async #read(lines: AsyncIterator<Buffer, void, undefined>): Promise<AppError> {
    try {
      for (let next = await lines.next(); next.done !== true; next = await lines.next()) this.#take(next.value)
      this.#fail(lost())
    } catch (error) {
      this.#fail(error instanceof AppError ? error : lost())
    }
    return this.#end ?? lost()
  }

  #take(line: Buffer): void {
    const body = bodyIn(this.#seal, line)
    switch (body.type) {
      case 'opened':
        return
      case 'result':
        this.#waiting.get(body.id)?.resolve(body.result)
        this.#waiting.delete(body.id)
        return
      case 'error':
        return this.#refused(body)
      case 'question':
      case 'settled':
      case 'flood':
      case 'event':
        this.#listener?.(body)
    }
  }

  #refused(body: Extract<ToHumanBody, { type: 'error' }>): void {
    const error = refusal(body)
    if (body.id === null) throw error
    this.#waiting.get(body.id)?.reject(error)
    this.#waiting.delete(body.id)
  }

  #fail(why: AppError): void {
    this.#end ??= why
    this.#socket.destroy()
    for (const { reject } of this.#waiting.values()) reject(this.#end)
    this.#waiting.clear()
  }
}

const bodyIn = (seal: Seal, line: Buffer): ToHumanBody => {
  const opened = seal.open(line)
  if (opened.kind === 'refused')
    throw new AppError('malformed', `what answers is not the desk of this data directory, or was held up: ${opened.problem}`)
  const body = readToHumanBody(opened.body)
  if (typeof body === 'string') throw broken(body)
  return body
}

const refusal = ({ code, message, won_by, decision }: Extract<ToHumanBody, { type: 'error' }>): AppError =>
  new AppError(errorCodeOf(code), message, {
    data: { ...(won_by === undefined ? {} : { won_by }), ...(decision === undefined ? {} : { decision }) },
  })

const foreign = (problem: string): AppError =>
  new AppError('loose_permissions', `${problem}: nobody is asked there; remove it, and start x0xd --init or x0x desk again`)

/** Connects to the desk of a data directory and proves that we hold the operator's key; the desk proves the same. Throws `daemon_unreachable` where there is none. */
export const openDesk = async (paths: DataPaths, name: string): Promise<DeskHuman> => {
  // Who has not started anything yet has no key either, and is told what to start.
  const socket = await dialOwn(paths.approvalsSocket, foreign)
  if (socket === null) throw noDesk(paths)
  socket.on('error', () => undefined)
  const late = setTimeout(() => socket.destroy(), DESK_OPEN_MS)
  try {
    const key = humanKeyOf(operatorKey(paths.operatorKey))
    const lines = linesOf(socket as AsyncIterable<Buffer>, MAX_DESK_REPLY, () => broken('a line is too long'))
    const seal = await opened(socket, lines, key, name)
    return new DeskHuman({ socket, seal, lines })
  } catch (error) {
    socket.destroy()
    throw error instanceof AppError ? error : noDesk(paths)
  } finally {
    clearTimeout(late)
  }
}

const opened = async (socket: Socket, lines: AsyncIterator<Buffer, void, undefined>, key: Uint8Array, name: string): Promise<Seal> => {
  const first = await lines.next()
  if (first.done === true) throw new Error('closed')
  const hello = readHello(first.value)
  if (typeof hello === 'string') throw broken(hello)
  const seal = new Seal({ key, role: 'human', serverNonce: hello.nonce, side: 'client', now: () => Date.now() })
  socket.write(seal.line({ type: 'open', role: 'human', name }))
  const answer = await lines.next()
  if (answer.done === true)
    throw new AppError(
      'operator_proof_required',
      'the desk refused us: operator.key is not that of its data directory, or too many windows are open',
    )
  const body = bodyIn(seal, answer.value)
  if (body.type === 'error') throw refusal(body)
  if (body.type !== 'opened' || body.role !== 'human') throw broken('it did not open')
  return seal
}
