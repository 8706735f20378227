import { randomBytes } from 'node:crypto'
import { setImmediate as nextTurn } from 'node:timers/promises'

import type { Clock } from '../../src/base/clock.ts'
import { RequesterCounters } from '../../src/exec/counters.ts'
import { ExecClient } from '../../src/exec/client.ts'
import type { RunEvent, RunOutcome, RunSink, RunSpec, StdinSource } from '../../src/exec/run-spec.ts'
import type { RunChannel, RunPeer } from '../../src/exec/transport.ts'
import { sha256 } from '../../src/identity/hash.ts'
import { pieceHashes } from '../../src/identity/piece-hashes.ts'
import {
  EXEC_EXIT_DOMAIN,
  EXEC_REQUEST_DOMAIN,
  decodeExecBody,
  execExit,
  execRequest,
  type ExecExit,
  type ExecFrame,
  type ExecFrameType,
} from '../../src/protocol/wire/exec.ts'
import type { RequestId } from '../../src/protocol/ids.ts'
import { newParty, type Party } from './fake-network.ts'
import { encodeExecBody } from './exec-frames.ts'
import { newLifecycleLog } from './lifecycle.ts'
import { fake } from './fake.ts'

type FrameOf<T extends ExecFrameType> = Extract<ExecFrame, { type: T }>

/** The target's end of one stream. The test decides what it sends, honest or not. */
export class ScriptedPeer implements RunChannel {
  readonly party: Party
  readonly requester: Party
  readonly link: RunPeer & { heard: number }
  readonly streamNonce = new Uint8Array(randomBytes(32))
  readonly frames: ExecFrame[] = []
  onBody: (requestId: RequestId, body: Uint8Array) => void = () => undefined
  onClosed: (error: Error | null) => void = () => undefined
  /** How the requester left the stream. */
  left: 'closed' | 'aborted' | null = null
  /** The free space that the requester's stream reports. */
  room = true
  readonly #waiting: { type: ExecFrameType; resolve: (frame: ExecFrame) => void }[] = []
  #drain: PromiseWithResolvers<void> | null = null
  #taken = 0
  /** The run's Request, if it arrived on an earlier stream. */
  readonly #earlier: FrameOf<'request'> | null

  constructor(init: { party?: Party; requester: Party; request?: FrameOf<'request'> }) {
    this.#earlier = init.request ?? null
    this.party = init.party ?? newParty()
    this.requester = init.requester
    const { signer, machine } = this.party
    this.link = { number: 1, agentId: signer.agentId, machineId: machine.machineId, agentPublicKey: signer.publicKey, heard: 0 }
  }

  send(_requestId: RequestId, ...parts: readonly Uint8Array[]): boolean {
    const body = Buffer.concat(parts)
    const frame = decodeExecBody(body)
    this.frames.push(frame)
    const index = this.#waiting.findIndex(({ type }) => type === frame.type)
    if (index !== -1) this.#waiting.splice(index, 1)[0]!.resolve(frame)
    return this.room
  }

  async drained(): Promise<void> {
    if (this.room) return
    this.#drain ??= Promise.withResolvers<void>()
    await this.#drain.promise
  }

  makeRoom(): void {
    this.room = true
    this.#drain?.resolve()
  }

  async close(): Promise<void> {
    this.left ??= 'closed'
  }

  abort(): void {
    this.left ??= 'aborted'
  }

  /** The first frame of a type that the test has not taken with `next` before. */
  async next<T extends ExecFrameType>(type: T): Promise<FrameOf<T>> {
    const index = this.frames.findIndex((frame, at) => at >= this.#taken && frame.type === type)
    if (index !== -1) {
      this.#taken = index + 1
      return this.frames[index] as FrameOf<T>
    }
    const frame = await new Promise<ExecFrame>((resolve) => this.#waiting.push({ type, resolve }))
    this.#taken = this.frames.indexOf(frame) + 1
    return frame as FrameOf<T>
  }

  get request(): FrameOf<'request'> {
    const [first] = this.frames
    return first?.type === 'request' ? first : this.#earlier!
  }

  get id(): RequestId {
    return execRequest.decode(this.request.body).request_id
  }

  say(frame: ExecFrame, requestId: RequestId = this.id): void {
    this.onBody(requestId, encodeExecBody(frame))
  }

  started(): void {
    this.say({ type: 'started', request_id: this.id, pid: 4711 })
  }

  output(type: 'stdout' | 'stderr', seq: number, data: Uint8Array | string): void {
    this.say({ type, request_id: this.id, seq, data: typeof data === 'string' ? new TextEncoder().encode(data) : data })
  }

  /** The correct Exit for `stdout` and `stderr`, with the test's changes. */
  async exit(
    stdout: Uint8Array | string = '',
    stderr: Uint8Array | string = '',
    over: Partial<ExecExit> = {},
    signer = this.party.signer,
  ): Promise<void> {
    const [out, err] = [stdout, stderr].map((data) => (typeof data === 'string' ? new TextEncoder().encode(data) : data)) as [
      Uint8Array,
      Uint8Array,
    ]
    const body = execExit.encode({
      version: 1,
      request_id: this.id,
      from_agent: this.party.signer.agentId,
      from_machine: this.party.machine.machineId,
      to_agent: this.requester.signer.agentId,
      to_machine: this.requester.machine.machineId,
      request_sha256: sha256(this.request.body),
      code: 0,
      signal: null,
      duration_ms: 5,
      stdout_bytes_total: out.length,
      stderr_bytes_total: err.length,
      stdout_sha256: sha256(out),
      stderr_sha256: sha256(err),
      truncated: false,
      denial_reason: null,
      ...over,
    })
    this.say({ type: 'exit', body, signature: await signer.sign(EXEC_EXIT_DOMAIN, body) })
  }
}

/** Records its events. `hold` delays it. */
export class RecordingSink implements RunSink {
  readonly events: RunEvent[] = []
  hold: Promise<void> | null = null

  event(event: RunEvent): void | Promise<void> {
    this.events.push(event)
    return this.hold ?? undefined
  }

  text(type: 'stdout' | 'stderr'): string {
    return Buffer.concat(this.events.flatMap((event) => (event.type === type ? [event.data] : []))).toString()
  }
}

export interface ScriptedRun {
  readonly peer: ScriptedPeer
  readonly runner: ExecClient
  readonly counters: RequesterCounters
  readonly sink: RecordingSink
  readonly outcome: Promise<RunOutcome>
  readonly caller: AbortController
}

/** A run of this agent on a scripted peer, which has received the Request. */
export const scriptedRun = async (
  clock: Clock,
  spec: Partial<RunSpec> = {},
  /** Decides how a reconnection to the peer ends. By default it fails. */
  reopen: (silent: boolean, signal: AbortSignal, peer: ScriptedPeer) => Promise<ScriptedPeer> = async () => {
    throw new Error('nobody answers')
  },
): Promise<ScriptedRun> => {
  const requester = newParty()
  const peer = new ScriptedPeer({ requester })
  const counters = new RequesterCounters()
  const { signer, machine } = requester
  const runner = new ExecClient({
    lifecycle: newLifecycleLog(),
    traces: null,
    links: {
      isLinked: () => true,
      openChannel: async () => peer,
      reopenChannel: async (_to, silent, signal) => reopen(silent, signal, peer),
    },
    executor: fake({
      identity: { agentId: signer.agentId, machineId: machine.machineId, agentPublicKey: signer.publicKey },
      mintNonces: async () => [],
      openRun: () => {
        throw new Error('no run of our own was expected')
      },
      drained: async () => undefined,
      signRequest: async ({ link: _link, ...fields }) => {
        const body = execRequest.encode({
          version: 1,
          from_agent: signer.agentId,
          from_machine: machine.machineId,
          to_agent: peer.link.agentId,
          to_machine: peer.link.machineId,
          created_at_ms: Date.now(),
          ...fields,
        })
        return { body, signature: await signer.sign(EXEC_REQUEST_DOMAIN, body) }
      },
    }),
    clock,
    counters,
  })
  const sink = new RecordingSink()
  const caller = new AbortController()
  const whole = { agent_id: peer.link.agentId, argv: ['id'], stdin: null, timeout_ms: null, cwd: null, clamp: false, ...spec }
  const outcome = runner.run(whole, sink, caller.signal)
  outcome.catch(() => undefined)
  await Promise.race([peer.next('request'), outcome])
  return { peer, runner, counters, sink, outcome, caller }
}

/** Runs pending promise callbacks. */
export const settle = async (): Promise<void> => {
  for (let turn = 0; turn < 5; turn++) await nextTurn()
}

export const stdinOf = (...parts: Uint8Array[]): StdinSource => ({
  len: parts.reduce((sum, part) => sum + part.length, 0),
  pieces: pieceHashes(...parts),
  chunks: (async function* () {
    yield* parts
  })(),
})
