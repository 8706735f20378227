import { readFile, writeFile } from 'node:fs/promises'
import type { TestContext } from 'node:test'

import { systemClock } from '../../src/base/clock.ts'
import type { ExecutorClient } from '../../src/executor-api/client.ts'
import { RequesterCounters } from '../../src/exec/counters.ts'
import { ExecClient } from '../../src/exec/client.ts'
import { DetachedClient } from '../../src/exec/detached/detached-client.ts'
import { RulesClient } from '../../src/exec/rules-client.ts'
import { ExecService } from '../../src/exec/service.ts'
import type { RunChannel, RunPeer } from '../../src/exec/transport.ts'
import type { ChannelSource } from '../../src/exec/transport.ts'
import type { RequestId } from '../../src/protocol/ids.ts'
import { ExecutorHost, type HostOptions } from './executor-host.ts'
import type { FakeLink, FakeNetwork } from './fake-network.ts'
import { silent } from './processes.ts'
import { newLifecycleLog } from './lifecycle.ts'
import type { LifecycleLog } from '../../src/protocol/events/event-log.ts'

/** One end of a stream between two hosts without a network. The other end receives each message in a later turn. */
export class LocalChannel implements RunChannel {
  readonly link: RunChannel['link']
  readonly streamNonce: Uint8Array
  onBody: (requestId: RequestId, body: Uint8Array) => void = () => undefined
  onClosed: (error: Error | null) => void = () => undefined
  /** Bodies that this end sent. */
  readonly sent: Uint8Array[] = []
  /** While this is false, `send` reports backpressure. */
  room = true
  other!: LocalChannel
  #over = false
  #drain: PromiseWithResolvers<void> | null = null

  constructor(link: RunPeer, streamNonce: Uint8Array) {
    this.link = { ...link, heard: 0 }
    this.streamNonce = streamNonce
  }

  get closed(): boolean {
    return this.#over
  }

  send(requestId: RequestId, ...parts: readonly Uint8Array[]): boolean {
    const body = Buffer.concat(parts)
    if (this.#over) return true
    this.sent.push(body)
    setImmediate(() => {
      if (!this.other.#over) this.other.onBody(requestId, body)
    })
    return this.room
  }

  async drained(): Promise<void> {
    if (this.room || this.#over) return
    this.#drain ??= Promise.withResolvers<void>()
    await this.#drain.promise
  }

  makeRoom(): void {
    this.room = true
    this.#drain?.resolve()
    this.#drain = null
  }

  async close(): Promise<void> {
    this.end(null)
  }

  abort(): void {
    this.end(new Error('reset'))
  }

  /** Ends the stream on both ends. This end sees an end that the network caused. */
  end(error: Error | null): void {
    if (this.#over) return
    this.#over = true
    this.#drain?.resolve()
    setImmediate(() => {
      this.onClosed(error)
      this.other.end(error)
    })
  }
}

export interface ExecPair {
  /** Run events that the requester receives. */
  readonly lifecycle: LifecycleLog
  readonly requester: ExecutorHost
  readonly responder: ExecutorHost
  readonly runner: ExecClient
  readonly rules: RulesClient
  readonly counters: RequesterCounters
  readonly serviceCounters: RequesterCounters
  /** The network process of the current target executor. */
  responderNetwork: FakeNetwork
  readonly detached: DetachedClient
  /** Stops and restarts the target. `between` can change its files while it is down. */
  restart(between?: () => Promise<void>): Promise<void>
  /** Ends the target's network process and starts another. */
  replaceNetwork(): Promise<void>
  /** The requester's ends of the streams opened so far. */
  readonly channels: LocalChannel[]
  /** Requesters that were refused as unlisted peers. */
  readonly unlistedDenied: RunPeer[]
  /** Receives the target's end of a stream before the service sees it. */
  onIncoming: (channel: LocalChannel) => void
  /** Decides how a reconnection to the target ends. By default it opens another stream. */
  reopen: (silent: boolean, signal: AbortSignal, openChannel: () => Promise<LocalChannel>) => Promise<LocalChannel>
}

export interface PairOptions extends HostOptions {
  /** The traces that the requester keeps, and those of the target. */
  readonly traces?: ConstructorParameters<typeof DetachedClient>[0]['traces']
  readonly peerTraces?: ConstructorParameters<typeof ExecService>[0]['traces']
  /** If false, the target does not know the requester. */
  readonly befriend?: boolean
  /** If false, the target's ACL lists another agent. */
  readonly listed?: boolean
}

interface Served {
  readonly network: FakeNetwork
  readonly service: ExecService
  readonly back: FakeLink
}

/** Two hosts with real executors and child processes, without a network. The target allows what the options list. */
export const execPair = async (t: TestContext, options: PairOptions): Promise<ExecPair> => {
  const requester = await ExecutorHost.start(t, { acl: false })
  const responder = await ExecutorHost.start(t, { ...options, ...(options.listed !== false && { peers: [requester.own] }) })
  if (options.befriend !== false) await responder.befriend(requester.own)
  const asking = await requester.connect()
  const out = await asking.linkOut(responder.own)
  const peerOf = (party: typeof requester.own, number: number): RunPeer => ({
    number,
    agentId: party.signer.agentId,
    machineId: party.machine.machineId,
    agentPublicKey: party.signer.publicKey,
  })
  const [counters, serviceCounters] = [new RequesterCounters(), new RequesterCounters()]
  const unlistedDenied: RunPeer[] = []
  const serve = async (): Promise<Served> => {
    const network = await responder.connect()
    const service = new ExecService({
      executor: network.client,
      counters: serviceCounters,
      log: silent,
      traces: options.peerTraces ?? null,
      onUnlistedDenied: (peer) => unlistedDenied.push(peer),
    })
    return { network, service, back: await network.link(requester.own) }
  }
  let served = await serve()
  const serveAgain = async (): Promise<void> => {
    served = await serve()
    pair.responderNetwork = served.network
  }
  const channels: LocalChannel[] = []
  const openChannel = async (): Promise<LocalChannel> => {
    const { back, service } = served
    const nonce = await back.nonce()
    const [ours, theirs] = [
      new LocalChannel(peerOf(responder.own, out.number), nonce),
      new LocalChannel(peerOf(requester.own, back.number), nonce),
    ]
    ours.other = theirs
    theirs.other = ours
    theirs.onBody = (requestId, body) => service.onBody(theirs, requestId, body)
    channels.push(ours)
    pair.onIncoming(theirs)
    return ours
  }
  const reopenChannel: ChannelSource['reopenChannel'] = async (_to, silent, signal) => pair.reopen(silent, signal, openChannel)
  const lifecycle = newLifecycleLog()
  const parts = {
    links: { isLinked: () => true, openChannel, reopenChannel },
    executor: asking.client,
    clock: systemClock,
    counters,
    lifecycle,
  }
  const runner = new ExecClient({ ...parts, traces: options.traces ?? null })
  const rules = new RulesClient(parts)
  const pair: ExecPair = {
    requester,
    responder,
    lifecycle,
    runner,
    rules,
    counters,
    serviceCounters,
    responderNetwork: served.network,
    detached: new DetachedClient({ ...parts, traces: options.traces ?? null }),
    restart: async (between = async () => undefined) => {
      await responder.stop()
      await between()
      await responder.boot()
      await serveAgain()
    },
    replaceNetwork: async () => {
      served.network.client.stop()
      await serveAgain()
    },
    channels,
    unlistedDenied,
    onIncoming: () => undefined,
    reopen: async (_silent, _signal, open) => open(),
  }
  return pair
}

export interface OwnHost {
  readonly host: ExecutorHost
  readonly runner: ExecClient
  readonly counters: RequesterCounters
  readonly client: ExecutorClient
}

/** A host that allows its own agent the commands of the options, and a runner that knows only this host. */
export const ownHost = async (t: TestContext, options: HostOptions): Promise<OwnHost> => {
  const host = await ExecutorHost.start(t, options)
  await host.stop()
  const acl = await readFile(host.aclPath, 'utf8')
  const { signer, machine } = host.peer
  const ours = acl.replaceAll(signer.agentId, host.own.signer.agentId).replaceAll(machine.machineId, host.own.machine.machineId)
  await writeFile(host.aclPath, ours)
  await host.boot()
  const { client } = await host.connect()
  const counters = new RequesterCounters()
  return {
    host,
    counters,
    client,
    runner: new ExecClient({ links: null, executor: client, clock: systemClock, counters, lifecycle: newLifecycleLog(), traces: null }),
  }
}
