import { posix } from 'node:path'
import type { Clock, Timer } from '../../../base/clock.ts'
import { shownLine } from '../../../base/visible-text.ts'
import type { Output } from '../../../cli/output.ts'
import type { FileWaitingJson } from '../../../protocol/api/files.ts'
import { EMPTY_LINE, lineWidth } from '../progress.ts'
import { waitingText } from '../run-output.ts'
import type { CopyMeter } from './copy-job.ts'

const REDRAW_MS = 200
/** Copies that end before this show no line. */
const SILENCE_MS = 500
const BAR_COLUMNS = 20
/** The shown rate is that of about this time. */
const RATE_MS = 5_000

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'] as const

/** Such as `512 B`, `1.5 MiB` or `120 GiB`. */
export const bytesText = (bytes: number): string => {
  const power = Math.min(UNITS.length - 1, Math.max(0, Math.floor(Math.log2(Math.max(1, bytes)) / 10)))
  const value = bytes / 1024 ** power
  return `${power === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${UNITS[power]}`
}

/** Such as `14 s`, `1:05` or `2:01:05`. */
const timeText = (ms: number): string => {
  const seconds = Math.ceil(ms / 1_000)
  if (seconds < 60) return `${seconds} s`
  const [hours, minutes] = [Math.floor(seconds / 3_600), Math.floor((seconds % 3_600) / 60)]
  const two = (value: number): string => String(value).padStart(2, '0')
  return hours === 0 ? `${minutes}:${two(seconds % 60)}` : `${hours}:${two(minutes)}:${two(seconds % 60)}`
}

interface CopySize {
  readonly files: number
  /** Null if it is not known. */
  readonly bytes: number | null
}

/** Such as `2 of 2 files, 1.5 MiB in 3 s, 512 KiB/s`. */
export const copySummary = ({ copied, files, bytes, ms }: { copied: number; files: number; bytes: number; ms: number }): string => {
  const rate = ms > 0 ? `, ${bytesText((bytes / ms) * 1_000)}/s` : ''
  return `${copied} of ${files} ${files === 1 ? 'file' : 'files'}, ${bytesText(bytes)} in ${timeText(ms)}${rate}`
}

interface CopyProgressInit {
  /** Show no line that is erased later. */
  readonly off: boolean
  /** Say nothing about files that wait for an approval. */
  readonly quiet: boolean
  /** The agent as the user typed it. */
  readonly host: string
}

/** A file that waits for an approval of the agent. */
interface WaitingFile {
  readonly state: FileWaitingJson
  /** Monotonic time of its end. */
  readonly until: number
}

/** Shows how far a copy is in a terminal's last line, which is erased for other output. */
export class CopyProgress implements CopyMeter {
  readonly #components: { readonly stderr: Output; readonly clock: Clock }
  readonly #init: CopyProgressInit
  readonly #off: boolean
  /** By path on the agent. */
  readonly #waiting = new Map<string, WaitingFile>()
  #isCopying = false
  readonly #began: number
  #of: CopySize = { files: 0, bytes: 0 }
  #files = 0
  #bytes = 0
  #movedBytes = 0
  /** Bytes and time at the beginning of the time that the rate covers. */
  #mark: { readonly at: number; readonly bytes: number }
  #rate = 0
  #timer: Timer | null = null
  #shown = false

  constructor(components: { readonly stderr: Output; readonly clock: Clock }, init: CopyProgressInit) {
    this.#components = components
    this.#init = init
    this.#off = init.off || components.stderr.isTTY !== true
    this.#began = components.clock.monotonic()
    this.#mark = { at: this.#began, bytes: 0 }
  }

  start(of: CopySize): void {
    this.#of = of
    this.#isCopying = true
    this.#mark = { at: this.#components.clock.monotonic(), bytes: 0 }
    if (!this.#off) this.#drawIn(SILENCE_MS)
  }

  skipped(bytes: number): void {
    this.#bytes += bytes
  }

  moved(bytes: number): void {
    this.#bytes += bytes
    this.#movedBytes += bytes
  }

  fileEnded(): void {
    this.#files += 1
  }

  /** Shows that a file waits for an approval, until the state is null. */
  waits(path: string, state: FileWaitingJson | null): void {
    const { clock, stderr } = this.#components
    if (state === null) {
      if (this.#waiting.delete(path) && this.#waiting.size === 0 && !this.#isCopying) this.end()
      return
    }
    this.#waiting.set(path, { state, until: clock.monotonic() + state.expires_in_ms })
    if (this.#init.quiet) return
    if (this.#off) stderr.write(`x0x: ${shownLine(path)}: ${waitingText(state, this.#init.host, state.expires_in_ms)}\n`)
    else if (this.#timer === null) this.#draw()
  }

  /** Erases the line for other output. */
  clear(): void {
    if (this.#shown) this.#components.stderr.write(EMPTY_LINE)
    this.#shown = false
  }

  end(): void {
    this.#isCopying = false
    this.#timer?.cancel()
    this.#timer = null
    this.clear()
  }

  /** A line about the whole copy, or null without a terminal. */
  summary(): string | null {
    if (this.#off) return null
    const ms = this.#components.clock.monotonic() - this.#began
    return copySummary({ copied: this.#files, files: this.#of.files, bytes: this.#movedBytes, ms })
  }

  #drawIn(ms: number): void {
    this.#timer?.cancel()
    this.#timer = this.#components.clock.setTimeout(() => this.#draw(), ms, { unref: true })
  }

  #draw(): void {
    const { stderr } = this.#components
    this.#measure()
    this.#shown = true
    stderr.write(`${EMPTY_LINE}${this.#text().slice(0, lineWidth(stderr))}`)
    this.#drawIn(REDRAW_MS)
  }

  #measure(): void {
    const now = this.#components.clock.monotonic()
    const { at, bytes } = this.#mark
    if (now > at) this.#rate = ((this.#movedBytes - bytes) / (now - at)) * 1_000
    if (now - at < RATE_MS) return
    // The older part of the time counts with its average.
    this.#mark = { at: now - RATE_MS / 2, bytes: this.#movedBytes - (this.#rate * RATE_MS) / 2_000 }
  }

  /** The file that has waited longest. */
  #waitingText(path: string, { state, until }: WaitingFile): string {
    const left = until - this.#components.clock.monotonic()
    const others = this.#waiting.size > 1 ? ` and ${this.#waiting.size - 1} more` : ''
    return `x0x: ${shownLine(posix.basename(path))}${others}: ${waitingText(state, this.#init.host, left)}`
  }

  #text(): string {
    const [first] = this.#waiting
    if (first !== undefined) return this.#waitingText(...first)
    const { files, bytes } = this.#of
    const rate = `${bytesText(this.#rate)}/s`
    const count = files > 1 ? [`${this.#files} of ${files} files`] : []
    if (bytes === null || bytes === 0) return ['x0x: copying', ...count, bytesText(this.#bytes), rate].join('  ')
    const share = Math.min(1, this.#bytes / bytes)
    const done = Math.floor(share * BAR_COLUMNS)
    const bar = `[${'#'.repeat(done)}${'-'.repeat(BAR_COLUMNS - done)}]`
    const left = this.#rate > 0 ? [`${timeText(((bytes - this.#bytes) / this.#rate) * 1_000)} left`] : []
    const percent = `${Math.floor(share * 100)} %`.padStart(5)
    return [`x0x: ${bar}${percent}`, `${bytesText(this.#bytes)} of ${bytesText(bytes)}`, rate, ...left, ...count].join('  ')
  }
}
