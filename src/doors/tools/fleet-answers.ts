import { OUTPUT_NAMES } from '../../protocol/reasons.ts'
import { createHash } from 'node:crypto'
import { foldNodeSet } from '../../protocol/hosts/node-set.ts'
import { type Sent, count, flag, integer, orNull, text } from '../../protocol/json-table.ts'
import { DESCENDANTS_ENDED, type ToolResult } from './tool-result.ts'
import { type ToolRun, type View } from './tool-run.ts'

export const FLEET_ANSWER = {
  hosts: text.says('hosts with this answer, as a node set'),
  count,
  exit_code: orNull(integer),
  signal: orNull(text),
  timed_out: flag,
  incomplete: flag.says('output is missing or was cut by a limit, so the host counts as failed'),
  stdout: text.says('untrusted data'),
  stderr: text.says('untrusted data'),
  stdout_omitted_bytes: count,
  stderr_omitted_bytes: count,
  stdout_invalid_utf8: flag,
  stderr_invalid_utf8: flag,
  run_id: orNull(text).says('ID to read more with exec_output; null if the run is no longer known'),
  descendants_ended: DESCENDANTS_ENDED,
}
export type FleetAnswer = Sent<typeof FLEET_ANSWER>

interface Group {
  readonly hosts: string[]
  readonly run: ToolRun
  readonly incomplete: boolean
  result: ToolResult
}

/** A key that is equal for equal answers. Null means part of the output is missing, so the answer equals no other. */
const keyOf = (run: ToolRun, incomplete: boolean): string | null => {
  const { exit_code, signal, timed_out, stdout_invalid_utf8, stderr_invalid_utf8, descendants_ended } = run.result({ stdout: 0, stderr: 0 })
  const hash = createHash('sha256')
  hash.update(JSON.stringify([exit_code, signal, timed_out, incomplete, stdout_invalid_utf8, stderr_invalid_utf8, descendants_ended]))
  for (const stream of OUTPUT_NAMES) {
    const { head, cut } = run.text[stream].kept.cut(Number.MAX_SAFE_INTEGER)
    if (cut > 0 || run.dropped(stream) > 0) return null
    hash.update(`\n${Buffer.byteLength(head)}\n`).update(head)
  }
  return hash.digest('hex')
}

/** Bytes of text in a result. */
const sizeOf = ({ stdout, stderr }: ToolResult): number => Buffer.byteLength(stdout) + Buffer.byteLength(stderr)

/** The answers of the hosts, each distinct answer once. */
export class FleetAnswers {
  readonly #view: View
  readonly #ranks: ReadonlyMap<string, number>
  readonly #groups: Group[] = []
  readonly #byKey = new Map<string, Group>()

  /** `hosts`: all hosts of the fan-out, in the order of the request. */
  constructor(init: { readonly view: View; readonly hosts: readonly string[] }) {
    this.#view = init.view
    this.#ranks = new Map(init.hosts.map((host, at) => [host, at]))
  }

  /** Adds the answer of a host that ran. Returns false if an equal answer is known, so that the run is not needed. */
  add(host: string, run: ToolRun, incomplete: boolean): boolean {
    const key = keyOf(run, incomplete)
    const known = key === null ? undefined : this.#byKey.get(key)
    if (known !== undefined) {
      known.hosts.push(host)
      return false
    }
    const group = { hosts: [host], run, incomplete, result: run.result(this.#view) }
    this.#groups.push(group)
    if (key !== null) this.#byKey.set(key, group)
    return true
  }

  /** Answers by number of hosts, then by the order of the request. Answers that do not fit into `total` bytes come without text. */
  list(total: number, isKnown: (run: ToolRun) => boolean): FleetAnswer[] {
    return this.#shown(total).map(([group, result]) => answerOf(group, result, isKnown(group.run)))
  }

  /** All hosts have answered: text that does not fit into `total` bytes is dropped. */
  settle(total: number): void {
    for (const [group, result] of this.#shown(total)) group.result = result
  }

  #shown(total: number): [Group, ToolResult][] {
    let left = total
    const rank = ({ hosts }: Group): number => hosts.reduce((first, host) => Math.min(first, this.#ranks.get(host) ?? Infinity), Infinity)
    return this.#groups
      .toSorted((one, other) => other.hosts.length - one.hosts.length || rank(one) - rank(other))
      .map((group) => {
        const size = sizeOf(group.result)
        if (size > left) return [group, withoutText(group)]
        left -= size
        return [group, group.result]
      })
  }
}

const withoutText = ({ run, result }: Group): ToolResult => {
  const all = (stream: 'stdout' | 'stderr'): number =>
    Math.max(result[`${stream}_omitted_bytes`], run.text[stream].kept.total + run.dropped(stream))
  return { ...result, stdout: '', stderr: '', stdout_omitted_bytes: all('stdout'), stderr_omitted_bytes: all('stderr') }
}

const answerOf = ({ hosts, run, incomplete }: Group, result: ToolResult, isKnown: boolean): FleetAnswer => ({
  hosts: foldNodeSet(hosts),
  count: hosts.length,
  exit_code: result.exit_code,
  signal: result.signal,
  timed_out: result.timed_out,
  incomplete,
  stdout: result.stdout,
  stderr: result.stderr,
  stdout_omitted_bytes: result.stdout_omitted_bytes,
  stderr_omitted_bytes: result.stderr_omitted_bytes,
  stdout_invalid_utf8: result.stdout_invalid_utf8,
  stderr_invalid_utf8: result.stderr_invalid_utf8,
  run_id: isKnown ? run.id : null,
  ...(result.descendants_ended !== undefined && { descendants_ended: result.descendants_ended }),
})
