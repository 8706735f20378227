import type { AskedNews, AskedPage, AskedRun } from '../protocol/asked-run.ts'
import type { RequestId } from '../protocol/ids.ts'
import type { Answer, Arguments } from './answers.ts'
import type { ASKED_ANSWERS } from './asked-messages.ts'

type AskedCall = keyof typeof ASKED_ANSWERS

/** The file of detached runs that this daemon asked for, as the network's half reaches it. */
export class AskedCalls {
  readonly #call: <C extends AskedCall>(type: C, call: Arguments<C>) => Promise<Answer<C>>

  constructor(call: <C extends AskedCall>(type: C, call: Arguments<C>) => Promise<Answer<C>>) {
    this.#call = call
  }

  /** Answers when it is on the disk: whether it is new. Throws `conflict`, `rate_limited`, `bad_runs`. */
  async add(run: Arguments<'asked_add'>): Promise<boolean> {
    return this.#result('asked_add', run)
  }

  /** All of them, the oldest first. Throws `bad_runs`. */
  async list(): Promise<AskedRun[]> {
    const all: AskedRun[] = []
    for (;;) {
      const { runs, more } = await this.#result<AskedPage, 'asked_page'>('asked_page', { after: all.at(-1)?.request_id ?? null })
      all.push(...runs)
      if (!more) return all
    }
  }

  /** Throws `unknown_run`, `bad_runs`. */
  async get(request_id: RequestId): Promise<AskedRun> {
    return this.#result('asked_get', { request_id })
  }

  /** What was heard of it; answers what is known now. Throws as `get`. */
  async note(request_id: RequestId, { state, code, signal, denial_reason }: AskedNews): Promise<AskedRun> {
    return this.#result('asked_note', { request_id, state, code, signal, denial_reason })
  }

  /** Throws as `get`. */
  async forget(request_id: RequestId): Promise<AskedRun> {
    return this.#result('asked_forget', { request_id })
  }

  async #result<T, C extends AskedCall>(type: C, call: Arguments<C>): Promise<T> {
    const { json } = await this.#call(type, call)
    return JSON.parse(json) as T
  }
}
