import { OUTPUT_NAMES, type OutputName } from '../../protocol/reasons.ts'
import { AppError } from '../../base/errors.ts'
import type { LocalRunHandle, LocalRunEvent, LocalRunSink, RunWaiting } from '../../executor-api/local.ts'
import { ModelText, shownText } from './output-text.ts'
import { NO_END, RUNS_ELSEWHERE, type RunEnd, endOf, refusalOf, shownNext } from './run-end.ts'
import { type ToolRunRecorder, refusalEvent, requestEvent, resultEvent, startedEvent } from './tool-run-recorder.ts'
import { type ToolRequest, requestHash } from './tool-request.ts'
import type { ToolOutputPart, ToolRunState, ToolResult } from './tool-result.ts'

/** How much of each stream a caller wants to see, in bytes. */
export interface View {
  readonly stdout: number
  readonly stderr: number
}

/** What is needed of a run that was accepted. */
export type FollowedRun = Pick<LocalRunHandle, 'startedAt' | 'cwd' | 'ended' | 'cancel' | 'signal' | 'ranOn' | 'cuts'> & {
  readonly caps: Pick<LocalRunHandle['caps'], 'timeout_ms'>
}

/** Of a run that is over, or is not here: nothing can be done to it. */
export const INERT: Pick<FollowedRun, 'cancel' | 'signal'> = { cancel: () => undefined, signal: () => false }

/** A command that a tool was asked for. What it writes is kept as text, so that it never waits for who reads it. */
export class ToolRun implements LocalRunSink {
  readonly id: string
  /** Without its stdin, which nobody needs once it runs. */
  readonly request: Omit<ToolRequest, 'stdin'>
  readonly requestHash: string
  /** When it was asked for; milliseconds since 1970. */
  readonly askedAt: number
  /** Calls that would end it, were they cancelled. */
  owners = 0
  readonly text = { stdout: new ModelText(), stderr: new ModelText() }
  /** Aborted when it is not to begin any more. */
  readonly leaving = new AbortController()
  readonly #ended: Promise<void>
  #settle = (): void => undefined
  readonly #recorder: ToolRunRecorder | null
  #stdin: Uint8Array
  #run: FollowedRun | null = null
  #end: RunEnd | null = null
  /** Somebody is asked; null: nobody was. */
  #waiting: Omit<RunWaiting, 'request_id'> | null = null
  /** Why it was not accepted; null: it was, or that is not known yet, or a mistake of ours is why. */
  refusal: AppError | null = null
  #timedOut = false
  /** A cap has cut the output, or the time was up. */
  #truncated = false
  #cancelledThere = false
  /** By its target. */
  #timeoutClamped = false
  /** Processes that the command left running and that were ended with it; null: there were none. */
  #descendantsEnded: number | null = null
  /** Bytes that came, and bytes above what the executor hands on. */
  readonly #came = { stdout: 0, stderr: 0 }
  #dropped = { stdout: 0, stderr: 0 }

  constructor(init: {
    readonly id: string
    readonly request: ToolRequest
    readonly askedAt: number
    readonly recorder?: ToolRunRecorder | null
  }) {
    const { stdin, ...request } = init.request
    // By a form that every runtime of the command line has, which replays runs.
    this.#ended = new Promise((resolve) => (this.#settle = resolve))
    this.id = init.id
    this.request = request
    this.requestHash = requestHash(init.request)
    this.askedAt = init.askedAt
    this.#stdin = stdin
    this.#recorder = init.recorder ?? null
    this.#recorder?.record(this.id, requestEvent(init.request, init.askedAt))
  }

  /** ISO 8601; null: it waits, or was refused. */
  get startedAt(): string | null {
    return this.#run?.startedAt ?? null
  }

  get state(): ToolRunState {
    if (this.#end?.interruption === null) return 'ended'
    if (this.#end !== null && this.#end.interruption !== RUNS_ELSEWHERE) return 'interrupted'
    if (this.#run !== null) return 'running'
    return this.#waiting === null ? 'queued' : 'waiting_for_approval'
  }

  /** Nothing more is known of it here. */
  get over(): boolean {
    return this.#end !== null
  }

  /** Null: it goes on, or waits. */
  get end(): RunEnd | null {
    return this.#end
  }

  /** A cap, of its target or of this host, has cut its output. */
  get isCut(): boolean {
    return this.#truncated && !this.#timedOut
  }

  /** Where it ran they say that it was a cancellation that ended it. */
  get cancelledThere(): boolean {
    return this.#cancelledThere
  }

  /** The question that a human is asked now; null: none is. */
  get approval(): NonNullable<ToolResult['approval']> | null {
    if (this.state !== 'waiting_for_approval' || this.#waiting === null) return null
    return { question_id: this.#waiting.question_id, expires_at: new Date(this.#waiting.expires_at_ms).toISOString() }
  }

  /** Settles when all that it wrote is here. */
  get ended(): Promise<void> {
    return this.#ended
  }

  /** Bytes of memory that its texts hold. */
  get size(): number {
    return this.text.stdout.kept.size + this.text.stderr.kept.size
  }

  /** Gives out its stdin, once. */
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

  /** It was accepted; settles as `ended` does. */
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

  /** It was not accepted. Throws what is a mistake of ours. */
  refuse(error: unknown): void {
    this.#recorder?.record(this.id, refusalEvent(error))
    if (error instanceof AppError) this.refusal = error
    this.#close(error instanceof AppError ? refusalOf(error) : { ...NO_END, interruption: 'the server failed inside' })
    if (!(error instanceof AppError)) throw error
  }

  /** Gives back the memory of its texts: of what a key stands for only the end is known then. */
  dropText(): void {
    this.#recorder?.record(this.id, { event: 'text_dropped' })
    for (const stream of OUTPUT_NAMES) {
      const { kept, gone } = this.text[stream]
      this.text[stream] = new ModelText({ gone: gone + kept.total })
    }
  }

  /** Ends it with everything that it started, or keeps it from beginning. */
  cancel(): void {
    this.leaving.abort(new AppError('shutting_down', 'it was cancelled before it began'))
    this.#run?.cancel()
  }

  /** `TERM` or `SIGTERM`, to all that it started. False: nothing is there to be told. Throws `bad_request` for what is no signal. */
  signal(name: string): boolean {
    return this.#run?.signal(name) ?? false
  }

  /** Bytes of a stream that nobody can ask for: above what this host takes, or of a run of an earlier server. */
  dropped(stream: OutputName): number {
    return this.#dropped[stream] + this.text[stream].gone
  }

  /** `text`: its text as it was, where that is to be told although the run may have been forgotten since. */
  result(view: View, text: ToolRun['text'] = this.text): ToolResult {
    const result = this.#result(view, text)
    this.#recorder?.record(this.id, resultEvent(view, result, text.stdout !== this.text.stdout))
    return result
  }

  /** At most `max` bytes of a stream's text, from place `from` on. */
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

  /** What was ended with it, where it runs, what of its wishes was cut, the question that a human is asked, and what to do next. */
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

  /** `omitted`: bytes that the text lacks. `kept`: how many of them there are, and can be asked for. */
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
