import { shownLine, visibleJson } from '../../../base/visible-text.ts'
import { write } from '../../../cli/output.ts'
import { textWidth } from '../../../doors/console/screen/cells.ts'
import type { FanoutHostJson, FanoutLedgerJson } from '../../../protocol/api/fanout.ts'
import type { OutputPart } from '../../../protocol/api/run-events.ts'
import { foldNodeSet } from '../../../protocol/hosts/node-set.ts'
import type { OutputName } from '../../../protocol/reasons.ts'
import type { CliContext } from '../context.ts'
import { printProblem } from '../failure.ts'
import { cutText } from '../outcome.ts'
import { LinePieces, type Prefix, type ShownLines } from './lines.ts'
import type { OutputStore, SpillableOutput } from './output-store.ts'

/** Shows the outputs of a fan-out. Methods resolve to false if the output has no reader. */
export interface FleetView {
  /** Called with all hosts before any event. */
  start(hosts: readonly string[]): void
  output(host: string, part: OutputPart): Promise<boolean>
  ended(host: FanoutHostJson): Promise<boolean>
  /** Shows the remaining output. */
  finish(ledger: FanoutLedgerJson): Promise<boolean>
  /** Cleans up, also after an interrupted fan-out. */
  close(): Promise<void>
}

/** Limit of each output of a host; more is cut and reported. A reader of one object holds all of it in memory. */
export const MAX_JSON_OUTPUT = 1024 * 1024

const textOf = async (output: SpillableOutput): Promise<string> => {
  const parts: Uint8Array[] = []
  for await (const part of output.read()) parts.push(part)
  return Buffer.concat(parts).toString('base64')
}

/** `--json`: one object at the end, in the form of `POST /exec/fanout`, written host by host. */
export class JsonView implements FleetView {
  readonly #context: CliContext
  readonly #held: OutputStore
  readonly #outputs = new Map<string, Record<OutputName, SpillableOutput>>()
  readonly #ended: FanoutHostJson[] = []
  /** Hosts whose output was cut. */
  readonly #tooLong: string[] = []

  constructor(components: { readonly context: CliContext; readonly held: OutputStore }) {
    this.#context = components.context
    this.#held = components.held
  }

  start(): void {}

  async output(host: string, { type, data }: OutputPart): Promise<boolean> {
    await this.#of(host)[type].add(data)
    return true
  }

  async ended(host: FanoutHostJson): Promise<boolean> {
    this.#ended.push(host)
    return true
  }

  async finish({ ok, ...ledger }: FanoutLedgerJson): Promise<boolean> {
    const head = JSON.stringify({ ok, ...ledger })
    let before = `${head.slice(0, -1)},"hosts":[`
    for (const host of this.#ended) {
      if (!(await this.#write(`${before}${await this.#hostText(host)}`))) return false
      before = ','
    }
    const written = await this.#write(`${this.#ended.length === 0 ? before : ''}]}\n`)
    await printProblem(this.#context, this.#lostLines())
    return written
  }

  async close(): Promise<void> {
    await this.#held.close()
  }

  #lostLines(): string[] {
    const cut = Map.groupBy(this.#ended, cutText)
    return [
      ...[...cut].flatMap(([text, hosts]) => (text === null ? [] : [`${foldNodeSet(hosts.map(({ host }) => host))}: ${text}`])),
      ...(this.#tooLong.length === 0 ? [] : [`${foldNodeSet(this.#tooLong)}: --json has only ${MAX_JSON_OUTPUT} bytes of each output`]),
    ]
  }

  #of(host: string): Record<OutputName, SpillableOutput> {
    const known = this.#outputs.get(host)
    if (known !== undefined) return known
    const outputs = { stdout: this.#held.hold(MAX_JSON_OUTPUT), stderr: this.#held.hold(MAX_JSON_OUTPUT) }
    this.#outputs.set(host, outputs)
    return outputs
  }

  async #hostText(host: FanoutHostJson): Promise<string> {
    const { stdout, stderr } = this.#of(host.host)
    const [stdout_b64, stderr_b64] = [await textOf(stdout), await textOf(stderr)]
    const output_cut = stdout.lost + stderr.lost > 0
    if (output_cut) this.#tooLong.push(host.host)
    return JSON.stringify({ ...host, stdout_b64, stderr_b64, output_cut })
  }

  async #write(text: string): Promise<boolean> {
    return write(this.#context.stdout, visibleJson(text))
  }
}

/** Width up to which names are aligned. An ID of 64 characters would move all output off the screen. */
const MAX_ALIGNED = 24
const STREAMS = ['stdout', 'stderr'] as const

/** Prints lines as they come, with the host before each: `web8: …`. */
export class PrefixedView implements FleetView {
  readonly #lines: ShownLines
  readonly #started = new Map<string, Record<OutputName, LinePieces>>()
  #width = 0

  constructor(components: { readonly lines: ShownLines }) {
    this.#lines = components.lines
  }

  start(hosts: readonly string[]): void {
    this.#width = hosts.reduce((widest, host) => Math.max(widest, widthOf(host)), 0)
    if (this.#width > MAX_ALIGNED) this.#width = 0
  }

  async output(host: string, { type, data }: OutputPart): Promise<boolean> {
    let pieces = this.#started.get(host)
    if (pieces === undefined) this.#started.set(host, (pieces = { stdout: new LinePieces(), stderr: new LinePieces() }))
    return this.#lines.write(type, this.#prefix(host, type), pieces[type].push(data))
  }

  /** The last output of a host may lack a line end, which is added before the next prefix. */
  async ended({ host }: FanoutHostJson): Promise<boolean> {
    const pieces = this.#started.get(host)
    this.#started.delete(host)
    return pieces === undefined || this.#rest(host, pieces)
  }

  async finish(): Promise<boolean> {
    for (const [host, pieces] of this.#started) if (!(await this.#rest(host, pieces))) return false
    return true
  }

  async close(): Promise<void> {
    this.#started.clear()
  }

  async #rest(host: string, pieces: Record<OutputName, LinePieces>): Promise<boolean> {
    for (const stream of STREAMS) {
      const rest = pieces[stream].rest()
      if (rest !== null && !(await this.#lines.write(stream, this.#prefix(host, stream), [rest]))) return false
    }
    return true
  }

  /** Aligned for terminals only, because programs split at the first colon and blank. */
  #prefix(host: string, stream: OutputName): Prefix {
    const style = stream === 'stdout' ? 'cyan' : 'yellow'
    if (!this.#lines.isTerminal(stream)) return { text: `${host}: `, style }
    return { text: `${host}: ${' '.repeat(Math.max(0, this.#width - widthOf(host)))}`, style }
  }
}

const widthOf = (host: string): number => textWidth(shownLine(host))
