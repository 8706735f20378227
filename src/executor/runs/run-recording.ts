import type { Clock } from '../../base/clock.ts'
import { errorText } from '../../base/errors.ts'
import { shellWords } from '../../base/format.ts'
import type { TerminalSize } from '../../executor-api/local.ts'
import type { RunKey } from '../../journal/run-key.ts'
import type { Permit } from '../../policy/permit.ts'
import type { OutputName } from '../../protocol/reasons.ts'
import type { RecordingEnd, TerminalRecording } from '../../transcripts/recording.ts'
import type { Recordings } from '../../transcripts/recordings.ts'
import type { RunRecording } from './execution.ts'

/** Size without a terminal. */
const USUAL_SIZE: TerminalSize = { cols: 80, rows: 24 }
const MAX_TITLE = 200

export interface PermitRecordingInit {
  readonly key: RunKey
  readonly permit: Pick<Permit, 'argv' | 'terminal' | 'env'>
  onRoom(): void
  onFailed(): void
}

/** The recording of one run of another agent. */
export class PermitRecording implements RunRecording {
  readonly #deps: { readonly recordings: Pick<Recordings, 'begin' | 'ended'>; readonly clock: Clock }
  readonly #init: PermitRecordingInit
  #recording: TerminalRecording | null = null

  constructor(deps: { readonly recordings: Pick<Recordings, 'begin' | 'ended'>; readonly clock: Clock }, init: PermitRecordingInit) {
    this.#deps = deps
    this.#init = init
  }

  get name(): string | null {
    return this.#recording?.name ?? null
  }

  async begin(): Promise<string | null> {
    const { recordings, clock } = this.#deps
    const { key, permit, onRoom, onFailed } = this.#init
    const { cols, rows } = permit.terminal ?? USUAL_SIZE
    const header = {
      width: cols,
      height: rows,
      timestamp: Math.floor(clock.now() / 1_000),
      title: shellWords(permit.argv).slice(0, MAX_TITLE),
      term: permit.env['TERM'] ?? 'dumb',
      x0x: { ...key, argv: permit.argv },
    }
    try {
      this.#recording = await recordings.begin({ agentId: key.agent_id, header, onRoom, onFailed })
      return null
    } catch (error) {
      return `its recording cannot be kept: ${errorText(error)}`
    }
  }

  output(stream: OutputName, data: Uint8Array): boolean {
    return this.#recording?.output(stream, data) ?? true
  }

  resized(size: TerminalSize): void {
    this.#recording?.resized(size)
  }

  async finish(): Promise<RecordingEnd> {
    return this.#take()
      .finish()
      .finally(() => this.#ended())
  }

  async discard(): Promise<void> {
    await this.#take()
      .discard()
      .finally(() => this.#ended())
  }

  #take(): TerminalRecording {
    const recording = this.#recording
    if (recording === null) throw new TypeError('no recording is open')
    this.#recording = null
    return recording
  }

  #ended(): void {
    this.#deps.recordings.ended(this.#init.key.agent_id)
  }
}
