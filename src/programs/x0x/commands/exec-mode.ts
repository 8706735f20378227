import { AppError } from '../../../base/errors.ts'
import { counted } from '../../../base/format.ts'
import { shownLine } from '../../../base/visible-text.ts'
import { write } from '../../../cli/output.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import type { ApprovalClient } from '../../../clients/desk.ts'
import { settingsOf } from '../../../policy/modes.ts'
import type { ModeOverride } from '../../../protocol/desk/messages.ts'
import {
  type ModeChange,
  type ModeCommand,
  NOTHING_SET,
  changedOverride,
  overrideIn,
  overrideText,
  readModeCommand,
  readSettings,
} from '../../../protocol/desk/mode-command.ts'
import { MAX_SESSION_NAME } from '../../../protocol/limits/approvals.ts'
import type { CliContext } from '../context.ts'
import { usageError } from '../failure.ts'
import { printAnswer, printLine, printTable } from '../print.ts'
import { atDesk } from './approvals.ts'

/** A session, which is named after its agent if it has no name. */
interface Whose {
  readonly session: string
  readonly agent: string
}

const whoseOf = (line: CommandLine): Whose => {
  const [agent, session] = [line.value('agent'), line.value('session')]
  const name = session ?? agent
  if (name === null || name === '')
    throw usageError(
      'no agent given',
      'Usage: x0x exec-mode … --agent LABEL [--session ID]\nSee: x0x exec-mode list, x0x approvals pending',
    )
  if (agent === '*') throw usageError('--agent "*" is not an agent: modes are set for one agent', 'Try: x0x exec-mode … --agent LABEL')
  if (name.length > MAX_SESSION_NAME || (agent ?? '').length > MAX_SESSION_NAME)
    throw usageError(`a name has at most ${MAX_SESSION_NAME} characters`)
  return { session: name, agent: agent ?? name }
}

interface Modes {
  readonly session: ModeOverride | null
  /** Set for all sessions of the agent. */
  readonly all: ModeOverride | null
  /** The combination of both. */
  readonly together: ModeOverride | null
  /** The store's modes, which narrow commands on this host if neither is set. */
  readonly stored: string
}

const modesOf = async (desk: ApprovalClient, whose: Whose): Promise<Modes> => {
  const answer = await desk.modes(whose)
  const { security, ask, ask_fallback } = answer
  const stored = `security=${String(security)} ask=${String(ask)}, no approver connected: ${String(ask_fallback)}`
  const [session, all, together] = ['session', 'all_sessions', 'together'].map((key) => overrideIn(answer[key]))
  return { session: session ?? null, all: all ?? null, together: together ?? null, stored }
}

const shownModes = async (context: CliContext, whose: Whose, modes: Modes): Promise<number> =>
  printAnswer(context, { ok: true, ...whose, override: modes.session, all_sessions: modes.all, together: modes.together }, async () => {
    const { session, all, together, stored } = modes
    const lines = [
      [whose.session, session],
      ...(all !== null && whose.session !== whose.agent ? [[`all sessions of ${whose.agent}`, all] as const] : []),
    ] as const
    for (const [name, override] of lines) await printLine(context, shownLine(`${name}: ${overrideText(override)}`))
    if (lines.length > 1) await printLine(context, shownLine(`together: ${overrideText(together)}`))
    await printLine(context, shownLine(`the store says: ${stored}`))
  })

/** Modes set for sessions, and the store's rows of agents. */
const list = async (context: CliContext): Promise<number> =>
  atDesk(context, async (desk) => {
    const { sessions, saved, left_out } = await desk.allModes()
    return printAnswer(context, { ok: true, sessions, left_out, saved }, async () => {
      if (sessions.length + saved.length === 0) return printLine(context, 'no modes are set for a session or saved for an agent')
      const rows = [
        ...sessions.map(({ session, override, by, set_at_ms }) => [
          session,
          overrideText(override),
          `${by}, ${new Date(set_at_ms).toISOString()}`,
        ]),
        ...saved.map(({ agent, ...row }) => [agent, overrideText({ ...NOTHING_SET, ...row }), 'saved']),
      ]
      await printTable(context, ['NAME OR SESSION', 'MODES', 'SET BY'], rows)
      if (left_out > 0)
        await printLine(context, `${counted(left_out, 'older one')} not shown: x0x exec-mode show --agent LABEL --session ID`)
      return true
    })
  })

const change = async (context: CliContext, whose: Whose, what: ModeChange): Promise<number> =>
  atDesk(context, async (desk) => {
    const before = await modesOf(desk, whose)
    await desk.setModes(whose.session, changedOverride(before.session, what))
    return shownModes(context, whose, await modesOf(desk, whose))
  })

const off = async (context: CliContext, whose: Whose, isSaved: boolean): Promise<number> =>
  atDesk(context, async (desk) => {
    await desk.setModes(whose.session, null)
    if (isSaved) await desk.saveModes(whose.agent, null)
    return shownModes(context, whose, await modesOf(desk, whose))
  })

const save = async (context: CliContext, whose: Whose): Promise<number> =>
  atDesk(context, async (desk) => {
    const { security, ask, host, node } = settingsOf((await modesOf(desk, whose)).session)
    if (security === null && ask === null)
      throw new AppError('conflict', `neither security nor ask is set for ${whose.session}`, {
        data: { next: 'Try: x0x exec-mode set security=… ask=… --agent LABEL' },
      })
    await desk.saveModes(whose.agent, { security, ask })
    if (host !== null || node !== null)
      await write(context.stderr, 'x0x: host and node are not saved: set them in [[agents.list]] of the configuration\n')
    return shownModes(context, whose, await modesOf(desk, whose))
  })

const run = async (context: CliContext, whose: Whose, command: ModeCommand): Promise<number> => {
  if (command.kind === 'problem') throw usageError(command.problem, 'See: x0x exec-mode --help')
  if (command.kind === 'change') return change(context, whose, command.change)
  return atDesk(context, async (desk) => shownModes(context, whose, await modesOf(desk, whose)))
}

/** `x0x exec-mode …`: modes that an approver sets for a session. They narrow, or choose within the configuration. */
export const runExecMode = async (context: CliContext, line: CommandLine): Promise<number> => {
  const what = line.command.slice('exec-mode '.length)
  if (what === 'list') return list(context)
  // A shell makes one word of quoted words.
  const words = line.words.flatMap((word) => word.split(' ')).filter((word) => word !== '')
  const command =
    what === '' && words.length > 0 ? readModeCommand(words) : what === 'set' ? readSettings(words) : { kind: 'show' as const }
  if (command.kind === 'problem') throw usageError(command.problem, 'See: x0x exec-mode --help')
  const whose = whoseOf(line)
  if (what === 'off') return off(context, whose, line.has('saved'))
  return what === 'save' ? save(context, whose) : run(context, whose, command)
}
