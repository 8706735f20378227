import { chmod, cp, rm } from 'node:fs/promises'
import { basename, join } from 'node:path'

import type { DetachedRunEvent, DetachedInfo, DetachedSink, DetachedTarget } from '../../src/exec/detached/detached-types.ts'
import { neverRan } from '../../src/executor/runs/run-facts.ts'
import { execExit, execFrame } from '../../src/protocol/wire/exec.ts'
import { AGENT_SIGNATURE_BYTES } from '../../src/protocol/limits/wire.ts'
import type { DenialReason } from '../../src/protocol/reasons.ts'
import type { ExecPair } from './exec-pair.ts'
import { soon } from './local-engine.ts'

export const DETACH_KEYS = 'detach = true'
export const never = (): AbortSignal => new AbortController().signal

/** Starts a detached program on the target. Fails if the program is denied. */
export const begin = async (
  pair: ExecPair,
  program: string,
  more: { request_id?: string; lifetime_ms?: number; keep_bytes?: number; clamp?: boolean; known_sha256?: readonly string[] } = {},
): Promise<{ target: DetachedTarget; info: DetachedInfo }> => {
  const started = await ask(pair, program, more)
  if (!('info' in started)) throw new Error(`denied: ${started.denied.denial_reason}`)
  return started
}

export const ask = async (
  pair: ExecPair,
  program: string,
  more: {
    request_id?: string
    lifetime_ms?: number
    keep_bytes?: number
    clamp?: boolean
    cwd?: string
    known_sha256?: readonly string[]
  } = {},
): ReturnType<ExecPair['detached']['start']> => {
  const spec = { argv: [pair.responder.program(program)], cwd: null, clamp: false, lifetime_ms: null, keep_bytes: null, ...more }
  return pair.detached.start({ agent_id: pair.responder.own.signer.agentId, ...spec }, () => undefined, never())
}

/** Keeps all events that it receives. */
export class DetachedMemory implements DetachedSink {
  readonly events: DetachedRunEvent[] = []

  event(event: DetachedRunEvent): void | Promise<void> {
    this.events.push(event)
  }

  get types(): string[] {
    return this.events.map(({ type }) => type)
  }

  get bytes(): Buffer {
    return Buffer.concat(this.events.flatMap((event) => ('data' in event ? [event.data] : [])))
  }

  text(stream: 'stdout' | 'stderr'): string {
    return Buffer.concat(this.events.flatMap((event) => (event.type === stream ? [event.data] : []))).toString()
  }
}

/** An encoded Exit without a signature: of a program that wrote these numbers of bytes, or of a denied run. */
export const exitFrame = (
  wrote: { readonly stdout?: number; readonly stderr?: number } = {},
  denied: DenialReason | null = null,
): Uint8Array => {
  const totals = { stdout_bytes_total: wrote.stdout ?? 0, stderr_bytes_total: wrote.stderr ?? 0 }
  const id = 'e1'.repeat(32)
  const body = execExit.encode({
    ...neverRan(denied),
    ...totals,
    version: 1,
    request_id: '0192d3a0-1111-7222-8333-444455556666',
    from_agent: id,
    from_machine: id,
    to_agent: id,
    to_machine: id,
    request_sha256: new Uint8Array(32),
  })
  return execFrame.encode({ type: 'exit', body, signature: new Uint8Array(AGENT_SIGNATURE_BYTES) })
}

export const untilOver = async (pair: ExecPair, target: DetachedTarget): Promise<DetachedInfo> => {
  let info = await pair.detached.state(target, never())
  await soon(async () => {
    info = await pair.detached.state(target, never())
    return info.state !== 'running' && info.state !== 'waiting'
  })
  return info
}

export const directoryOf = (pair: ExecPair): string => join(pair.responder.dir, 'detached')

/** Simulates a killed executor process: restarts it with the files as they were during the run. */
export const crash = async (pair: ExecPair, meddle: (directory: string) => Promise<void> = async () => undefined): Promise<void> => {
  const [directory, copy] = [directoryOf(pair), join(pair.responder.dir, 'copy')]
  // A record has a temporary name until it is complete.
  await cp(directory, copy, { recursive: true, filter: (file) => !basename(file).startsWith('.') })
  await pair.restart(async () => {
    await rm(directory, { recursive: true })
    await cp(copy, directory, { recursive: true })
    await chmod(directory, 0o700)
    await meddle(directory)
  })
}
