import { type GivenOptions, NONE_GIVEN, pasteable } from '../base/hint.ts'
import { EXIT_BAD_CONFIG } from '../cli/exit.ts'
import { jsonText } from '../protocol/lines.ts'

/** The result of a line of `--check` or `--doctor`. */
export type CheckStatus = 'ok' | 'warn' | 'fail'

export interface Finding {
  readonly standing: CheckStatus
  readonly topic: string
  readonly text: string
  /** What to do, one line for each choice, or null if nothing. */
  readonly remedy: string | null
}

export const ok = (topic: string, text: string): Finding => ({ standing: 'ok', topic, text, remedy: null })
export const warn = (topic: string, text: string, remedy: string): Finding => ({ standing: 'warn', topic, text, remedy })
export const fail = (topic: string, text: string, remedy: string | null): Finding => ({ standing: 'fail', topic, text, remedy })

export const isWell = (findings: readonly Finding[]): boolean => findings.every(({ standing }) => standing !== 'fail')

/** One line for each finding, with its remedy indented below. */
export const findingsText = (findings: readonly Finding[], given = NONE_GIVEN): string => {
  const width = Math.max(...findings.map(({ topic }) => topic.length))
  return findings
    .flatMap(({ standing, topic, text, remedy }) => [
      `${standing.padEnd(4)}  ${topic.padEnd(width)}  ${pasteable(text, given)}`,
      ...(remedy === null ? [] : remedy.split('\n').map((line) => pasteable(`${' '.repeat(width + 8)}-> ${line}`, given))),
    ])
    .join('\n')
    .concat('\n')
}

/** Prints the findings and returns the exit status. */
export const reportFindings = (
  findings: readonly Finding[],
  { json, given }: { readonly json: boolean; readonly given?: GivenOptions },
): number => {
  process.stdout.write(json ? `${jsonText({ ok: isWell(findings), findings })}\n` : findingsText(findings, given))
  return isWell(findings) ? 0 : EXIT_BAD_CONFIG
}
