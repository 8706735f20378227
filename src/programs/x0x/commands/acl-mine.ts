import { counted, shellWord } from '../../../base/format.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import { askRules } from '../../../clients/rules.ts'
import type { RulesJson } from '../../../protocol/api/rules.ts'
import { TEMPLATE_TEXT, parseToken } from '../../../protocol/argv-template.ts'
import { isFileCommand } from '../../../protocol/file-command.ts'
import type { ExecRule } from '../../../protocol/wire/exec.ts'
import type { CliContext } from '../context.ts'
import { printProblem } from '../failure.ts'
import { EXIT_NOT_RUN, type RunFacts, denialLines } from '../outcome.ts'
import { printHint, printJson, printLine, printTable } from '../print.ts'

type Own = NonNullable<RunFacts['own']>

/** `x0x acl mine AGENT`: 0, also without any rule; 255 if the agent did not answer. */
export const runAclMine = async (context: CliContext, { words: [agent = ''] }: CommandLine): Promise<number> => {
  const answer = await askRules(context.api, agent)
  if (context.json) await printJson(context, answer)
  else if (answer.denial_reason !== null) await printDenial(context, agent, answer.denial_reason)
  else if (answer.rules.length === 0 && answer.left_out === 0) await printNothing(context, agent)
  else await printRules(context, agent, answer)
  return answer.ok ? 0 : EXIT_NOT_RUN
}

const ownOf = async (context: CliContext): Promise<Own | null> => context.api.json<Own>({ method: 'GET', path: '/agent' }).catch(() => null)

const printDenial = async (context: CliContext, agent: string, reason: NonNullable<RulesJson['denial_reason']>): Promise<void> => {
  const lines = denialLines(reason, { agent, argv: [], own: await ownOf(context) })
  await printProblem(context, lines)
}

const printNothing = async (context: CliContext, agent: string): Promise<void> => {
  const own = await ownOf(context)
  const lines = [
    `${agent} does not list the commands that this agent may run from this machine`,
    `On ${agent}, add discoverable = true to the ACL entry, then restart x0xd:`,
    '',
    '  [[exec.allow]]',
    '  discoverable = true',
    '  description = "what these commands are for"',
    `  agent_id = "${own?.agent_id ?? 'ID (x0x id on this machine)'}"`,
    `  machine_id = "${own?.machine_id ?? 'ID (x0x id on this machine)'}"`,
    '',
    '  [[exec.allow.commands]]',
    '  argv = ["systemctl", "--no-pager", "status", "x0xd"]',
    '',
    `An allowed command runs even if it is not listed: x0x exec ${shellWord(agent)} -- ARGV...`,
  ]
  for (const line of lines) await printHint(context, line)
}

/** Shows a template as it is, and any other word quoted for a shell. */
const tokenText = (text: string): string => {
  const token = parseToken(text)
  if (typeof token === 'string' || token.kind === 'literal') return shellWord(text)
  return token.kind === 'int' ? text : `${token.prefix === '' ? '' : shellWord(token.prefix)}<URL_PATH>`
}

const UNITS = ['B', 'KiB', 'MiB', 'GiB'] as const

const sizeText = (bytes: number): string => {
  const power = UNITS.findLastIndex((_unit, at) => bytes >= 1024 ** at && bytes % 1024 ** at === 0)
  return power === -1 ? 'none' : `${bytes / 1024 ** power} ${UNITS[power]}`
}

const timeText = (ms: number): string => (ms % 1000 === 0 ? `${ms / 1000} s` : `${ms} ms`)

const terminalText = ({ terminal, record, watch }: ExecRule): string =>
  terminal ? ['yes', ...(record ? ['recorded'] : []), ...(watch ? ['watched'] : [])].join(', ') : 'no'

const rowOf = (rule: ExecRule): string[] => [
  rule.argv.map(tokenText).join(' '),
  timeText(rule.timeout_ms),
  sizeText(rule.max_stdout_bytes),
  sizeText(rule.max_stderr_bytes),
  sizeText(rule.max_stdin_bytes),
  rule.detach === null ? 'no' : `${timeText(rule.detach.lifetime_ms)}, ${sizeText(rule.detach.keep_bytes)}`,
  terminalText(rule),
  rule.description ?? '-',
]

const GRAMMAR = { '<INT>': TEMPLATE_TEXT.int, '<URL_PATH>': TEMPLATE_TEXT.url_path }

const printRules = async (context: CliContext, agent: string, { rules, left_out }: RulesJson): Promise<void> => {
  await printTable(
    context,
    ['COMMAND', 'TIME', 'STDOUT', 'STDERR', 'STDIN', 'DETACH', 'TERMINAL', 'DESCRIPTION (by its operator)'],
    rules.map(rowOf),
  )
  const used = Object.entries(GRAMMAR).filter(([template]) => rules.some(({ argv }) => argv.some((token) => token.endsWith(template))))
  await printLine(context, '')
  for (const [template, text] of used) await printLine(context, `${template}: ${text}`)
  if (rules.some(({ argv }) => isFileCommand(argv))) {
    await printLine(context, '@read, @write: files in this directory and below')
    await printHint(context, `Try: x0x ls ${shellWord(agent)}:DIRECTORY`)
  }
  if (left_out > 0) await printLine(context, `${counted(left_out, 'command')} more are not listed, because the answer is full`)
  if (!rules.every(({ argv }) => isFileCommand(argv))) await printHint(context, `Try: x0x exec ${shellWord(agent)} -- COMMAND`)
}
