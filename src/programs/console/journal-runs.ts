import { accessSync, constants } from 'node:fs'
import { BoundedMap } from '../../base/bounded-collections.ts'
import { errorText } from '../../base/errors.ts'
import { unreadable } from '../../base/files.ts'
import { bannerText, endText, nameText, wordsText } from '../../doors/console/transcript-text.ts'
import { type TextStyle, inColourOf, styled } from '../../doors/console/screen/cells.ts'
import type { OrderedScreen } from '../../doors/console/screen/console-screen.ts'
import { type AnyRunKey, type JournalExit, type JournalLine, keyOf } from '../../journal/events.ts'
import { parseLine } from '../../journal/parse-line.ts'
import { tailJournal } from '../../journal/tail.ts'

/** Runs whose end is awaited. The end of a forgotten one is shown without its command. */
const MAX_RUNS = 1_000
const ID_LENGTH = 12
/** Marks lines of other interfaces. */
const THEIRS = { drawn: '» ', ascii: '> ' } as const

interface Begun {
  readonly who: string
  readonly argv: readonly string[]
}

const whoOf = (key: AnyRunKey): string =>
  'agent_id' in key ? `mesh ${key.agent_id.slice(0, ID_LENGTH)}` : `${key.door} ${key.client_name}`

/** The exit status in the console's form. */
const exitOf = ({ code, signal }: Pick<JournalExit, 'code' | 'signal'>): number => code ?? 128 + (signal ?? 0)

const isNumber = (value: unknown): boolean => typeof value === 'number'
const isTexts = (value: unknown): boolean => Array.isArray(value) && value.every((one) => typeof one === 'string')

/** Checks the types of the shown fields, because the named file may contain anything. */
const SHAPES: Readonly<Record<string, (line: Readonly<Record<string, unknown>>) => boolean>> = {
  request: ({ argv, timeout_ms, cwd }) => isTexts(argv) && isNumber(timeout_ms) && (cwd === undefined || typeof cwd === 'string'),
  exit: ({ code, signal, duration_ms }) => [code, signal].every((one) => one === null || isNumber(one)) && isNumber(duration_ms),
  lost: () => true,
  denial: ({ argv, reason }) => isTexts(argv) && typeof reason === 'string',
  refused: ({ argv, code }) => isTexts(argv) && typeof code === 'string',
}

/** Shows the runs of other interfaces from journal lines, which do not contain output. */
export class JournalRuns {
  readonly #look: TextStyle
  readonly #started = new BoundedMap<string, Begun>({ max: MAX_RUNS })

  constructor(look: TextStyle) {
    this.#look = look
  }

  /** Null if the line is not about a run of another interface. */
  text(line: JournalLine): string | null {
    if (('door' in line && line.door === 'console') || SHAPES[line.event]?.({ ...line }) !== true) return null
    const text = this.#textOf(line)
    return text === null ? null : `${styled(this.#look, 'bold', this.#look.drawn ? THEIRS.drawn : THEIRS.ascii)}${text}`
  }

  #textOf(line: JournalLine): string | null {
    switch (line.event) {
      case 'request': {
        const who = whoOf(line)
        const dir = 'cwd' in line ? line.cwd : '-'
        this.#started.set(keyOf(line), { who, argv: line.argv })
        return bannerText({ time: `${line.ts.slice(0, 19)}Z`, whoami: who, dir, exec: line.argv, timeout_ms: line.timeout_ms }, this.#look)
      }
      case 'exit':
        return this.#ended(line, endText({ exit: exitOf(line), error: null, duration_ms: line.duration_ms }, this.#look) ?? 'exit 0')
      case 'lost':
        return this.#ended(line, styled(this.#look, 'bad', 'lost: how it ended is not known'))
      case 'denial':
        return this.#denied(whoOf(line), line.argv, line.reason)
      case 'refused':
        return line.argv === null ? null : this.#denied(whoOf(line as AnyRunKey), line.argv, line.code)
      default:
        return null
    }
  }

  #ended(key: AnyRunKey, how: string): string {
    const { who, argv } = this.#started.get(keyOf(key)) ?? { who: whoOf(key), argv: [] }
    this.#started.delete(keyOf(key))
    return `${inColourOf(this.#look, who, nameText(who))} ${wordsText(argv)} ${how}`
  }

  #denied(who: string, argv: readonly string[], reason: string): string {
    return `${inColourOf(this.#look, who, nameText(who))} ${wordsText(argv)} ${styled(this.#look, 'bad', `denied: ${reason}`)}`
  }
}

const follow = async (file: string, screen: OrderedScreen, signal: AbortSignal): Promise<void> => {
  const runs = new JournalRuns(screen.look)
  screen.record(`runs of other interfaces are shown from ${file}, without output`)
  try {
    for await (const text of tailJournal(file, { lines: 0, follow: true }, signal)) {
      const line: JournalLine | null = parseLine(Buffer.from(text))
      const shown = line === null ? null : runs.text(line)
      if (shown !== null) screen.line(shown)
    }
  } catch (error) {
    screen.record(`stopped watching ${file}: ${errorText(error)}`)
  }
}

/** Throws `bad_config` for a file that cannot be watched. */
export const checkJournals = (files: readonly string[]): void => {
  for (const file of files)
    try {
      accessSync(file, constants.R_OK)
    } catch (error) {
      throw unreadable('bad_config', file, error, `--watch-journal: ${file}`)
    }
}

/** Shows new lines of journals of other interfaces until the signal. */
export const watchJournals = async (
  files: readonly string[],
  { screen, signal }: { readonly screen: OrderedScreen | null; readonly signal: AbortSignal },
): Promise<void> => {
  if (screen !== null) await Promise.all(files.map(async (file) => follow(file, screen, signal)))
}
