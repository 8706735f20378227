import { PassThrough } from 'node:stream'
import { unlessAborted } from '../../base/abort.ts'
import type { BufferPool } from '../../base/buffers.ts'
import type { Clock } from '../../base/clock.ts'
import type { TimeSlicer } from '../../base/time-slices.ts'
import { failureLine, performFileCommand } from '../../fs/file-commands.ts'
import type { Uploads } from '../../fs/uploads.ts'
import { sha256 } from '../../identity/hash.ts'
import type { FileRunPermit } from '../../policy/mesh/authorize-file.ts'
import { DurationLimit, type ProcessEnd, type ProcessHandlers } from '../../process/running-process.ts'
import type { ProgramStart } from '../../process/spawn.ts'
import { OutputPump, type OutputTotals, StdinSink } from '../../process/streams.ts'
import type { Program } from './execution.ts'

/** Output that waits for its reader. */
const OUTPUT_AHEAD_BYTES = 1024 * 1024
const SIGTERM = 15
const FAILED = 1

export interface FileTaskDeps {
  readonly clock: Clock
  readonly uploads: Uploads
  readonly sharing: Pick<TimeSlicer, 'share'>
  /** Buffers for output, or absent for new ones. */
  readonly frames?: BufferPool
  readonly handlers: ProcessHandlers
}

/** A file command in progress. To its run it is what a program is, but this process does the work. */
export class FileTask implements Program, ProgramStart {
  /** Of the executor process. */
  readonly pid = process.pid
  readonly containment = 'group'
  readonly dead = null
  readonly stdin: StdinSink | null
  readonly ended: Promise<ProcessEnd>
  readonly #deps: FileTaskDeps
  readonly #permit: FileRunPermit
  readonly #input: PassThrough
  readonly #output = new PassThrough({ highWaterMark: OUTPUT_AHEAD_BYTES })
  readonly #pump: OutputPump
  readonly #stop = new AbortController()
  readonly #duration: DurationLimit
  readonly #end = Promise.withResolvers<ProcessEnd>()
  readonly #startedAt: number
  #begun = false
  #outOfTime = false

  constructor(deps: FileTaskDeps, init: { readonly permit: FileRunPermit; readonly stdin: boolean }) {
    const { handlers, clock } = deps
    const { caps } = init.permit
    this.#deps = deps
    this.#permit = init.permit
    this.#input = new PassThrough()
    this.stdin = init.stdin ? new StdinSink(this.#input) : null
    if (!init.stdin) this.#input.end()
    // An aborted command destroys both.
    for (const stream of [this.#input, this.#output]) stream.on('error', () => {})
    const limits = { cap: caps.max_stdout_bytes, budget: null, warn: caps.warn_stdout_bytes }
    const pumped = {
      onData: (data: Uint8Array) => handlers.onOutput('stdout', data),
      onApproaching: (total: number) => handlers.onWarning('stdout_approaching_cap', total),
      onCapHit: (total: number) => handlers.onWarning('stdout_cap_hit', total),
    }
    this.#pump = new OutputPump({ ...deps, source: this.#output, handlers: pumped }, limits)
    this.#startedAt = clock.monotonic()
    const times = { timeout_ms: caps.timeout_ms, cap_ms: caps.max_duration_ms, warn_ms: caps.warn_duration_ms }
    const timed = {
      onApproaching: () => handlers.onWarning('duration_approaching_cap', null),
      onTerminate: () => this.#timeOut(),
      onKill: () => this.terminate(),
    }
    this.#duration = new DurationLimit({ clock, handlers: timed }, times)
    this.ended = this.#end.promise
  }

  signal(): void {
    this.terminate()
  }

  hangUp(): void {
    this.terminate()
  }

  kill(): void {
    this.terminate()
  }

  resize(): void {}

  /** Ends the command at its next step. An unfinished upload stays. */
  terminate(): void {
    if (this.#stop.signal.aborted) return
    this.#stop.abort(new Error('the command was ended'))
    this.#input.destroy(this.#stop.signal.reason as Error)
    this.#output.destroy()
  }

  pause(): void {
    this.#pump.pause()
  }

  /** The first call starts the command, when its start was reported. */
  resume(): void {
    this.#pump.resume()
    if (this.#begun) return
    this.#begun = true
    void this.#run()
  }

  #timeOut(): void {
    this.#outOfTime = true
    this.#deps.handlers.onWarning('duration_cap_hit', null)
    this.terminate()
  }

  async #run(): Promise<void> {
    const { uploads, sharing, clock } = this.#deps
    const { signal } = this.#stop
    const streams = { stdin: this.#input, share: sharing.share(signal), write: async (data: Uint8Array) => this.#write(data) }
    let problem = ''
    try {
      await performFileCommand(this.#permit, streams, uploads)
      await this.#outputTaken()
    } catch (error) {
      if (!signal.aborted) problem = failureLine(error, this.#permit.command.path)
    }
    this.#duration.stop()
    this.#input.destroy()
    if (problem !== '') await this.#outputTaken().catch(() => undefined)
    const wasEnded = signal.aborted
    const stderr = this.#report(wasEnded ? '' : problem)
    const end = wasEnded ? { code: null, signal: SIGTERM } : { code: problem === '' ? 0 : FAILED, signal: null }
    const duration_ms = Math.round(clock.monotonic() - this.#startedAt)
    const stdout = this.#pump.finish()
    this.#output.destroy()
    this.#end.resolve({ ...end, duration_ms, stdout, stderr, truncated: stdout.truncated || this.#outOfTime })
  }

  /** Resolves when the requester has taken all output. Rejects if the command is ended before, so that a requester cannot hold it. */
  async #outputTaken(): Promise<void> {
    this.#output.end()
    await unlessAborted(this.#pump.ended, this.#stop.signal)
  }

  #report(problem: string): OutputTotals {
    const bytes = Buffer.from(problem).subarray(0, this.#permit.caps.max_stderr_bytes)
    if (bytes.length > 0) this.#deps.handlers.onOutput('stderr', bytes)
    return { bytes_total: bytes.length, bytes_forwarded: bytes.length, sha256: sha256(bytes), truncated: false }
  }

  async #write(data: Uint8Array): Promise<void> {
    const { signal } = this.#stop
    signal.throwIfAborted()
    if (this.#output.write(data)) return
    await new Promise<void>((resolve) => {
      this.#output.once('drain', resolve).once('close', resolve)
    })
    signal.throwIfAborted()
  }
}
