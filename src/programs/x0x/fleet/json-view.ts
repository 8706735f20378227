import { visibleJson } from '../../../base/visible-text.ts'
import type { FanoutHostJson, FanoutLedgerJson } from '../../../protocol/fanout.ts'
import { foldNodeSet } from '../../../protocol/node-set.ts'
import type { OutputPart } from '../../../protocol/run-events.ts'
import { write } from '../../../supervision/program-output.ts'
import type { CliContext } from '../context.ts'
import { cutText } from '../cut-output.ts'
import { printProblem } from '../failure.ts'
import type { FleetView } from './fleet-view.ts'
import type { HeldOutput, HeldOutputs } from './held-output.ts'
import type { Stream } from './shown-lines.ts'

/** Of each output of one host; more is cut, and said. Who reads one object has all of it in memory. */
export const MAX_JSON_OUTPUT = 1024 * 1024

const textOf = async (output: HeldOutput): Promise<string> => {
  const parts: Uint8Array[] = []
  for await (const part of output.read()) parts.push(part)
  return Buffer.concat(parts).toString('base64')
}

/** `--json`: one object at the end, in the shape of `POST /exec/fanout`, a host at a time. */
export class JsonView implements FleetView {
  readonly #context: CliContext
  readonly #held: HeldOutputs
  readonly #outputs = new Map<string, Record<Stream, HeldOutput>>()
  readonly #ended: FanoutHostJson[] = []
  /** Hosts whose output is longer than one object has of it. */
  readonly #tooLong: string[] = []

  constructor(components: { readonly context: CliContext; readonly held: HeldOutputs }) {
    this.#context = components.context
    this.#held = components.held
  }

  begin(): void {}

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

  #of(host: string): Record<Stream, HeldOutput> {
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
