import { OUTPUT_NAMES, type OutputName } from '../../protocol/reasons.ts'
import { AppError } from '../../base/errors.ts'
import type { LocalRunHandle, LocalRunEvent, LocalRunSink, RunWaiting } from '../../executor-api/local.ts'
import { ModelText, shownText } from './output-text.ts'
import { NO_END, RUNS_ELSEWHERE, type RunEnd, endOf, refusalOf, shownNext } from './run-end.ts'
import { type ToolRunRecorder, refusalEvent, requestEvent, resultEvent, startedEvent } from './tool-run-recorder.ts'
import { type ToolRequest, requestHash } from './tool-request.ts'
import type { ToolOutputPart, ToolRunState, ToolResult } from './tool-result.ts'

/** Maximum bytes of each stream in an answer. */
export interface View {
  readonly stdout: number
  readonly stderr: number
}

/** The parts of an accepted run that are needed here. */
export type FollowedRun = Pick<LocalRunHandle, 'startedAt' | 'cwd' | 'ended' | 'cancel' | 'signal' | 'ranOn' | 'cuts'> & {
  readonly caps: Pick<LocalRunHandle['caps'], 'timeout_ms'>
}

/** For a run that has ended or belongs to another process. */
export const INERT: Pick<FollowedRun, 'cancel' | 'signal'> = { cancel: () => undefined, signal: () => false }

/** A run that a tool requested. Its output is retained as text, so the program never waits for a reader. */
export class ToolRun implements LocalRunSink {
  readonly id: string
  /** Stdin is released when the run starts. */
  readonly request: Omit<ToolRequest, 'stdin'>
  readonly requestHash: string
  /** Time of the request in milliseconds since 1970. */
  readonly askedAt: number
  /** Number of waiting calls whose cancellation ends it. */
  owners = 0
  readonly text = { stdout: new ModelText(), stderr: new ModelText() }
  /** Aborts when the run must not start any more. */
  readonly leaving = new AbortController()
  readonly #ended: Promise<void>
  #settle = (): void => undefined
  readonly #recorder: ToolRunRecorder | null
  #stdin: Uint8Array
  #run: FollowedRun | null = null
  #end: RunEnd | null = null
  /** The pending approval, or null. */
  #waiting: Omit<RunWaiting, 'request_id'> | null = null
  /** The refusal. Null means the run was accepted, is not decided, or failed internally. */
  refusal: AppError | null = null
  #timedOut = false
  /** A limit cut the output, or the timeout ended the run. */
  #truncated = false
  #cancelledThere = false
  /** The target reduced the timeout. */
  #timeoutClamped = false
  /** Number of processes that the command left running and that were ended with it, or null. */
  #descendantsEnded: number | null = null
  /** Bytes that arrived, and bytes above the limit of the executor. */
  readonly #came = { stdout: 0, stderr: 0 }
  #dropped = { stdout: 0, stderr: 0 }

  constructor(init: {
    readonly id: string
    readonly request: ToolRequest
    readonly askedAt: number
    readonly recorder?: ToolRunRecorder | null
  }) {
    const { stdin, ...request } = init.request
    // Not `Promise.withResolvers`, because runtimes of the command line that replays records may lack it.
    this.#ended = new Promise((resolve) => (this.#settle = resolve))
    this.id = init.id
    this.request = request
    this.requestHash = requestHash(init.request)
    this.askedAt = init.askedAt
    this.#stdin = stdin
    this.#recorder = init.recorder ?? null
    this.#recorder?.record(this.id, requestEvent(init.request, init.askedAt))
  }

  /** ISO 8601. Null means not started. */
  get startedAt(): string | null {
    return this.#run?.startedAt ?? null
  }

  get state(): ToolRunState {
    if (this.#end?.interruption === null) return 'ended'
    if (this.#end !== null && this.#end.interruption !== RUNS_ELSEWHERE) return 'interrupted'
    if (this.#run !== null) return 'running'
    return this.#waiting === null ? 'queued' : 'waiting_for_approval'
  }

  /** The run has ended, or its further state is unknown. */
  get over(): boolean {
    return this.#end !== null
  }

  /** Null means that the run continues or has not started. */
  get end(): RunEnd | null {
    return this.#end
  }

  /** Whether a limit of this machine or the target cut the output. */
  get isCut(): boolean {
    return this.#truncated && !this.#timedOut
  }

  /** Whether the target reports that a cancellation ended the run. */
  get cancelledThere(): boolean {
    return this.#cancelledThere
  }

  /** The pending approval request, or null. */
  get approval(): NonNullable<ToolResult['approval']> | null {
    if (this.state !== 'waiting_for_approval' || this.#waiting === null) return null
    return { question_id: this.#waiting.question_id, expires_at: new Date(this.#waiting.expires_at_ms).toISOString() }
  }

  /** Settles when all output is here. */
  get ended(): Promise<void> {
    return this.#ended
  }

  /** Bytes of memory of the texts. */
  get size(): number {
    return this.text.stdout.kept.size + this.text.stderr.kept.size
  }

  takeStdin(): Uint8Array {
    const stdin = this.#stdin
    this.#stdin = new Uint8Array(0)
    return stdin
  }

  waiting({ question_id, expires_at_ms }: Omit<RunWaiting, 'request_id'>): void {
    this.#waiting = { question_id, expires_at_ms }
    this.#recorder?.record(this.id, { event: 'waiting', ...this.#waiting })
  }

  event(event: LocalRunEvent): void {
    if (event.type === 'warning') {
      const { kind, amount = null } = event
      this.#recorder?.record(this.id, { event: 'warning', kind, amount: amount ?? undefined })
      if (kind === 'descendants_ended') this.#descendantsEnded = amount
      if (event.kind === 'duration_cap_hit') this.#timedOut = true
      if (event.kind === 'cancelled') this.#cancelledThere = true
      if (event.kind === 'timeout_clamped') this.#timeoutClamped = true
      return
    }
    this.#recorder?.record(this.id, { event: event.type, data_b64: Buffer.from(event.data).toString('base64') })
    this.#came[event.type] += event.data.length
    this.text[event.type].push(event.data)
  }

  /** The run was accepted. Settles as `ended`. */
  async follow(run: FollowedRun): Promise<void> {
    this.#run = run
    this.#recorder?.record(this.id, startedEvent(run))
    if (this.leaving.signal.aborted) run.cancel()
    const outcome = await run.ended
    this.#recorder?.record(this.id, { event: 'ended', outcome })
    this.#truncated = outcome?.truncated ?? false
    if (outcome !== null)
      this.#dropped = {
        stdout: Math.max(outcome.stdout_bytes_total - this.#came.stdout, 0),
        stderr: Math.max(outcome.stderr_bytes_total - this.#came.stderr, 0),
      }
    this.#close(endOf(outcome))
  }

  /** The run was refused. Rethrows internal errors. */
  refuse(error: unknown): void {
    this.#recorder?.record(this.id, refusalEvent(error))
    if (error instanceof AppError) this.refusal = error
    this.#close(error instanceof AppError ? refusalOf(error) : { ...NO_END, interruption: 'internal error of the server' })
    if (!(error instanceof AppError)) throw error
  }

  /** Releases the texts. Only the end of the run stays known. */
  dropText(): void {
    this.#recorder?.record(this.id, { event: 'text_dropped' })
    for (const stream of OUTPUT_NAMES) {
      const { kept, gone } = this.text[stream]
      this.text[stream] = new ModelText({ gone: gone + kept.total })
    }
  }

  /** Ends the run with all its processes, or prevents its start. */
  cancel(): void {
    this.leaving.abort(new AppError('shutting_down', 'it was cancelled before it started'))
    this.#run?.cancel()
  }

  /** Sends `TERM` or `SIGTERM` to all processes. Returns false without processes. Throws `bad_request` for an unknown signal. */
  signal(name: string): boolean {
    return this.#run?.signal(name) ?? false
  }

  /** Bytes that cannot be read, because they exceed the limit of this machine or belong to an earlier server's run. */
  dropped(stream: OutputName): number {
    return this.#dropped[stream] + this.text[stream].gone
  }

  /** `text` is the texts at an earlier time, if the run may have been forgotten since. */
  result(view: View, text: ToolRun['text'] = this.text): ToolResult {
    const result = this.#result(view, text)
    this.#recorder?.record(this.id, resultEvent(view, result, text.stdout !== this.text.stdout))
    return result
  }

  /** At most `max` bytes of a stream's text from offset `from`. */
  part(stream: OutputName, from: number, max: number): ToolOutputPart {
    const { kept } = this.text[stream]
    const { text, next, from: begin } = kept.read(from, max)
    const part: ToolOutputPart = {
      run_id: this.id,
      stream,
      from: begin,
      text,
      next,
      total: kept.total,
      lost: kept.isLost(from) ? { from, to: begin } : null,
      dropped_bytes: this.dropped(stream),
      more: next < kept.total,
      state: this.state,
    }
    this.#recorder?.record(this.id, { event: 'part', stream, from, max, part: { ...part } })
    return part
  }

  #result(view: View, text: ToolRun['text']): ToolResult {
    const { operation, command, args, target } = this.request
    const end = this.#end ?? NO_END
    const [out, err] = [this.#shown('stdout', view, text), this.#shown('stderr', view, text)]
    const asked = this.request.timeout_ms ?? 0
    const counts = this.#run?.caps.timeout_ms ?? null
    const isLeft = !this.over || out.kept > 0 || err.kept > 0
    return {
      success: this.state === 'ended' && end.exit_code === 0 && !this.#timedOut,
      operation,
      command,
      args,
      cwd: this.#run?.cwd ?? this.request.cwd,
      exit_code: end.exit_code,
      timed_out: this.#timedOut,
      duration_ms: end.duration_ms,
      stdout: out.text,
      stderr: err.text,
      stdout_truncated: out.omitted > 0,
      stderr_truncated: err.omitted > 0,
      signal: end.signal,
      denial_reason: end.denial_reason,
      launch_error: end.launch_error,
      denial_detail: end.denial_detail,
      target,
      stdout_omitted_bytes: out.omitted,
      stderr_omitted_bytes: err.omitted,
      stdout_invalid_utf8: text.stdout.invalidUtf8,
      stderr_invalid_utf8: text.stderr.invalidUtf8,
      state: this.state,
      interruption: end.interruption,
      timeout_ms: this.#timeoutClamped ? null : counts,
      timeout_clamped: this.#timeoutClamped || (counts !== null && counts < asked),
      run_id: isLeft ? this.id : null,
      ...this.#optional,
    }
  }

  /** Fields that are absent in most results. */
  get #optional(): Pick<ToolResult, 'descendants_ended' | 'ran_on' | 'cut_wishes' | 'approval' | 'next'> {
    const { ranOn = null, cuts = [] } = this.#run ?? {}
    const { approval } = this
    return {
      ...(this.#descendantsEnded !== null && { descendants_ended: this.#descendantsEnded }),
      ...(ranOn === null ? {} : { ran_on: ranOn }),
      ...(cuts.length === 0 ? {} : { cut_wishes: cuts }),
      ...(approval === null ? {} : { approval }),
      ...shownNext(this.refusal),
    }
  }

  /** `omitted` counts the bytes that the text lacks. `kept` counts those of them that can still be read. */
  #shown(
    stream: OutputName,
    view: View,
    texts: ToolRun['text'],
  ): { readonly text: string; readonly omitted: number; readonly kept: number } {
    const above = this.#dropped[stream] + texts[stream].gone
    const { text, cut } = shownText(texts[stream].kept, view[stream], above)
    return { text, omitted: cut + above, kept: cut }
  }

  #close(end: RunEnd): void {
    for (const stream of OUTPUT_NAMES) this.text[stream].end()
    this.#stdin = new Uint8Array(0)
    this.#end = end
    this.#settle()
  }
}
