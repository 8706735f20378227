import type { TestContext } from 'node:test'
import { chmod, readFile, writeFile } from 'node:fs/promises'

import { systemClock, type Clock } from '../../src/base/clock.ts'
import { startAll, stopAll } from '../../src/base/startable.ts'
import { DeskSocketLink } from '../../src/desk/engine-client.ts'
import type { DeskLink } from '../../src/desk/desk-link.ts'
import { openDesk as open } from '../../src/desk/open-desk.ts'
import { openDesk as openHuman, type ApprovalClient } from '../../src/clients/desk.ts'
import { pathsIn, type DataPaths } from '../../src/clients/paths.ts'
import type { ApprovalRequest } from '../../src/protocol/desk/approval-request.ts'
import { silent } from './processes.ts'
import { questionOf } from './approval-request.ts'
import { tempDir } from './temp-dir.ts'

/** The approval store as an operator sees it, which can be any JSON. */
type StoreJson = Record<string, ReturnType<typeof JSON.parse>>

export const OPERATOR_KEY = new Uint8Array(32).fill(7)

/** An approval service that runs in this process with a temporary data directory. */
export interface DeskPlaceHandle {
  readonly paths: DataPaths
  /** The link that the engine in the same process uses. */
  readonly link: DeskLink
  engine(name?: string): DeskSocketLink
  human(name?: string): Promise<ApprovalClient>
  /** The lines of the approval log, as objects. */
  journal(): Promise<Record<string, unknown>[]>
  /** The content of the store's file. */
  store(): Promise<StoreJson>
  /** Changes the file of the store, as an operator would do by hand. */
  writeStore(change: (store: StoreJson) => void): Promise<void>
  stop(): Promise<void>
  restart(): Promise<void>
}

export interface DeskPlaceInit {
  readonly askTimeoutMs?: number
  readonly clock?: Clock
  readonly dir?: string
  /** The directory of the approval log, if it differs from the data directory. */
  readonly journal?: string
  /** The default security mode in the store. By default, unlisted commands need an approval. */
  readonly security?: string
}

const lines = (text: string): Record<string, unknown>[] =>
  text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Record<string, unknown>)

export const deskPlace = async (t: Pick<TestContext, 'after'>, init: DeskPlaceInit = {}): Promise<DeskPlaceHandle> => {
  const { askTimeoutMs = 120_000, clock = systemClock, security = 'allowlist' } = init
  const own = pathsIn(init.dir ?? (await tempDir(t)))
  const paths = { ...own, approvalsJournal: pathsIn(init.journal ?? own.dir).approvalsJournal }
  await chmod(paths.dir, 0o700)
  await writeFile(paths.operatorKey, `${'07'.repeat(32)}\n`, { mode: 0o600 })
  const make = () => open({ clock, log: silent }, { paths, operatorKey: async () => OPERATOR_KEY, askTimeoutMs, signer: null })
  let desk = make()
  const clients: { close(): void }[] = []
  await startAll(desk.entries)
  const stop = async (): Promise<void> => {
    for (const client of clients.splice(0)) client.close()
    await stopAll(desk.entries)
  }
  t.after(stop)
  const store = async (): Promise<StoreJson> => JSON.parse(await readFile(paths.approvals, 'utf8'))
  const writeStore = async (change: (store: StoreJson) => void): Promise<void> => {
    const now = await store()
    change(now)
    await writeFile(paths.approvals, JSON.stringify(now, null, 2))
  }
  await writeStore((now) => (now['defaults'].security = security))
  return {
    paths,
    get link() {
      return desk.link('in process')
    },
    engine: (name = 'engine') => {
      const link = new DeskSocketLink({ ...paths, name })
      clients.push(link)
      return link
    },
    human: async (name = 'terminal') => {
      const human = await openHuman(paths, name)
      clients.push(human)
      return human
    },
    journal: async () => lines(await readFile(paths.approvalsJournal, 'utf8')),
    store,
    writeStore,
    stop,
    restart: async () => {
      await stop()
      desk = make()
      await startAll(desk.entries)
    },
  }
}

/** An approval request that waits, and an approver who has received it. */
export const questionWaiting = async (place: DeskPlaceHandle, question: ApprovalRequest = questionOf(), human?: ApprovalClient) => {
  const told = human ?? (await place.human())
  await told.subscribe(() => undefined)
  const pending = Promise.withResolvers<{ question_id: string }>()
  const asked = place.engine().ask(question, new AbortController().signal, pending.resolve)
  return { human: told, asked, question_id: (await pending.promise).question_id }
}
