import type { Clock, Timer } from '../base/clock.ts'
import { AppError, errorText, isAppError } from '../base/errors.ts'
import { createFileAtomic } from '../base/files.ts'
import type { Logger } from '../base/log.ts'
import type { Startable } from '../base/startable.ts'
import { randomBytes } from '../identity/hash.ts'
import type { StoreChangedEvent } from '../journal/desk-events.ts'
import type { Journal } from '../journal/journal.ts'
import { LAST_USED_WRITE_MS, MAX_GRANTS } from '../protocol/limits/approvals.ts'
import { type LastUse, type Store, type StoredStore, loadStore, newStore, replaceStore, storeText, withLastUses } from './store-format.ts'

const TOKEN_BYTES = 32
const PRIVATE = 0o600
/** How often a change is repeated if another process changed the file meanwhile. */
const ATTEMPTS = 5

export interface ApprovalStoreComponents {
  readonly clock: Clock
  readonly log: Logger
  readonly journal: Pick<Journal, 'append'>
}

export interface ApprovalStoreInit {
  readonly path: string
  /** Written into the file, for other programs. */
  readonly socketPath: string
}

export type Change = Omit<StoreChangedEvent, 'event'>

/**
 * Lasting approvals in a file, which is read again before each decision. A damaged file is never overwritten, and no run is allowed until
 * it is repaired. Changes are made one after another. Each is logged before it is made, so a crash can leave an extra log line but never an
 * unlogged change.
 */
export class ApprovalStore implements Startable {
  readonly #deps: ApprovalStoreComponents
  readonly #init: ApprovalStoreInit
  #known: StoredStore | null = null
  #problem: string | null = null
  #turn: Promise<unknown> = Promise.resolve()
  readonly #uses = new Map<string, LastUse>()
  #timer: Timer | null = null

  constructor(deps: ApprovalStoreComponents, init: ApprovalStoreInit) {
    this.#deps = deps
    this.#init = init
  }

  /** Creates the file if it is missing. A damaged file is logged and does not prevent the start. */
  async start(): Promise<void> {
    const missing = await loadStore(this.#init.path).then(
      () => false,
      (error: unknown) => isAppError(error, 'not_found'),
    )
    if (missing) await this.#create()
    await this.read().catch(() => undefined)
  }

  /** Writes the pending times of last use, if possible. */
  async stop(): Promise<void> {
    this.#timer?.cancel()
    this.#timer = null
    if (this.#uses.size > 0) await this.#writeUses()
    await this.#turn
  }

  /** Reads the current file. Throws `bad_approvals`, `loose_permissions`, `not_found`. */
  async read(): Promise<Store> {
    try {
      this.#known = await loadStore(this.#init.path, this.#known)
      this.#record(null)
      return this.#known.store
    } catch (error) {
      this.#known = null
      this.#record(errorText(error))
      throw error
    }
  }

  /**
   * Changes the current store. `change` returns null for an unchanged store. The result says whether a change was made. `announced` logs
   * more before the change is made. Throws errors of `read` and `change`, `journal_unavailable`, and `conflict` if other processes keep
   * changing the file.
   */
  async change(what: Change, change: (store: Store) => Store | null, announced?: () => Promise<void>): Promise<boolean> {
    const made = this.#turn.then(async () => this.#change(what, change, announced))
    this.#turn = made.catch(() => undefined)
    return made
  }

  /** Records a last use. It affects no decision, so uses are written in batches and may be lost in a crash. */
  lastUsed(use: LastUse): void {
    if (this.#uses.size >= MAX_GRANTS) return
    this.#uses.set(JSON.stringify([use.agent, use.pattern, use.grant_id]), use)
    this.#timer ??= this.#deps.clock.setTimeout(() => void this.#writeUses(), LAST_USED_WRITE_MS, { unref: true })
  }

  async #writeUses(): Promise<void> {
    this.#timer = null
    const uses = [...this.#uses.values()]
    this.#uses.clear()
    const what: Change = { change: 'last_used', by: 'desk', agent: null, detail: `${uses.length}` }
    await this.change(what, (store) => withLastUses(store, uses)).catch((error: unknown) =>
      this.#deps.log.warn({ err: errorText(error) }, 'the last uses were not written to the approval store'),
    )
  }

  async #change(what: Change, change: (store: Store) => Store | null, announced?: () => Promise<void>): Promise<boolean> {
    const { path } = this.#init
    let isAnnounced = false
    const announce = async (): Promise<void> => {
      if (isAnnounced) return
      await this.#deps.journal.append({ event: 'store_changed', ...what })
      await announced?.()
      isAnnounced = true
    }
    for (let attempt = 1; ; attempt++) {
      await this.read()
      const before = this.#known
      const next = before === null ? null : change(before.store)
      if (before === null || next === null) return false
      try {
        this.#known = await replaceStore(path, before, next, announce)
        return true
      } catch (error) {
        if (!isAppError(error, 'conflict') || attempt === ATTEMPTS) throw error
      }
    }
  }

  async #create(): Promise<void> {
    const { path, socketPath } = this.#init
    const { journal, log } = this.#deps
    try {
      await journal.append({ event: 'store_changed', change: 'created', by: 'desk', agent: null, detail: path })
      await createFileAtomic(path, storeText(newStore(socketPath, randomBytes(TOKEN_BYTES))), PRIVATE)
    } catch (error) {
      log.error({ err: errorText(error) }, 'cannot create the approval store')
    }
  }

  /** Logs a problem once, and once its end. */
  #record(problem: string | null): void {
    if (problem === this.#problem) return
    const { log } = this.#deps
    if (problem !== null) log.error({ problem }, 'the approval store cannot be used: requests that need approval are denied')
    else log.warn({}, 'the approval store can be used again')
    this.#problem = problem
  }
}

/** The message for requesters while the store cannot be used. */
export const storeProblem = (error: unknown): string =>
  error instanceof AppError ? `the approval store cannot be used: ${error.message}` : 'the approval store cannot be used'
