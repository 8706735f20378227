import { chmod, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'

import { Journal } from '../../src/journal/journal.ts'
import { RunningMarks } from '../../src/journal/running-marks.ts'
import { systemClock, type Clock } from '../../src/base/clock.ts'
import type { Logger } from '../../src/base/log.ts'
import type { DeskLink } from '../../src/desk/desk-link.ts'
import { ExecCounters, type ExecTotals } from '../../src/executor/exec-counters.ts'
import type { NetworkSession } from '../../src/executor/network-session.ts'
import { DetachedRequestStore } from '../../src/executor/requested-detached.ts'
import { Executor } from '../../src/executor/executor.ts'
import { decodeOperatorKey, OPERATOR_KEY_FILE, proveOperation } from '../../src/identity/operator-proof.ts'
import { ASKED_BYTES } from '../../src/protocol/limits/daemon.ts'
import { loadAcl } from '../../src/policy/mesh/load-acl.ts'
import type { ProcessTrees } from '../../src/process/process-trees.ts'
import { CleanupProcess } from '../../src/process/cleanup-process.ts'
import { Contacts } from '../../src/trust/contacts.ts'
import { Revocations } from '../../src/trust/revocations.ts'
import { commandText } from './acl-text.ts'
import { FakeNetwork, type FakeLink, newParty, portPair, type Party } from './fake-network.ts'
import { wholeLines, isLifeEvent, type MeshLine } from './journal.ts'
import { groupCells, silent } from './processes.ts'

export interface HostOptions {
  /** Shell programs by name. Every peer may run each without arguments. Default: `hello`. */
  readonly scripts?: Readonly<Record<string, string>>
  /** Other allowed argvs. */
  readonly commands?: readonly (readonly string[])[]
  /** The agents that the ACL lists, trusted and pinned. Default: one peer. */
  readonly peers?: readonly Party[]
  /** Lines of `[exec]`. */
  readonly keys?: string
  /** Lines of each `[[exec.allow]]`. */
  readonly entryKeys?: string
  /** Commands may run on a terminal. */
  readonly terminals?: boolean
  /** Lines of each command. */
  readonly commandKeys?: string
  readonly enabled?: boolean
  /** The ACL also lists the host's own agent. */
  readonly listOwn?: boolean
  /** If false, the host has no ACL file. */
  readonly acl?: boolean
  readonly clock?: Clock
  /** Only the operator may have requests signed. */
  readonly requireOperatorProof?: boolean
  /** The approval service for runs that need an approval. Default: none. */
  readonly desk?: DeskLink
  /** Receives the executor's log. By default it is discarded. */
  readonly log?: Logger
  /** Default: process groups. */
  readonly trees?: ProcessTrees
}

/** An executor with real keys, files, audit log and programs, and a fake network process on its port. */
export class ExecutorHost {
  readonly dir: string
  readonly own: Party = newParty()
  readonly peers: readonly Party[]
  readonly #options: HostOptions
  contacts!: Contacts
  revocations!: Revocations
  counters!: ExecCounters
  executor!: Executor
  journal: Journal | null = null
  /** The request log of this host. */
  outgoing!: Journal
  /** The executor's side of each connection. */
  readonly sessions: NetworkSession[] = []
  #cleanup!: CleanupProcess

  constructor(dir: string, options: HostOptions) {
    this.dir = dir
    this.#options = options
    this.peers = options.peers ?? [newParty()]
  }

  static async start(t: TestContext, options: HostOptions = {}): Promise<ExecutorHost> {
    const host = new ExecutorHost(await mkdtemp(join(tmpdir(), 'x0x-test-')), options)
    await mkdir(join(host.dir, 'bin'), { mode: 0o700 })
    for (const [name, text] of Object.entries(host.scripts)) {
      await writeFile(host.program(name), `#!/bin/sh\n${text}\n`)
      await chmod(host.program(name), 0o755)
    }
    await writeFile(host.aclPath, host.#aclText(), { mode: 0o600 })
    t.after(async () => {
      // Without a network process, requesters cannot confirm Exits, so a stop need not wait for them.
      await Promise.all(host.sessions.map(async (session) => session.finish()))
      await host.stop()
      await rm(host.dir, { recursive: true, force: true, maxRetries: 10 })
    })
    await host.boot()
    return host
  }

  /** A host whose first peer is trusted, pinned and linked. */
  static async linked(t: TestContext, options: HostOptions = {}): Promise<{ host: ExecutorHost; network: FakeNetwork; link: FakeLink }> {
    const host = await ExecutorHost.start(t, options)
    await host.befriend(host.peer)
    const network = await host.connect()
    return { host, network, link: await network.link(host.peer) }
  }

  get scripts(): Readonly<Record<string, string>> {
    return this.#options.scripts ?? { hello: 'echo hi' }
  }

  /** The first peer. */
  get peer(): Party {
    return this.peers[0]!
  }

  get aclPath(): string {
    return join(this.dir, 'exec-acl.toml')
  }

  get journalPath(): string {
    return join(this.dir, 'log', 'exec.log')
  }

  get outgoingPath(): string {
    return join(this.dir, 'requests.jsonl')
  }

  program(name: string): string {
    return join(this.dir, 'bin', name)
  }

  /** Starts with the files that exist, both at first and after `stop`. */
  async boot(): Promise<void> {
    const clock = this.#options.clock ?? systemClock
    const trees = this.#options.trees ?? (await groupCells())
    const path = this.#options.acl === false ? join(this.dir, 'none') : this.aclPath
    const acl = await loadAcl({ path, explicit: false, judge: trees.judge })
    this.contacts = new Contacts({ path: join(this.dir, 'contacts.json') })
    this.revocations = new Revocations({ path: join(this.dir, 'revocations.json') })
    this.counters = new ExecCounters({ clock })
    this.#cleanup = new CleanupProcess({ log: silent })
    this.journal =
      acl.acl.audit_log_path === null
        ? null
        : new Journal(
            { clock, log: silent },
            {
              path: acl.acl.audit_log_path,
              marks: new RunningMarks({ log: silent }, { directory: join(this.dir, 'running'), journal: acl.acl.audit_log_path }),
            },
          )
    this.outgoing = new Journal({ clock, log: silent }, { path: this.outgoingPath, marks: null, rate: ASKED_BYTES })
    await this.contacts.load()
    await this.revocations.load()
    await this.journal?.start()
    await this.outgoing.start()
    this.#cleanup.start()
    const asked = new DetachedRequestStore({ clock, log: silent }, { path: join(this.dir, 'detached-runs.json') })
    await asked.load()
    this.executor = new Executor(
      {
        acl,
        asked,
        trees,
        clock,
        contacts: this.contacts,
        counters: this.counters,
        desk: this.#options.desk ?? null,
        cleanup: this.#cleanup,
        journal: this.journal,
        log: this.#options.log ?? silent,
        outgoing: this.outgoing,
        revocations: this.revocations,
        signer: this.own.signer,
      },
      { dataDir: this.dir, machineId: this.own.machine.machineId, requireOperatorProof: this.#options.requireOperatorProof ?? false },
    )
    await this.executor.start()
  }

  async stop(): Promise<void> {
    await this.executor.stop()
    await this.#cleanup.stop()
    await this.journal?.stop()
    await this.outgoing.stop()
  }

  /** Connects a network process, which has completed the greeting. */
  async connect([ours, theirs] = portPair()): Promise<FakeNetwork> {
    this.sessions.push(this.executor.attach(ours))
    const network = new FakeNetwork(theirs)
    await network.client.start()
    return network
  }

  /** Trusts a peer and pins it to its machine, as exec requires. */
  async befriend(peer: Party, name = `peer-${peer.signer.agentId.slice(0, 8)}`): Promise<void> {
    await this.contacts.importCard(
      {
        agentId: peer.signer.agentId,
        machineId: peer.machine.machineId,
        name,
        addresses: [],
        issuedAt: Date.now(),
        expiresAt: Date.now() + 60_000,
        publicKey: peer.signer.publicKey,
      },
      { name, trust: 'trusted' },
    )
    await this.contacts.pin(name, peer.machine.machineId)
  }

  /** A proof by the operator of this host. */
  async prove(operation: string, body: Uint8Array, at = Date.now()): Promise<string> {
    const key = decodeOperatorKey(await readFile(join(this.dir, OPERATOR_KEY_FILE), 'latin1'))
    if (key === null) throw new Error('no operator key')
    return proveOperation(key, operation, body, at)
  }

  /** The counters of `/diagnostics/exec`. */
  totals(): ExecTotals {
    const acl_summary = {
      loaded_from: '',
      loaded_at: null,
      sha256: null,
      signature: null,
      allow_entry_count: 0,
      command_entry_count: 0,
      disabled_reason: null,
    }
    return this.counters.snapshot({ enabled: true, acl_summary, journal: null }).totals
  }

  async lines(): Promise<MeshLine[]> {
    const text = await readFile(this.journalPath, 'utf8')
    return wholeLines(text)
      .map((line) => JSON.parse(line) as MeshLine)
      .filter((line) => !isLifeEvent(line))
  }

  async events(requestId: string): Promise<string[]> {
    return (await this.lines()).filter((line) => line.request_id === requestId).map((line) => line.event)
  }

  #aclText(): string {
    const commands = [...Object.keys(this.scripts).map((name) => [this.program(name)]), ...(this.#options.commands ?? [])]
    const entry = (peer: Party): string =>
      `[[exec.allow]]\ndescription = "a peer"\nagent_id = "${peer.signer.agentId}"\nmachine_id = "${peer.machine.machineId}"\n` +
      `${this.#options.entryKeys ?? ''}\n${commands.map((argv) => `${commandText(argv)}${this.#options.terminals === true ? 'terminal = true\n' : ''}${this.#options.commandKeys ?? ''}`).join('')}`
    const listed = this.#options.listOwn ? [...this.peers, this.own] : this.peers
    const head = `[exec]\nenabled = ${this.#options.enabled ?? true}\naudit_log_path = "${this.journalPath}"\ndefault_cwd = "/"\n`
    return `${head}${this.#options.keys ?? ''}\n${listed.map(entry).join('\n')}`
  }
}
