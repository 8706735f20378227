import type { Duplex } from 'node:stream'

import { v7 as uuidv7 } from 'uuid'

import { AppError, errorText, isAppError } from '../../base/errors.ts'
import { capabilitiesTold } from '../../protocol/rexd-names.ts'
import { isRequestId, type RequestId } from '../../protocol/ids.ts'
import { MAX_PORT_CALLS } from '../../protocol/limits.ts'
import { PortChannel } from '../port/codec.ts'
import { localFrame, toLocalDoor, toLocalExecutor, type ToLocalDoor, type ToLocalExecutor } from '../port/local-messages.ts'
import { failedAnswer } from '../port/failed-answer.ts'
import { RunOutlet } from '../runs/outlet.ts'
import { answerFileCall } from './file-calls.ts'
import type { LocalEngine } from './local-engine.ts'
import type { LocalSession } from './local-session.ts'
import type { SessionRun } from './run-set.ts'
import { signalOf, startRun, type RunStart } from './start-run.ts'
import { startTargetRun } from './start-target-run.ts'

type Call = Extract<ToLocalExecutor, { id: number }>
type Answer = Extract<ToLocalDoor, { id: number }>

/** One door on the other end of a port: its sessions, and the runs that it watches. */
export class LocalPortSession {
  readonly #engine: LocalEngine
  readonly #channel: PortChannel<ToLocalExecutor, ToLocalDoor>
  readonly #sessions = new Set<string>()
  /** Runs of this channel by their number there. */
  readonly #runs = new Map<number, SessionRun | null>()
  readonly #closed = Promise.withResolvers<void>()
  #calls = 0

  constructor(components: { engine: LocalEngine; duplex: Duplex }) {
    this.#engine = components.engine
    this.#channel = new PortChannel(
      { duplex: components.duplex, incoming: toLocalExecutor, outgoing: toLocalDoor },
      {
        onMessage: (message) => this.#receive(message),
        onMalformed: (_payload, error) => this.#channel.close(new AppError('malformed', errorText(error))),
        onClosed: () => void this.#end(),
        holdWhenBehind: true,
      },
    )
  }

  /** Resolves when the channel is gone and everything that it had running is over. */
  get closed(): Promise<void> {
    return this.#closed.promise
  }

  #receive(message: ToLocalExecutor): void {
    if (message.type === 'run_frame') return this.#runFrame(message.run, message.frame)
    void this.#answer(message)
  }

  #runFrame(number: number, bytes: Uint8Array): void {
    const run = this.#runs.get(number)
    // A run that has just ended is no mistake of the door.
    if (!run) return
    try {
      const frame = localFrame.decode(bytes)
      if (frame.type === 'ack') run.acknowledged(frame)
      else if (frame.type === 'stdin') run.acceptStdin(frame)
      else if (frame.type === 'cancel') run.end('cancelled')
      else throw new AppError('malformed', `${frame.type} from a door`)
    } catch (error) {
      run.violated(errorText(error))
    }
  }

  async #answer(call: Call): Promise<void> {
    this.#calls += 1
    try {
      if (this.#calls > MAX_PORT_CALLS) throw new AppError('rate_limited', 'too many calls at once')
      if (call.type === 'run_start') await this.#start(call)
      else this.#channel.send(await this.#perform(call))
    } catch (error) {
      const { log } = this.#engine.components
      if (!isAppError(error)) log.error({ error: errorText(error), call: call.type }, 'a call of a door failed inside')
      this.#channel.send(failedAnswer(call.id, error))
    } finally {
      this.#calls -= 1
    }
  }

  async #perform(call: Exclude<Call, RunStart>): Promise<Answer> {
    const { id } = call
    if (call.type === 'session_open') {
      const { key, rights } = await this.#engine.open(call)
      this.#sessions.add(key.session_id)
      // Its door may be gone by now, and nobody would ever close it.
      if (this.#channel.closed) await this.#engine.closeAll([key.session_id], 'peer_disconnected')
      const { capabilities, limits, roots, target } = rights
      const where = { workspace_roots: roots.map((root) => root.path), ...(target === null ? {} : { target }) }
      const json = JSON.stringify({ capabilities: capabilitiesTold(capabilities), limits, ...where })
      return { type: 'session_opened', id, session: key.session_id, json }
    }
    if (call.type === 'run_signal' || call.type === 'run_resize' || call.type === 'run_hang_up') return this.#speak(call)
    const session = this.#engine.session(this.#own(call.session))
    switch (call.type) {
      case 'session_close':
        return { type: 'done', id, json: JSON.stringify({ ended: await this.#close(session) }) }
      case 'session_refused':
        await this.#engine.refused(session.key, { method: call.method, argv: null }, new AppError(call.code, call.detail))
        return { type: 'done', id, json: '{}' }
      default: {
        const { result, data } = await answerFileCall(this.#engine, session, call)
        return { type: 'file_done', id, json: JSON.stringify(result), data }
      }
    }
  }

  /** To a program; what is over cannot be told anything. */
  #speak(call: Extract<Call, { type: 'run_signal' | 'run_resize' | 'run_hang_up' }>): Answer {
    const program = this.#runs.get(call.run)?.program ?? null
    // What is no signal is none for a program that is over either.
    if (call.type === 'run_signal') {
      const signal = signalOf(call.signal)
      program?.signal(signal)
    } else if (call.type === 'run_resize') program?.resize(call)
    else program?.hangUp()
    return { type: 'done', id: call.id, json: JSON.stringify({ told: program !== null }) }
  }

  /** A session of another channel is none of this one's. */
  #own(session: string): string {
    if (!this.#sessions.has(session)) throw new AppError('unknown_session')
    return session
  }

  /** What it says comes behind the answer. */
  async #start(call: RunStart): Promise<void> {
    const { id, run: number } = call
    if (this.#runs.has(number)) throw new AppError('malformed', `run ${number} is there already`)
    const requestId = newRequestId()
    const outlet = new RunOutlet({ channel: this.#channel }, { run: number, onClosed: () => this.#runs.delete(number) })
    this.#runs.set(number, null)
    try {
      const session = this.#engine.session(this.#own(call.session))
      const start = session.rights.target === null ? startRun : startTargetRun
      const { run, cwd, caps, begin } = await start(this.#engine, session, call, { requestId, outlet })
      const { timeout_ms, max_output_bytes } = caps
      this.#runs.set(number, run)
      const started_at = new Date(this.#engine.components.clock.now()).toISOString()
      this.#channel.send({ type: 'run_accepted', id, request_id: requestId, started_at, cwd, timeout_ms, max_output_bytes })
      begin()
    } catch (error) {
      this.#runs.delete(number)
      throw error
    }
  }

  async #close(session: LocalSession): Promise<number> {
    const ended = await this.#engine.close(session, 'cancelled')
    this.#sessions.delete(session.key.session_id)
    return ended
  }

  async #end(): Promise<void> {
    // Those that outlive their sessions do not outlive their door.
    for (const run of this.#runs.values()) run?.end('peer_disconnected')
    await this.#engine.closeAll(this.#sessions, 'peer_disconnected')
    this.#closed.resolve()
  }
}

const newRequestId = (): RequestId => {
  const id = uuidv7()
  if (!isRequestId(id)) throw new AppError('internal', 'no UUID')
  return id
}
