import { structuredPatch } from 'diff'
import { type FanoutHostJson, isSuccess } from '../../../protocol/api/fanout.ts'
import type { OutputPart } from '../../../protocol/api/run-events.ts'
import { foldNodeSet } from '../../../protocol/hosts/node-set.ts'
import type { OutputName } from '../../../protocol/reasons.ts'
import { utf8Text } from '../../../protocol/text.ts'
import { endText } from './fleet-summary.ts'
import type { FleetView } from './line-views.ts'
import { LinePieces, MAX_LINE_PIECE, type Prefix, type ShownLines, linesOfWhole } from './lines.ts'
import type { OutputStore, SpillableOutput } from './output-store.ts'

type Outputs = Readonly<Record<OutputName, SpillableOutput>>

/** Hosts with the same end and output. */
export interface OutputGroup extends Outputs {
  readonly hosts: string[]
  readonly end: FanoutHostJson
}

/** Stores equal outputs once, with their hosts. */
export class FoldedOutputs {
  readonly #held: OutputStore
  readonly #running = new Map<string, Outputs>()
  readonly #groups = new Map<string, OutputGroup>()
  readonly #ranks = new Map<string, number>()

  constructor(components: { readonly held: OutputStore }) {
    this.#held = components.held
  }

  start(hosts: readonly string[]): void {
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

  /** The largest group first. Among equals, successful ones, then the order of hosts. */
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

export const INDENT: Prefix = { text: '  ' }

/** `web[1-7,9-20] (19, exit status 2)` */
export const groupTitle = ({ hosts, end }: Pick<OutputGroup, 'hosts' | 'end'>): string => {
  const facts = [...(hosts.length === 1 ? [] : [`${hosts.length}`]), endText(end)].filter((fact) => fact !== '').join(', ')
  return `${foldNodeSet(hosts)}${facts === '' ? '' : ` (${facts})`}`
}

/** Size of one write, twice that of the longest line. */
const BATCH_BYTES = 2 * MAX_LINE_PIECE
/** Overhead of a line, in bytes. */
const LINE_COST = 16

/** Joins lines into batches, because one write per line would dominate the cost. The first batch has at least two of several lines. */
async function* batchesIn(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array[], void, undefined> {
  const pieces = new LinePieces()
  let [batch, cost]: [Uint8Array[], number] = [[], 0]
  for await (const chunk of chunks)
    for (const line of pieces.push(chunk)) {
      if (cost >= BATCH_BYTES) {
        yield batch
        ;[batch, cost] = [[], 0]
      }
      batch.push(line)
      cost += line.length + LINE_COST
    }
  const rest = pieces.rest()
  if (rest !== null) batch.push(rest)
  if (batch.length > 0) yield batch
}

/** Writes an output of a group. One line is after its title, and several lines are below it. False if the output has no reader. */
export const writeGroup = async (
  lines: ShownLines,
  stream: OutputName,
  { text, style }: Required<Prefix>,
  output: SpillableOutput,
): Promise<boolean> => {
  let isFirst = true
  for await (const batch of batchesIn(output.read())) {
    const isAlone = isFirst && batch.length === 1
    if (isFirst && !isAlone && !(await lines.say(stream, `${text}:`, style))) return false
    if (!(await lines.write(stream, isAlone ? { text: `${text}: `, style } : INDENT, batch))) return false
    isFirst = false
  }
  if (isFirst && !(await lines.say(stream, `${text}:`, style))) return false
  return lostLine(lines, stream, output)
}

const lostLine = async (lines: ShownLines, stream: OutputName, { lost }: SpillableOutput): Promise<boolean> =>
  lost === 0 || lines.say(stream, `  … ${lost} bytes more could not be kept`, 'yellow')

export const styleOf = ({ end }: Pick<OutputGroup, 'end'>): 'bold' | 'red' => (isSuccess(end) ? 'bold' : 'red')

/** Writes both outputs of a group. Without output, the title goes to standard output, so that no host is omitted. */
export const writeWholeGroup = async (lines: ShownLines, group: OutputGroup): Promise<boolean> => {
  const [text, style] = [groupTitle(group), styleOf(group)]
  const hasError = group.stderr.length > 0
  if ((group.stdout.length > 0 || !hasError) && !(await writeGroup(lines, 'stdout', { text, style }, group.stdout))) return false
  return !hasError || writeGroup(lines, 'stderr', { text: `${text} stderr`, style }, group.stderr)
}

/** `--group` shows equal outputs once, after the end of all hosts. */
export class GroupView implements FleetView {
  readonly #lines: ShownLines
  readonly #held: OutputStore
  readonly #folded: FoldedOutputs

  constructor(components: { readonly lines: ShownLines; readonly held: OutputStore }) {
    this.#lines = components.lines
    this.#held = components.held
    this.#folded = new FoldedOutputs(components)
  }

  start(hosts: readonly string[]): void {
    this.#folded.start(hosts)
  }

  async output(host: string, part: OutputPart): Promise<boolean> {
    await this.#folded.output(host, part)
    return true
  }

  async ended(host: FanoutHostJson): Promise<boolean> {
    this.#folded.ended(host)
    return true
  }

  async finish(): Promise<boolean> {
    return this.show(this.#folded.groups())
  }

  async close(): Promise<void> {
    await this.#held.close()
  }

  protected get lines(): ShownLines {
    return this.#lines
  }

  protected async show(groups: readonly OutputGroup[]): Promise<boolean> {
    for (const group of groups) if (!(await writeWholeGroup(this.#lines, group))) return false
    return true
  }
}

/** Size limit of outputs compared line by line, which are held in memory with the result. */
export const MAX_COMPARED_BYTES = 1024 * 1024
/** Limit on different lines in a comparison. Its cost grows with their square, and longer ones are unreadable. */
export const MAX_DIFFERENCES = 2_000
/** Time limit of a comparison. */
const MAX_COMPARE_MS = 2_000
const STREAMS = ['stdout', 'stderr'] as const

/** The beginning of an output that can be compared. */
interface Compared {
  readonly bytes: Buffer
  readonly isWhole: boolean
}

const beginningOf = async (output: SpillableOutput): Promise<Compared> => {
  const parts: Uint8Array[] = []
  let length = 0
  for await (const part of output.read()) {
    if (length < MAX_COMPARED_BYTES) parts.push(part.subarray(0, MAX_COMPARED_BYTES - length))
    length += part.length
  }
  return { bytes: Buffer.concat(parts), isWhole: length <= MAX_COMPARED_BYTES && output.lost === 0 }
}

const textOf = ({ bytes }: Compared): string | null => {
  const text = utf8Text(bytes)
  return text?.includes('\0') === true ? null : text
}

const firstDifference = (a: Buffer, b: Buffer): number => {
  const shorter = Math.min(a.length, b.length)
  for (let at = 0; at < shorter; at += 1) if (a[at] !== b[at]) return at
  return shorter
}

/** The differences between `other` and `common` as a unified diff, or a sentence if that is not possible. Empty without differences. */
export const differenceLines = (names: readonly [common: string, other: string], common: Compared, other: Compared): string[] => {
  if (common.isWhole && other.isWhole && common.bytes.equals(other.bytes)) return []
  const at = firstDifference(common.bytes, other.bytes)
  const unlike = (why: string): string[] => [
    at === common.bytes.length && at === other.bytes.length
      ? `${why}; their first ${at} bytes are equal`
      : `${why}; they differ from byte ${at + 1} on`,
  ]
  if (!common.isWhole || !other.isWhole) return unlike(`too large to be compared by lines`)
  const [one, two] = [textOf(common), textOf(other)]
  if (one === null || two === null) return unlike('no text')
  const options = { context: 3, maxEditLength: MAX_DIFFERENCES, timeout: MAX_COMPARE_MS }
  const patch = structuredPatch(names[0], names[1], one, two, undefined, undefined, options)
  if (patch === undefined) return unlike(`more than ${MAX_DIFFERENCES} lines differ`)
  const hunks = patch.hunks.flatMap(({ oldStart, oldLines, newStart, newLines, lines }) => [
    `@@ -${oldStart},${oldLines} +${newStart},${newLines} @@`,
    ...lines,
  ])
  return [`--- ${names[0]}`, `+++ ${names[1]}`, ...hunks]
}

const lineStyle = (line: string): 'red' | 'green' | 'cyan' | undefined => {
  if (line.startsWith('-')) return 'red'
  if (line.startsWith('+')) return 'green'
  return line.startsWith('@@') ? 'cyan' : undefined
}

/** `--diff` shows the output of most hosts, and how the others differ. */
export class DiffView extends GroupView {
  protected override async show(groups: readonly OutputGroup[]): Promise<boolean> {
    const [common, ...others] = [...groups].sort((a, b) => Number(b.end.end === 'ran') - Number(a.end.end === 'ran'))
    if (common === undefined) return true
    if (others.length === 0) return writeWholeGroup(this.lines, common)
    const compared = { stdout: await beginningOf(common.stdout), stderr: await beginningOf(common.stderr) }
    if (!(await this.#showCommon(common, compared))) return false
    for (const other of others) if (!(await this.#showOther(common, compared, other))) return false
    return true
  }

  async #showCommon(common: OutputGroup, compared: Readonly<Record<OutputName, Compared>>): Promise<boolean> {
    if (!(await this.lines.say('stdout', `${groupTitle(common)}:`, styleOf(common)))) return false
    for (const stream of STREAMS) {
      const { bytes, isWhole } = compared[stream]
      if (bytes.length === 0 && isWhole) continue
      if (!(await this.lines.write(stream, INDENT, linesOfWhole(bytes)))) return false
      if (!isWhole && !(await this.lines.say(stream, `  … ${common[stream].length - bytes.length} bytes more are not shown`, 'yellow')))
        return false
    }
    return true
  }

  async #showOther(common: OutputGroup, compared: Readonly<Record<OutputName, Compared>>, other: OutputGroup): Promise<boolean> {
    if (!(await this.lines.say('stdout', `${groupTitle(other)} differs:`, styleOf(other)))) return false
    let same = true
    for (const stream of STREAMS) {
      const suffix = stream === 'stderr' ? ' stderr' : ''
      const names = [`${foldNodeSet(common.hosts)}${suffix}`, `${foldNodeSet(other.hosts)}${suffix}`] as const
      for (const line of differenceLines(names, compared[stream], await beginningOf(other[stream]))) {
        same = false
        if (!(await this.#line(line))) return false
      }
    }
    return !same || this.lines.say('stdout', '  the same output', 'dim')
  }

  /** On a terminal, control characters are escaped, and colours are added. */
  async #line(line: string): Promise<boolean> {
    const style = lineStyle(line)
    return this.lines.write('stdout', { text: '' }, [Buffer.from(line)], style)
  }
}
