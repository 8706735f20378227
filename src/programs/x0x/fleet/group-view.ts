import { type FanoutHostJson, isSuccess } from '../../../protocol/fanout.ts'
import { foldNodeSet } from '../../../protocol/node-set.ts'
import type { OutputPart } from '../../../protocol/run-events.ts'
import { endText } from './end-text.ts'
import type { FleetView } from './fleet-view.ts'
import { FoldedOutputs, type OutputGroup } from './folded-outputs.ts'
import type { HeldOutput, HeldOutputs } from './held-output.ts'
import { LinePieces, MAX_LINE_PIECE } from './line-pieces.ts'
import type { Prefix, ShownLines, Stream } from './shown-lines.ts'

export const INDENT: Prefix = { text: '  ' }

/** `web[1-7,9-20] (19, exit status 2)` */
export const groupTitle = ({ hosts, end }: Pick<OutputGroup, 'hosts' | 'end'>): string => {
  const facts = [...(hosts.length === 1 ? [] : [`${hosts.length}`]), endText(end)].filter((fact) => fact !== '').join(', ')
  return `${foldNodeSet(hosts)}${facts === '' ? '' : ` (${facts})`}`
}

/** Of one write; the longest lines are half as long. */
const BATCH_BYTES = 2 * MAX_LINE_PIECE
/** What stands around a line costs as much as some bytes of it. */
const LINE_COST = 16

/** Lines that are written at once: one write for each would be most of the work. Where there is more than one line, the first has two at least. */
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

/** Writes one output of a group: one line behind its title, several below it. False when nobody reads any more. */
export const writeGroup = async (
  lines: ShownLines,
  stream: Stream,
  { text, style }: Required<Prefix>,
  output: HeldOutput,
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

const lostLine = async (lines: ShownLines, stream: Stream, { lost }: HeldOutput): Promise<boolean> =>
  lost === 0 || lines.say(stream, `  … ${lost} bytes more could not be kept`, 'yellow')

export const styleOf = ({ end }: Pick<OutputGroup, 'end'>): 'bold' | 'red' => (isSuccess(end) ? 'bold' : 'red')

/** Both outputs of a group. A title without output stands on standard output, so that no host is passed over. */
export const writeWholeGroup = async (lines: ShownLines, group: OutputGroup): Promise<boolean> => {
  const [text, style] = [groupTitle(group), styleOf(group)]
  const hasError = group.stderr.length > 0
  if ((group.stdout.length > 0 || !hasError) && !(await writeGroup(lines, 'stdout', { text, style }, group.stdout))) return false
  return !hasError || writeGroup(lines, 'stderr', { text: `${text} stderr`, style }, group.stderr)
}

/** `--group`: equal outputs once, when all have ended. */
export class GroupView implements FleetView {
  readonly #lines: ShownLines
  readonly #held: HeldOutputs
  readonly #folded: FoldedOutputs

  constructor(components: { readonly lines: ShownLines; readonly held: HeldOutputs }) {
    this.#lines = components.lines
    this.#held = components.held
    this.#folded = new FoldedOutputs(components)
  }

  begin(hosts: readonly string[]): void {
    this.#folded.begin(hosts)
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
