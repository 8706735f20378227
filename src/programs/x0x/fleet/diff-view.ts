import { structuredPatch } from 'diff'
import { foldNodeSet } from '../../../protocol/node-set.ts'
import { utf8Text } from '../../../protocol/text.ts'
import type { OutputGroup } from './folded-outputs.ts'
import { GroupView, INDENT, groupTitle, styleOf, writeWholeGroup } from './group-view.ts'
import type { HeldOutput } from './held-output.ts'
import { linesOfWhole } from './line-pieces.ts'
import type { Stream } from './shown-lines.ts'

/** Of one output that is compared line by line: both, and what is made of them, are in memory. */
export const MAX_COMPARED_BYTES = 1024 * 1024
/** Lines that differ in one comparison; beyond that it shows nothing to anybody, and costs the square of it. */
export const MAX_DIFFERENCES = 2_000
/** For one comparison. */
const MAX_COMPARE_MS = 2_000
const STREAMS = ['stdout', 'stderr'] as const

/** The beginning of an output, as far as it can be compared. */
interface Compared {
  readonly bytes: Buffer
  /** All of it is there. */
  readonly isWhole: boolean
}

const beginningOf = async (output: HeldOutput): Promise<Compared> => {
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

/** How `other` differs from `common`, as lines of a unified diff, or in a sentence where it cannot be one. Empty: not at all. */
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

/** `--diff`: the output of most hosts, and how those of the others differ from it. */
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

  async #showCommon(common: OutputGroup, compared: Readonly<Record<Stream, Compared>>): Promise<boolean> {
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

  async #showOther(common: OutputGroup, compared: Readonly<Record<Stream, Compared>>, other: OutputGroup): Promise<boolean> {
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

  /** On a terminal what its text would do there is shown; the colour is ours. */
  async #line(line: string): Promise<boolean> {
    const style = lineStyle(line)
    return this.lines.write('stdout', { text: '' }, [Buffer.from(line)], style)
  }
}
