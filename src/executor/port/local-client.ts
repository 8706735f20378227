import type { Duplex } from 'node:stream'

import { AppError, errorText, isAppError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { NO_BYTES } from '../../protocol/schema.ts'
import { PortChannel } from './codec.ts'
import { localFrame, toLocalDoor, toLocalExecutor, type LocalFrame, type ToLocalDoor, type ToLocalExecutor } from './local-messages.ts'
import { PendingCalls } from './pending-calls.ts'

/** Which answer belongs to which call. */
const ANSWERS = {
  session_open: 'session_opened',
  session_close: 'done',
  run_start: 'run_accepted',
  run_signal: 'done',
  run_resize: 'done',
  run_hang_up: 'done',
  session_refused: 'done',
  file_read: 'file_done',
  file_write: 'file_done',
  file_list: 'file_done',
  file_glob: 'file_done',
  file_stat: 'file_done',
  file_edit: 'file_done',
  file_patch: 'file_done',
} as const satisfies Partial<Record<ToLocalExecutor['type'], ToLocalDoor['type']>>
type Answers = typeof ANSWERS
export type LocalCall = keyof Answers
type WithoutId<T> = T extends unknown ? Omit<T, 'type' | 'id'> : never
export type LocalArguments<C extends LocalCall> = WithoutId<Extract<ToLocalExecutor, { type: C }>>
export type LocalAnswer<C extends LocalCall> = WithoutId<Extract<ToLocalDoor, { type: Answers[C] }>>

/** What the port does not carry would end it for everybody: bytes are counted there, and all text is Unicode. Throws `bad_request`. */
const checkCall = <C extends LocalCall>(type: C, call: LocalArguments<C>): void => {
  try {
    toLocalExecutor.decode(toLocalExecutor.encode({ type, id: 0, ...call } as unknown as ToLocalExecutor))
  } catch (error) {
    if (!isAppError(error, 'malformed')) throw error
    throw new AppError('bad_request', error.message.replace(/^to-local-executor\.\w+\./, ''), { cause: error })
  }
}

/** What happens to a run that was started here. */
export interface LocalRunListener {
  onFrame(frame: LocalFrame): void
  /** Nothing more comes; once. */
  onClosed(): void
}

/** A door's end of the port: calls as promises, runs as frames. */
export class LocalExecutorClient {
  readonly #channel: PortChannel<ToLocalDoor, ToLocalExecutor>
  readonly #log: Logger
  readonly #calls = new PendingCalls()
  readonly #runs = new Map<number, LocalRunListener>()
  readonly #closed = Promise.withResolvers<Error | null>()
  #lastRun = 0

  constructor(components: { duplex: Duplex; log: Logger }) {
    this.#log = components.log
    this.#channel = new PortChannel(
      { duplex: components.duplex, incoming: toLocalDoor, outgoing: toLocalExecutor },
      {
        onMessage: (message) => this.#guard(() => this.#receive(message)),
        onMalformed: (_payload, error) => this.#channel.close(new AppError('malformed', errorText(error))),
        onClosed: (error) => this.#end(error),
        holdWhenBehind: false,
      },
    )
  }

  /** Resolves when the port is gone: null when it ended cleanly. */
  get closed(): Promise<Error | null> {
    return this.#closed.promise
  }

  stop(): void {
    this.#channel.close()
  }

  /** Rejects with the executor's own error. */
  async call<C extends LocalCall>(type: C, call: LocalArguments<C>): Promise<LocalAnswer<C>> {
    if (this.#channel.closed) throw new AppError('shutting_down', 'the executor is gone')
    checkCall(type, call)
    const { id, answer } = this.#calls.begin(ANSWERS[type])
    this.#channel.send({ type, id, ...call } as unknown as ToLocalExecutor)
    const { type: _type, id: _id, ...rest } = await answer
    return rest as unknown as LocalAnswer<C>
  }

  /** A number for a run to be started with; what happens to it is told from then on. */
  expectRun(listener: LocalRunListener): number {
    const run = ++this.#lastRun
    this.#runs.set(run, listener)
    return run
  }

  /** It was not accepted: nothing is told of it. */
  forgetRun(run: number): void {
    this.#runs.delete(run)
  }

  /** False = the channel is full: wait for `drained()`; the frame was taken all the same. */
  sendFrame(run: number, frame: Extract<LocalFrame, { type: 'ack' | 'stdin' | 'cancel' }>): boolean {
    return this.#channel.send({ type: 'run_frame', run, frame: NO_BYTES }, localFrame.encode(frame))
  }

  async drained(): Promise<void> {
    return this.#channel.drained()
  }

  #guard(work: () => void): void {
    try {
      work()
    } catch (error) {
      this.#log.error({ err: errorText(error) }, 'a listener of the port failed')
    }
  }

  #receive(message: ToLocalDoor): void {
    switch (message.type) {
      case 'run_frame':
        return this.#runs.get(message.run)?.onFrame(localFrame.decode(message.frame))
      case 'run_closed':
        return this.#closeRun(message.run)
      default:
        if (!this.#calls.settle(message)) this.#log.warn({ id: message.id, type: message.type }, 'an answer to no call of ours')
    }
  }

  #closeRun(run: number): void {
    const listener = this.#runs.get(run)
    this.#runs.delete(run)
    listener?.onClosed()
  }

  #end(error: Error | null): void {
    this.#calls.fail(error)
    for (const run of this.#runs.keys()) this.#guard(() => this.#closeRun(run))
    this.#closed.resolve(error)
  }
}
