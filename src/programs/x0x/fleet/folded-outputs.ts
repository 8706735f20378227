import { type FanoutHostJson, isSuccess } from '../../../protocol/fanout.ts'
import type { OutputPart } from '../../../protocol/run-events.ts'
import type { HeldOutput, HeldOutputs } from './held-output.ts'
import type { Stream } from './shown-lines.ts'

type Outputs = Readonly<Record<Stream, HeldOutput>>

/** Hosts that ended in the same way, with the same output. */
export interface OutputGroup extends Outputs {
  readonly hosts: string[]
  /** That of the first one. */
  readonly end: FanoutHostJson
}

/** Keeps each output once, and who gave it. */
export class FoldedOutputs {
  readonly #held: HeldOutputs
  readonly #running = new Map<string, Outputs>()
  readonly #groups = new Map<string, OutputGroup>()
  readonly #ranks = new Map<string, number>()

  constructor(components: { readonly held: HeldOutputs }) {
    this.#held = components.held
  }

  /** In the order in which they were named. */
  begin(hosts: readonly string[]): void {
    for (const host of hosts) this.#ranks.set(host, this.#ranks.size)
  }

  async output(host: string, { type, data }: OutputPart): Promise<void> {
    let outputs = this.#running.get(host)
    if (outputs === undefined) this.#running.set(host, (outputs = this.#hold()))
    await outputs[type].add(data)
  }

  ended(end: FanoutHostJson): void {
    const outputs = this.#running.get(end.host) ?? this.#hold()
    this.#running.delete(end.host)
    if (end.end !== 'ran' && outputs.stdout.length + outputs.stderr.length === 0) return
    const key = [end.end, end.code, end.signal, end.incomplete, end.truncated, outputs.stdout.digest(), outputs.stderr.digest()].join()
    const same = this.#groups.get(key)
    if (same === undefined) this.#groups.set(key, { hosts: [end.host], end, ...outputs })
    else {
      same.hosts.push(end.host)
      outputs.stdout.drop()
      outputs.stderr.drop()
    }
  }

  /** That of most hosts first; of equals what went well, then whose host was named first. */
  groups(): OutputGroup[] {
    const rank = ({ hosts }: OutputGroup): number => hosts.reduce((first, host) => Math.min(first, this.#ranks.get(host) ?? 0), Infinity)
    return [...this.#groups.values()].sort(
      (a, b) => b.hosts.length - a.hosts.length || Number(isSuccess(b.end)) - Number(isSuccess(a.end)) || rank(a) - rank(b),
    )
  }

  #hold(): Outputs {
    return { stdout: this.#held.hold(), stderr: this.#held.hold() }
  }
}
