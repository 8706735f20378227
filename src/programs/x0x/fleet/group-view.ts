import { isSuccess, type FanoutHostJson } from '../../../protocol/fanout.ts'
import { foldNodeSet } from '../../../protocol/node-set.ts'
import type { OutputPart } from '../../../protocol/run-events.ts'
import { endText } from './end-text.ts'
import type { FleetView } from './fleet-view.ts'
import { FoldedOutputs, type OutputGroup } from './folded-outputs.ts'
import type { HeldOutput, HeldOutputs } from './held-output.ts'
import { LinePieces } from './line-pieces.ts'
import type { Prefix, ShownLines, Stream } from './shown-lines.ts'

export const INDENT: Prefix = { text: '  ' }

/** `web[1-7,9-20] (19, exit status 2)` */
export const groupTitle = ({ hosts, end }: Pick<OutputGroup, 'hosts' | 'end'>): string => {
  const facts = [...(hosts.length === 1 ? [] : [`${hosts.length}`]), endText(end)].filter((fact) => fact !== '').join(', ')
  return `${foldNodeSet(hosts)}${facts === '' ? '' : ` (${facts})`}`
}

async function* linesIn(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void, undefined> {
  const pieces = new LinePieces()
  for await (const chunk of chunks) yield* pieces.push(chunk)
  const rest = pieces.rest()
  if (rest !== null) yield rest
}

/** Writes one output of a group: one line behind its title, several below it. False when nobody reads any more. */
export const writeGroup = async (
  lines: ShownLines,
  stream: Stream,
  { text, style }: Required<Prefix>,
  output: HeldOutput,
): Promise<boolean> => {
  const all = linesIn(output.read())
  const [first, second] = [await all.next(), await all.next()]
  if (first.done === true) return lines.say(stream, `${text}:`, style)
  if (second.done === true)
    return (await lines.write(stream, { text: `${text}: `, style }, [first.value])) && lostLine(lines, stream, output)
  if (!(await lines.say(stream, `${text}:`, style)) || !(await lines.write(stream, INDENT, [first.value, second.value]))) return false
  for await (const line of all) if (!(await lines.write(stream, INDENT, [line]))) return false
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
