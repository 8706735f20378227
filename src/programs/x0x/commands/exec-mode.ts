import { AppError } from '../../../base/errors.ts'
import { shownLine } from '../../../base/visible-text.ts'
import type { DeskHuman } from '../../../local-api/desk-human.ts'
import type { ModeOverride } from '../../../protocol/desk.ts'
import { MAX_SESSION_NAME } from '../../../protocol/desk-limits.ts'
import { isTable } from '../../../protocol/field-checks.ts'
import {
  changedOverride,
  overrideText,
  readModeCommand,
  readSettings,
  type ModeChange,
  type ModeCommand,
} from '../../../protocol/mode-command.ts'
import type { CliContext } from '../context.ts'
import { usageError } from '../failure.ts'
import { printAnswer, printLine } from '../print.ts'
import { atDesk } from './approvals.ts'

export interface ModeOptions {
  readonly words: readonly string[]
  readonly agent: string | null
  readonly session: string | null
}

/** Whose modes: a session, which goes by its agent's name where it has none of its own. */
interface Whose {
  readonly session: string
  readonly agent: string
}

const whoseOf = ({ agent, session }: ModeOptions): Whose => {
  const name = session ?? agent
  if (name === null || name === '')
    throw usageError('whose modes? no agent given', 'x0x exec-mode … --agent LABEL [--session ID]; who asks now: x0x approvals pending')
  if (name.length > MAX_SESSION_NAME || (agent ?? '').length > MAX_SESSION_NAME)
    throw usageError(`a name has at most ${MAX_SESSION_NAME} characters`)
  return { session: name, agent: agent ?? name }
}

interface Modes {
  readonly session: ModeOverride | null
  readonly saved: ModeOverride | null
  /** What the store says where neither is. */
  readonly stored: string
}

const overrideIn = (value: unknown): ModeOverride | null => (isTable(value) ? (value as unknown as ModeOverride) : null)

const modesOf = async (desk: DeskHuman, whose: Whose): Promise<Modes> => {
  const answer = await desk.modes(whose)
  const { security, ask, ask_fallback } = answer
  const stored = `security=${String(security)} ask=${String(ask)}, where nobody answers: ${String(ask_fallback)}`
  return { session: overrideIn(answer['session']), saved: overrideIn(answer['saved']), stored }
}

const shownModes = async (context: CliContext, whose: Whose, modes: Modes): Promise<number> =>
  printAnswer(context, { ok: true, ...whose, override: modes.session, saved: modes.saved }, async () => {
    await printLine(context, shownLine(`${whose.session}: ${overrideText(modes.session)}`))
    if (modes.saved !== null) await printLine(context, shownLine(`saved for ${whose.agent}: ${overrideText(modes.saved)}`))
    await printLine(context, shownLine(`the store says: ${modes.stored}`))
  })

const change = async (context: CliContext, whose: Whose, what: ModeChange | null): Promise<number> =>
  atDesk(context, async (desk) => {
    const before = await modesOf(desk, whose)
    await desk.setModes(whose.session, what === null ? null : changedOverride(before.session, what))
    return shownModes(context, whose, await modesOf(desk, whose))
  })

const save = async (context: CliContext, whose: Whose): Promise<number> =>
  atDesk(context, async (desk) => {
    const { session } = await modesOf(desk, whose)
    if (session === null)
      throw new AppError('conflict', `nothing is set for ${whose.session}`, {
        data: { next: 'x0x exec-mode set host=… security=… ask=… --agent LABEL' },
      })
    await desk.saveModes(whose.agent, session)
    return shownModes(context, whose, await modesOf(desk, whose))
  })

const run = async (context: CliContext, whose: Whose, command: ModeCommand): Promise<number> => {
  if (command.kind === 'problem') throw usageError(command.problem, 'how to use it: x0x exec-mode --help')
  if (command.kind === 'change') return change(context, whose, command.change)
  return atDesk(context, async (desk) => shownModes(context, whose, await modesOf(desk, whose)))
}

/** `x0x exec-mode …`: what a human sets for the session of an agent. It narrows, or decides within what is configured. */
export const runExecMode = async (
  context: CliContext,
  what: 'show' | 'set' | 'off' | 'save' | 'words',
  options: ModeOptions,
): Promise<number> => {
  // A shell makes one word of what is quoted.
  const words = options.words.flatMap((word) => word.split(' ')).filter((word) => word !== '')
  const command =
    what === 'words' && words.length > 0 ? readModeCommand(words) : what === 'set' ? readSettings(words) : { kind: 'show' as const }
  if (command.kind === 'problem') throw usageError(command.problem, 'how to use it: x0x exec-mode --help')
  const whose = whoseOf(options)
  if (what === 'off') return change(context, whose, null)
  return what === 'save' ? save(context, whose) : run(context, whose, command)
}
