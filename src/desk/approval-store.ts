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
/** A change that somebody else's change has crossed is made anew so often. */
const ATTEMPTS = 5

export interface ApprovalStoreComponents {
  readonly clock: Clock
  readonly log: Logger
  readonly journal: Pick<Journal, 'append'>
}

export interface ApprovalStoreInit {
  readonly path: string
  /** Told in the file, for other programs. */
  readonly socketPath: string
}

export type Change = Omit<StoreChangedEvent, 'event'>

/**
 * What humans have allowed for longer. The file is looked at before each answer, and is never written over where it is not
 * sound: then nothing is allowed. Changes are made one after another, each to the file as it then stands, and each is in the
 * journal before it is made, when its bytes are on the disk: a crash in between leaves a line too many, and never a change too many.
 */
export class ApprovalStore implements Startable {
  readonly #components: ApprovalStoreComponents
  readonly #init: ApprovalStoreInit
  #known: StoredStore | null = null
  #problem: string | null = null
  #turn: Promise<unknown> = Promise.resolve()
  readonly #uses = new Map<string, LastUse>()
  #timer: Timer | null = null

  constructor(components: ApprovalStoreComponents, init: ApprovalStoreInit) {
    this.#components = components
    this.#init = init
  }

  /** Makes the file where there is none. One that is not sound is no reason not to start: it is said, and nothing is allowed. */
  async start(): Promise<void> {
    const missing = await loadStore(this.#init.path).then(
      () => false,
      (error: unknown) => isAppError(error, 'not_found'),
    )
    if (missing) await this.#create()
    await this.read().catch(() => undefined)
  }

  /** Writes what was last used, where it can. */
  async stop(): Promise<void> {
    this.#timer?.cancel()
    this.#timer = null
    if (this.#uses.size > 0) await this.#writeUses()
    await this.#turn
  }

  /** The store as the file has it now. Throws `bad_approvals`, `loose_permissions`, `not_found`. */
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
   * Makes a change of the store as it then stands; `change` answers null where there is nothing to do. Resolves to whether it
   * was made. `announced`: written down with it, before it is made. Throws as `read`, `journal_unavailable`, what `change` throws, `conflict` where others change it all the time.
   */
  async change(what: Change, change: (store: Store) => Store | null, announced?: () => Promise<void>): Promise<boolean> {
    const made = this.#turn.then(async () => this.#change(what, change, announced))
    this.#turn = made.catch(() => undefined)
    return made
  }

  /** What decides nothing: written together with others, and lost with a crash. */
  lastUsed(use: LastUse): void {
    if (this.#uses.size >= MAX_GRANTS) return
    this.#uses.set(JSON.stringify([use.agent, use.pattern, use.grant_id]), use)
    this.#timer ??= this.#components.clock.setTimeout(() => void this.#writeUses(), LAST_USED_WRITE_MS, { unref: true })
  }

  async #writeUses(): Promise<void> {
    this.#timer = null
    const uses = [...this.#uses.values()]
    this.#uses.clear()
    const what: Change = { change: 'last_used', by: 'desk', agent: null, detail: `${uses.length}` }
    await this.change(what, (store) => withLastUses(store, uses)).catch((error: unknown) =>
      this.#components.log.warn({ err: errorText(error) }, 'what was last used was not written to the store of approvals'),
    )
  }

  async #change(what: Change, change: (store: Store) => Store | null, announced?: () => Promise<void>): Promise<boolean> {
    const { path } = this.#init
    let isAnnounced = false
    const announce = async (): Promise<void> => {
      if (isAnnounced) return
      await this.#components.journal.append({ event: 'store_changed', ...what })
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
    const { journal, log } = this.#components
    try {
      await journal.append({ event: 'store_changed', change: 'created', by: 'desk', agent: null, detail: path })
      await createFileAtomic(path, storeText(newStore(socketPath, randomBytes(TOKEN_BYTES))), PRIVATE)
    } catch (error) {
      log.error({ err: errorText(error) }, 'the store of approvals could not be made')
    }
  }

  /** Said once, and once that it is well again. */
  #record(problem: string | null): void {
    if (problem === this.#problem) return
    const { log } = this.#components
    if (problem !== null) log.error({ problem }, 'the store of approvals cannot be used: whatever must be asked is denied')
    else log.warn({}, 'the store of approvals can be used again')
    this.#problem = problem
  }
}

/** What is said to whoever asked while the store is not sound. */
export const storeProblem = (error: unknown): string =>
  error instanceof AppError ? `the store of approvals cannot be used: ${error.message}` : 'the store of approvals cannot be used'
